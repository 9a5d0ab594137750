"""Table of published shapes of well-known models, each with its source."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["MODELS", "Model"]

_LEVINE = "Levine et al. 2020, arXiv:2006.12467, with Brown et al. 2020 and Radford et al. 2019"
_PYTHIA = "https://github.com/EleutherAI/pythia/blob/{}/models/{}"


@dataclass(frozen=True)
class Model:
    """Shape of a published model; `heads` need not divide `width` (GPT-3 13B's published table)."""

    name: str
    depth: int
    width: int
    heads: int
    source: str


MODELS = (
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
