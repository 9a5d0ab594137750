"""Table of published shapes of well-known models, each with its source."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["MODELS", "PLOTTED", "Model", "models_of_size"]

_LEVINE = "Levine et al. 2020, arXiv:2006.12467, with Brown et al. 2020 and Radford et al. 2019"
_HUB = "https://huggingface.co/{}/blob/main/config.json"
_PYTHIA = "https://github.com/EleutherAI/pythia/blob/{}/models/{}"


@dataclass(frozen=True)
class Model:
    """Shape of a published model; `heads` need not divide `width` (GPT-3 13B's published table)."""

    name: str
    depth: int
    width: int
    heads: int
    source: str

    @property
    def params(self) -> int:
        """12·depth·width², in which models are compared."""
        return 12 * self.depth * self.width**2


def models_of_size(params: float) -> tuple[Model, ...]:
    """Return the models whose 12·L·d² is between half and twice a number of parameters.

    >>> [model.name for model in models_of_size(12 * 126 * 16384**2)]
    ['Falcon 180B', 'Llama 3.1 405B']
    """
    return tuple(model for model in MODELS if params / 2 <= model.params <= 2 * params)


_EARLY = (
    Model("GPT-2 small", 12, 768, 12, _LEVINE),
    Model("GPT-2 medium", 24, 1024, 16, _LEVINE),
    Model("GPT-2 large", 36, 1280, 20, _LEVINE),
    Model("GPT-2 XL", 48, 1600, 25, _LEVINE),
    Model("GPT-3 125M", 12, 768, 12, _LEVINE),
    Model("GPT-3 350M", 24, 1024, 16, _LEVINE),
    Model("GPT-3 760M", 24, 1536, 16, _LEVINE),
    Model("GPT-3 1.3B", 24, 2048, 24, _LEVINE),
    Model("GPT-3 2.7B", 32, 2560, 32, _LEVINE),
    Model("GPT-3 6.7B", 32, 4096, 32, _LEVINE),
    Model("GPT-3 13B", 40, 5140, 40, _LEVINE),
    Model("GPT-3 175B", 96, 12288, 96, _LEVINE),
    Model(
        "Pythia 70M",
        6,
        512,
        8,
        _PYTHIA.format("ae1ce75d43f08844a8cc6e959d9291cd8061f994", "70M/pythia-70m.yml"),
    ),
    Model(
        "Pythia 410M",
        24,
        1024,
        16,
        _PYTHIA.format("ddad623a9395d2ecc4cf52dda5379ffd0fd82597", "410M/pythia-410m.yml"),
    ),
    Model(
        "Pythia 1.4B",
        24,
        2048,
        16,
        _PYTHIA.format("4d0c90183683435b20890cabca52783c3b820d3c", "1.4B/pythia-1.4b.yml"),
    ),
    Model(
        "Pythia 2.8B",
        32,
        2560,
        32,
        _PYTHIA.format("2d898509f4551b62801c59bfafc9a540640a15e3", "2.8B/pythia-2.8b.yml"),
    ),
    Model(
        "Pythia 6.9B",
        32,
        4096,
        32,
        _PYTHIA.format("31654e58dda6db481ccc0cb21fbe6ebaf3555036", "6.9B/pythia-6.9b.yml"),
    ),
    Model(
        "Pythia 12B",
        36,
        5120,
        40,
        _PYTHIA.format("55e1182be2856e34e5044e5eb8ac96002e9e40f3", "12B/pythia-12b.yml"),
    ),
    Model(
        "GPT-NeoX 20B",
        44,
        6144,
        64,
        "https://github.com/EleutherAI/gpt-neox/blob/252ddc522fba7e2138d4c08fd05f6d11084567b8/configs/20B.yml",
    ),
    Model(
        "OLMo 7B",
        32,
        4096,
        32,
        "https://github.com/allenai/OLMo/blob/0bb7f7dbd0c54e26fdfb0c7deeb1324ed2c84662/configs/official/OLMo-7B.yaml",
    ),
)

_LATER = (
    Model("OPT 1.3B", 24, 2048, 32, _HUB.format("facebook/opt-1.3b")),
    Model("OPT 6.7B", 32, 4096, 32, _HUB.format("facebook/opt-6.7b")),
    Model("OPT 13B", 40, 5120, 40, _HUB.format("facebook/opt-13b")),
    Model("OPT 30B", 48, 7168, 56, _HUB.format("facebook/opt-30b")),
    Model("OPT 66B", 64, 9216, 72, _HUB.format("facebook/opt-66b")),
    Model("BLOOM 560M", 24, 1024, 16, _HUB.format("bigscience/bloom-560m")),
    Model("BLOOM 1.7B", 24, 2048, 16, _HUB.format("bigscience/bloom-1b7")),
    Model("BLOOM 7.1B", 30, 4096, 32, _HUB.format("bigscience/bloom-7b1")),
    Model("BLOOM 176B", 70, 14336, 112, _HUB.format("bigscience/bloom")),
    Model("GPT-J 6B", 28, 4096, 16, _HUB.format("EleutherAI/gpt-j-6b")),
    Model("MPT 7B", 32, 4096, 32, _HUB.format("mosaicml/mpt-7b")),
    Model("MPT 30B", 48, 7168, 64, _HUB.format("mosaicml/mpt-30b")),
    Model("Falcon 7B", 32, 4544, 71, _HUB.format("tiiuae/falcon-7b")),
    Model("Falcon 40B", 60, 8192, 128, _HUB.format("tiiuae/falcon-40b")),
    Model("Falcon 180B", 80, 14848, 232, _HUB.format("tiiuae/falcon-180B")),
    Model("StableLM 3B", 32, 2560, 32, _HUB.format("stabilityai/stablelm-3b-4e1t")),
    Model("StableLM 2 1.6B", 24, 2048, 32, _HUB.format("stabilityai/stablelm-2-1_6b")),
    Model("Phi-2", 32, 2560, 32, _HUB.format("microsoft/phi-2")),
    Model("Phi-3 mini", 32, 3072, 32, _HUB.format("microsoft/Phi-3-mini-4k-instruct")),
    Model("Phi-4", 40, 5120, 40, _HUB.format("microsoft/phi-4")),
    Model("Llama 2 13B", 40, 5120, 40, _HUB.format("meta-llama/Llama-2-13b-hf")),
    Model("Llama 2 70B", 80, 8192, 64, _HUB.format("meta-llama/Llama-2-70b-hf")),
    Model("Llama 3 8B", 32, 4096, 32, _HUB.format("meta-llama/Meta-Llama-3-8B")),
    Model("Llama 3.1 405B", 126, 16384, 128, _HUB.format("meta-llama/Llama-3.1-405B")),
    Model("Llama 3.2 1B", 16, 2048, 32, _HUB.format("meta-llama/Llama-3.2-1B")),
    Model("Llama 3.2 3B", 28, 3072, 24, _HUB.format("meta-llama/Llama-3.2-3B")),
    Model("Mistral 7B", 32, 4096, 32, _HUB.format("mistralai/Mistral-7B-v0.1")),
    Model("Mistral Nemo 12B", 40, 5120, 32, _HUB.format("mistralai/Mistral-Nemo-Base-2407")),
    Model("Mistral Large 2", 88, 12288, 96, _HUB.format("mistralai/Mistral-Large-Instruct-2407")),
    Model("Mixtral 8x22B", 56, 6144, 48, _HUB.format("mistralai/Mixtral-8x22B-v0.1")),
    Model("Qwen2.5 0.5B", 24, 896, 14, _HUB.format("Qwen/Qwen2.5-0.5B")),
    Model("Qwen2.5 1.5B", 28, 1536, 12, _HUB.format("Qwen/Qwen2.5-1.5B")),
    Model("Qwen2.5 3B", 36, 2048, 16, _HUB.format("Qwen/Qwen2.5-3B")),
    Model("Qwen2.5 7B", 28, 3584, 28, _HUB.format("Qwen/Qwen2.5-7B")),
    Model("Qwen2.5 14B", 48, 5120, 40, _HUB.format("Qwen/Qwen2.5-14B")),
    Model("Qwen2.5 32B", 64, 5120, 40, _HUB.format("Qwen/Qwen2.5-32B")),
    Model("Qwen2.5 72B", 80, 8192, 64, _HUB.format("Qwen/Qwen2.5-72B")),
    Model("Qwen3 0.6B", 28, 1024, 16, _HUB.format("Qwen/Qwen3-0.6B")),
    Model("Qwen3 1.7B", 28, 2048, 16, _HUB.format("Qwen/Qwen3-1.7B")),
    Model("Qwen3 4B", 36, 2560, 32, _HUB.format("Qwen/Qwen3-4B")),
    Model("Qwen3 8B", 36, 4096, 32, _HUB.format("Qwen/Qwen3-8B")),
    Model("Qwen3 14B", 40, 5120, 40, _HUB.format("Qwen/Qwen3-14B")),
    Model("Qwen3 30B-A3B", 48, 2048, 32, _HUB.format("Qwen/Qwen3-30B-A3B")),
    Model("Qwen3 235B-A22B", 94, 4096, 64, _HUB.format("Qwen/Qwen3-235B-A22B")),
    Model("Gemma 2 2B", 26, 2304, 8, _HUB.format("google/gemma-2-2b")),
    Model("Gemma 2 9B", 42, 3584, 16, _HUB.format("google/gemma-2-9b")),
    Model("Gemma 2 27B", 46, 4608, 32, _HUB.format("google/gemma-2-27b")),
    Model("Gemma 3 270M", 18, 640, 4, _HUB.format("google/gemma-3-270m")),
    Model("Gemma 3 1B", 26, 1152, 4, _HUB.format("google/gemma-3-1b-pt")),
    Model("Gemma 3 4B", 34, 2560, 8, _HUB.format("google/gemma-3-4b-pt")),
    Model("Gemma 3 12B", 48, 3840, 16, _HUB.format("google/gemma-3-12b-pt")),
    Model("Gemma 3 27B", 62, 5376, 32, _HUB.format("google/gemma-3-27b-pt")),
    Model("OLMo 2 1B", 16, 2048, 16, _HUB.format("allenai/OLMo-2-0425-1B")),
    Model("OLMo 2 13B", 40, 5120, 40, _HUB.format("allenai/OLMo-2-1124-13B")),
    Model("OLMo 2 32B", 64, 5120, 40, _HUB.format("allenai/OLMo-2-0325-32B")),
    Model("SmolLM2 135M", 30, 576, 9, _HUB.format("HuggingFaceTB/SmolLM2-135M")),
    Model("SmolLM2 360M", 32, 960, 15, _HUB.format("HuggingFaceTB/SmolLM2-360M")),
    Model("SmolLM2 1.7B", 24, 2048, 32, _HUB.format("HuggingFaceTB/SmolLM2-1.7B")),
    Model("SmolLM3 3B", 36, 2048, 16, _HUB.format("HuggingFaceTB/SmolLM3-3B-Base")),
    Model("gpt-oss 20B", 24, 2880, 64, _HUB.format("openai/gpt-oss-20b")),
    Model("gpt-oss 120B", 36, 2880, 64, _HUB.format("openai/gpt-oss-120b")),
    Model("DeepSeek-V2-Lite", 27, 2048, 16, _HUB.format("deepseek-ai/DeepSeek-V2-Lite")),
    Model("DeepSeek-V3", 61, 7168, 128, _HUB.format("deepseek-ai/DeepSeek-V3")),
)

MODELS = (*_EARLY, *_LATER)
PLOTTED = _EARLY  # the plane has room for the names of these
