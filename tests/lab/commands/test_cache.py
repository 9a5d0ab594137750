"""`plait cache`: evaluation, generation, and what is refused in one line with exit code 2."""

import json
import shutil

import pytest
import torch

pytest.importorskip("transformers", reason="pip install 'plait[hf]'")
from plait.hf import BoundedCache, Scores
from plait.lab.cli import main
from tests.lab.conftest import save_model

EVAL = ["--context", "60", "--prefix", "30", "--documents", "2", "--needles", "0", "--slots", "8,12"]


def evaluate(model, texts, out, *options):
    return main(["cache", "eval", str(model), "--text", *map(str, texts), "--out", str(out), *EVAL, *options])


def test_an_evaluation_is_a_table_a_page_and_a_readme(model_folder, texts, tmp_path, capsys):
    line = [model_folder, texts, tmp_path / "out", "--policies", "full,sinks,tova", "--json"]
    assert evaluate(*line) == 0
    output = capsys.readouterr()
    results = json.loads(output.out)
    quality = [row for row in results["results"] if "perplexity" in row]
    sizes = [("full", None), ("sinks", 8), ("tova", 8), ("sinks", 12), ("tova", 12)]
    assert [(row["policy"], row["slots"]) for row in quality] == sizes
    assert output.err.count("text: ") == 5
    page, readme = ((tmp_path / "out" / name).read_text() for name in ("page.html", "README.md"))
    assert quality[1]["perplexity"] in page
    assert quality[1]["perplexity"] in readme
    assert evaluate(*line) == 0
    output = capsys.readouterr()
    assert not output.err
    assert json.loads(output.out) == results
    assert main(["cache", "report", str(tmp_path / "out"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == results


def test_scores_add_their_policy(model_folder, lm, texts, tmp_path, capsys):
    scores = Scores(lm.model, window=2, capacity=4, sinks=2, width=4)
    scores.save(tmp_path / "scores", lm.model)
    options = ["--policies", "sinks", "--scores", str(tmp_path / "scores"), "--json"]
    assert evaluate(model_folder, texts, tmp_path / "out", *options) == 0
    rows = json.loads(capsys.readouterr().out)["results"]
    assert [row["policy"] for row in rows if "perplexity" in row] == ["sinks", "learned"] * 2
    other = save_model(tmp_path / "other", initializer_range=0.3)
    assert evaluate(other, texts, tmp_path / "out2", *options) == 2
    assert "other" in one_line(capsys)


def one_line(capsys):
    """Return the line of an error; nothing else was printed."""
    output = capsys.readouterr()
    assert not output.out
    assert output.err.count("\n") == 1, output.err
    return output.err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--policies", "sinks,snapkv"], "unknown policy 'snapkv'"),
        (["--policies", "learned"], "learned needs --scores FOLDER"),
        (["--slots", "4"], "slots: expected at least sinks + 1 = 5, got 4"),
        (["--slots", "x"], "slots: expected numbers"),
        (["--window", "9"], "window: expected at most slots - sinks = 4, got 9"),
        (["--context", "513"], "expected at most 512 tokens, this model's positions, got 513"),
        (["--documents", "500"], "expected 500 documents"),
        (["--needles", "1", "--kinds", "two"], "unknown kind of needle 'two'"),
        (["--scores", "nowhere"], "nowhere"),
        (["--device", "tpu"], "unknown device 'tpu'"),
        (["--text", "nowhere.txt"], "nowhere.txt: cannot be read"),
    ],
)
def test_bad_options_of_an_evaluation(model_folder, texts, tmp_path, capsys, options, message):
    assert evaluate(model_folder, texts, tmp_path / "out", *options) == 2
    assert message in one_line(capsys)
    assert not (tmp_path / "out").exists()


def test_files_that_are_not_models_are_refused(texts, tmp_path, capsys):
    for path, message in ((tmp_path / "nowhere", "got nothing there"), (texts[0], "got another file")):
        assert evaluate(path, texts, tmp_path / "out") == 2
        assert message in one_line(capsys)
    assert main(["cache", "report", str(tmp_path)]) == 2
    assert "expected a folder of plait cache eval" in one_line(capsys)
    assert main(["cache", "convert", str(texts[0]), str(tmp_path / "out")]) == 2
    assert "expected a .gguf file" in one_line(capsys)
    assert main(["cache", "texts", str(tmp_path), "--packages", "emacs"]) == 2
    assert "unknown package 'emacs'" in one_line(capsys)


PROMPT = "The river walks under the old bright house and the bird was cold."


def expected_text(lm, tokens, **cache):
    ids = torch.tensor([lm.tokenizer(PROMPT)["input_ids"]])
    options = {"past_key_values": BoundedCache(lm.model, **cache)} if cache else {}
    mask = torch.ones_like(ids)
    new = lm.model.generate(
        ids, attention_mask=mask, max_new_tokens=tokens, do_sample=False, pad_token_id=0, **options
    )
    return lm.tokenizer.decode(new[0, ids.shape[1] :], skip_special_tokens=True)


def test_a_text_is_continued_as_generate_does(model_folder, lm, tmp_path, capsys):
    line = ["cache", "generate", str(model_folder), PROMPT, "--max-new-tokens", "30", "--sinks", "2"]
    bounded = expected_text(lm, 30, window=3, capacity=7, sinks=2, policy="h2o")
    assert main([*line, "--slots", "12", "--policy", "h2o"]) == 0
    output = capsys.readouterr()
    assert output.out == bounded + "\n"
    assert main([*line, "--policy", "full", "--json"]) == 0
    full = json.loads(capsys.readouterr().out)
    assert full["text"] == expected_text(lm, 30)
    assert full["text"] != bounded
    assert full["bytes"] == full["full_bytes"] == full["tokens_read"] * 2 * 2 * 8 * 4
    seen, size = full["tokens_read"], full["full_bytes"] / 2**20
    if len(bounded) == len(full["text"]):
        assert f"12 of {seen} states in each KV head" in output.err
        assert f"the full cache has {size:.2f} MiB" in output.err
    split = tmp_path / "prompt.txt"
    split.write_text(PROMPT[:20])
    line[3] = PROMPT[20:]
    assert main([*line, "--text", str(split), "--slots", "12", "--policy", "h2o"]) == 0
    assert capsys.readouterr().out == bounded + "\n"


def test_sampling_is_repeated_by_its_seed(model_folder, capsys):
    line = ["cache", "generate", str(model_folder), PROMPT, "--temperature", "2", "--max-new-tokens", "20"]
    texts = []
    for seed in ("1", "1", "2"):
        assert main([*line, "--seed", seed]) == 0
        texts.append(capsys.readouterr().out)
    assert texts[0] == texts[1] != texts[2]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--slots", "4"], "slots: expected at least sinks + 1"),
        (["--policy", "learned"], "learned needs --scores"),
        (["--policy", "h2o", "--scores", "folder"], "the policy h2o takes none"),
        (["--policy", "snapkv"], "unknown policy"),
        (["--max-new-tokens", "500"], "the positions of this model, got"),
        (["--max-new-tokens", "0"], "max_new_tokens: expected at least 1"),
        (["--temperature", "-1"], "temperature: expected at least 0"),
        (["--seed", "-1"], "seed: expected"),
        (["--text", "nowhere.txt"], "nowhere.txt: cannot be read"),
    ],
)
def test_bad_options_of_a_generation(model_folder, capsys, options, message):
    assert main(["cache", "generate", str(model_folder), PROMPT, *options]) == 2
    assert message in one_line(capsys)


def test_an_empty_prompt_and_a_broken_model_are_refused(model_folder, tmp_path, capsys):
    assert main(["cache", "generate", str(model_folder)]) == 2
    assert "prompt: expected some text" in one_line(capsys)
    folder = shutil.copytree(model_folder, tmp_path / "copy")
    (folder / "model.safetensors").write_bytes(b"no")
    assert main(["cache", "generate", str(folder), PROMPT]) == 2
    assert "its weights cannot be loaded" in one_line(capsys)
