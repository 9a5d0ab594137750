"""Opening language models: folders, GGUF files, and what is refused in one line."""

import json
import shutil
import sys
import types

import pytest
import torch

from plait.errors import ConfigError, DataError, MissingExtraError
from plait.hugging_face import load_gguf
from plait.lab.caches import models
from plait.lab.caches.models import convert_gguf, end_tokens, open_model
from tests.lab.conftest import save_model, tiny_tokenizer

transformers = pytest.importorskip("transformers", reason="pip install 'plait[hf]'")


def test_a_folder_is_read_with_its_tokenizer(lm, model_folder):
    text = "The river walks under 123 stones, é."
    assert lm.tokenizer.decode(lm.tokenizer(text)["input_ids"]) == text
    assert (lm.name, lm.positions, lm.model.dtype) == ("tiny", 512, torch.float32)
    assert not lm.model.training
    assert end_tokens(lm.model) == {0}
    original = transformers.LlamaForCausalLM.from_pretrained(model_folder).eval()
    ids = torch.arange(40)[None] + 2
    torch.testing.assert_close(lm.model(ids).logits, original(ids).logits)


def test_the_digest_is_that_of_the_weights(lm, tmp_path):
    assert open_model(save_model(tmp_path / "same")).digest == lm.digest
    assert open_model(save_model(tmp_path / "other", initializer_range=0.3)).digest != lm.digest


def test_pickled_weights_are_not_opened(model_folder, tmp_path):
    folder = shutil.copytree(model_folder, tmp_path / "pickled")
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(DataError, match=r"expected safetensors, got pickled weights"):
        open_model(folder)


def test_a_folder_that_lacks_something_says_what(model_folder, tmp_path):
    with pytest.raises(ConfigError, match="got nothing there"):
        open_model(tmp_path / "nowhere")
    folder = shutil.copytree(model_folder, tmp_path / "copy")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).unlink()
    with pytest.raises(DataError, match="its tokenizer cannot be loaded"):
        open_model(folder)
    (folder / "model.safetensors").unlink()
    with pytest.raises(DataError, match=r"expected model\.safetensors, got a folder without weights"):
        open_model(folder)
    (folder / "config.json").unlink()
    with pytest.raises(DataError, match=r"config\.json: cannot be read"):
        open_model(folder)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"model_type": "t5"}, "expected a decoder alone, got 't5'"),
        ({"model_type": "mamba", "num_hidden_layers": 2, "hidden_size": 16}, "layers of full attention"),
    ],
)
def test_families_without_a_cache_that_grows_are_refused(tmp_path, settings, message):
    (tmp_path / "config.json").write_text(json.dumps(settings))
    with pytest.raises(ConfigError, match=message):
        open_model(tmp_path)


@pytest.fixture
def gguf(monkeypatch, tmp_path):
    """A .gguf file whose reading is that of a small model: what is tested is what is done with it."""
    path = tmp_path / "small.gguf"
    path.write_bytes(b"GGUF" + bytes(100))
    reads = []

    def load(path):
        reads.append(path)
        folder = save_model(tmp_path / f"source-{len(reads)}")
        return transformers.LlamaForCausalLM.from_pretrained(folder), tiny_tokenizer()

    monkeypatch.setattr(models, "load_gguf", load)
    return path, reads


def test_a_gguf_file_is_converted_once_to_a_folder_beside_it(gguf):
    path, reads = gguf
    first = open_model(path)
    second = open_model(path)
    assert len(reads) == 1
    assert first.name == second.name == "small"
    assert first.digest == second.digest
    assert {p.suffix for p in path.with_suffix("").iterdir()} == {".json", ".safetensors"}
    assert not list(path.parent.glob(".*"))  # nothing is left of the writing


def test_a_folder_of_another_file_is_not_taken_for_the_converted_one(gguf):
    path, _ = gguf
    open_model(path)
    path.write_bytes(b"GGUF, another")
    with pytest.raises(
        ConfigError, match=r"small: expected the folder converted from small\.gguf, got another"
    ):
        open_model(path)


def test_a_conversion_that_fails_leaves_nothing(gguf, monkeypatch, tmp_path):
    path, _ = gguf

    def fails(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(models, "save_model", fails)
    with pytest.raises(OSError, match=r"cannot write .*elsewhere: No space left"):
        convert_gguf(path, tmp_path / "elsewhere")
    assert not [p.name for p in tmp_path.iterdir() if "elsewhere" in p.name]
    with pytest.raises(ConfigError, match=r"expected a \.gguf file"):
        convert_gguf(tmp_path / "no.gguf", tmp_path / "elsewhere")
    with pytest.raises(ConfigError, match="expected a new folder"):
        convert_gguf(path, tmp_path)


def test_the_end_token_of_a_gguf_file_is_the_models(tmp_path, monkeypatch):
    """Some versions of transformers read another one into the tokenizer."""
    for package in ("gguf", "accelerate"):
        monkeypatch.setitem(sys.modules, package, types.ModuleType(package))
    tokenizer = tiny_tokenizer()
    right, tokenizer.eos_token = tokenizer.eos_token, "<|im_start|>"
    model = transformers.LlamaForCausalLM.from_pretrained(save_model(tmp_path / "source"))
    monkeypatch.setattr(transformers.AutoTokenizer, "from_pretrained", lambda *a, **b: tokenizer)
    stored = {"dtype": torch.bfloat16}
    monkeypatch.setattr(
        transformers.AutoModelForCausalLM, "from_pretrained", lambda *a, **b: model.to((stored | b)["dtype"])
    )
    loaded, read = load_gguf(tmp_path / "small.gguf")
    assert (read.eos_token, read.eos_token_id) == (right, model.config.eos_token_id)
    assert {weight.dtype for weight in loaded.parameters()} == {torch.float32}, "whatever its file says"


def test_reading_a_gguf_file_needs_its_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "gguf", None)
    path = tmp_path / "a.gguf"
    path.write_bytes(b"GGUF")
    with pytest.raises(MissingExtraError, match=r"pip install 'plait\[gguf\]'"):
        open_model(path)
