"""A language model of a few thousand weights with a tokenizer of its own, in a folder, and texts to read."""

import random

import pytest
import torch

from plait import hugging_face

WORDS = [
    "the",
    "a",
    "river",
    "stone",
    "bird",
    "walks",
    "under",
    "over",
    "bright",
    "cold",
    "morning",
    "and",
    "then",
    "it",
    "was",
    "old",
    "new",
    "light",
    "house",
]
FACTS = "The magic number of the. VAR = stands for. The text above mentions the magic number of the "
SIZES = {
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "max_position_embeddings": 512,
    "initializer_range": 0.4,
}


def prose(words, seed=0):
    """Return sentences of random words."""
    rng = random.Random(seed)
    lines = []
    while words > 0:
        length = min(words, rng.randint(5, 12))
        lines.append(" ".join(rng.choices(WORDS, k=length)).capitalize() + ".")
        words -= length
    return " ".join(lines)


def tiny_tokenizer(**options):
    """Return a byte-level tokenizer: any text comes back as it was."""
    tokenizers = pytest.importorskip("tokenizers", reason="pip install 'plait[hf]'")
    transformers = pytest.importorskip("transformers", reason="pip install 'plait[hf]'")
    inner = tokenizers.Tokenizer(tokenizers.models.BPE())
    inner.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=380,
        special_tokens=["<end>", "<begin>"],
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    inner.train_from_iterator([prose(400), FACTS * 40], trainer)
    if "bos_token" in options:
        inner.post_processor = tokenizers.processors.TemplateProcessing(
            single="<begin> $A", special_tokens=[("<begin>", 1)]
        )
    return transformers.PreTrainedTokenizerFast(tokenizer_object=inner, eos_token="<end>", **options)


def save_model(folder, tokenizer=None, **changes):
    """Write a Llama with random weights and a tokenizer into a folder."""
    transformers = pytest.importorskip("transformers", reason="pip install 'plait[hf]'")
    tokenizer = tokenizer or tiny_tokenizer()
    torch.manual_seed(0)
    config = transformers.LlamaConfig(**{**SIZES, "vocab_size": len(tokenizer), "eos_token_id": 0, **changes})
    folder.mkdir()
    hugging_face.save_model(transformers.LlamaForCausalLM(config), tokenizer, folder)
    return folder


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory):
    """A folder with a tiny model, as a user has one; never written to."""
    return save_model(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(scope="session")
def texts(tmp_path_factory):
    """Two text files of different lengths."""
    folder = tmp_path_factory.mktemp("texts")
    paths = [folder / "long.txt", folder / "short.txt"]
    for seed, (path, words) in enumerate(zip(paths, (900, 500), strict=True)):
        path.write_text(prose(words, seed))
    return paths


@pytest.fixture(scope="session")
def lm(model_folder):
    from plait.lab.caches.models import open_model

    return open_model(model_folder)
