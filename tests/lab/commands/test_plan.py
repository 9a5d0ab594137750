"""`plait plan …` as a person types it."""

import json

import pytest

from plait.depthwidth.planner import MODELS
from plait.depthwidth.planner.guideline import parse_budget
from plait.errors import ConfigError
from plait.lab import cli


def run(capsys, *arguments):
    code = cli.main(list(arguments))
    out, err = capsys.readouterr()
    return code, out, err


def test_shape_and_its_shorthand(capsys):
    code, out, _ = run(capsys, "plan", "shape", "1.3B")
    assert code == 0
    assert "1600" in out
    assert run(capsys, "plan", "1.3B")[1] == out
    code, out, _ = run(capsys, "plan", "1.3B", "--json")
    data = json.loads(out)
    assert (data["depth"], data["width"], data["heads"]) == (42, 1600, 25)
    assert json.loads(run(capsys, "plan", "1.3B", "--total", "--json")[1])["budget"] < 1.3e9


@pytest.mark.parametrize("budget", ["0", "1e30", "-5", "lots", "", "nan", "inf"])
def test_bad_budgets_are_one_line(capsys, budget):
    code, _, err = (
        run(capsys, "plan", "shape", "--", budget) if budget == "-5" else run(capsys, "plan", "shape", budget)
    )
    assert code == 2
    assert len(err.splitlines()) == 1
    assert "expected" in err


def test_parse_budget():
    assert parse_budget("125M") == 125e6
    assert parse_budget("1t") == 1e12
    assert parse_budget("1,300,000,000") == 1.3e9
    assert parse_budget("1,300M") == 1.3e9
    for decimal_comma in ("1,3B", "13,00M", "1,3000", ",300M"):  # 1,3B was read as 13 billion
        with pytest.raises(ConfigError, match="budget: expected parameters such as"):
            parse_budget(decimal_comma)
    with pytest.raises(ConfigError, match=r"expected 1e[+]05 to 1e[+]15"):
        parse_budget("1e30")


def test_judge(capsys):
    code, out, _ = run(capsys, "plan", "judge", "--depth", "96", "--width", "12288")
    assert code == 0
    assert "too deep" in out
    assert "15.5" in out
    code, _, err = run(capsys, "plan", "judge", "--depth", "96")
    assert code == 2
    assert "--width" in err


def test_judge_with_a_vocabulary_lists_costs(capsys, tmp_path):
    shape = ["plan", "judge", "--depth", "12", "--width", "768"]
    assert "Parameters and costs" not in run(capsys, *shape)[1]
    out = run(capsys, *shape, "--vocab", "50257")[1]
    assert "124,439,808" in out  # GPT-2
    assert run(capsys, *shape, "--vocab", "50.257k")[1] == out
    (tmp_path / "config.json").write_text('{"model_type": "mine"}')
    code, _, err = run(capsys, "plan", "judge", str(tmp_path))
    assert code == 2
    assert err.endswith("a shape needs no file: --depth N --width N\n")
    code, _, err = run(capsys, "plan", "judge", str(tmp_path), "--vocab", "128k")
    assert code == 2
    assert "has its own vocabulary" in err


def test_judge_a_configuration_file(capsys, tmp_path):
    path = tmp_path / "config.json"
    values = {
        "model_type": "llama",
        "num_hidden_layers": 32,
        "hidden_size": 4096,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "intermediate_size": 14336,
        "vocab_size": 128256,
        "tie_word_embeddings": False,
    }
    path.write_text(json.dumps(values))
    code, out, _ = run(capsys, "plan", "judge", "--config", str(path))
    assert code == 0
    assert "8,030,261,248" in out
    assert "-37.5%" in out  # grouped keys and values
    data = json.loads(run(capsys, "plan", "judge", "--config", str(path), "--json")[1])
    assert data["count"]["total"] == 8_030_261_248
    assert data["params"] == data["count"]["layers"]
    assert run(capsys, "plan", "judge", str(path))[1] == out
    assert out.splitlines()[2].startswith("verdict ")  # first of all
    assert "shallower than 13 of 25 published models of this size; the 2020 fit, extrapolated, would" in out
    assert data["verdict"] is None
    assert data["words"] in out
    assert [row["name"] for row in data["evidence"]][:2] == ["guideline", "published models"]
    assert "Fahim and Karim 2026" in out  # the rival laws stand beside it
    assert run(capsys, "plan", "judge", "--config", str(path), "--depth", "3")[0] == 2
    assert run(capsys, "plan", "judge", str(path), "--config", str(path))[0] == 2
    path.write_text("nonsense")
    code, _, err = run(capsys, "plan", "judge", "--config", str(path))
    assert code == 2
    assert "is not JSON" in err


def test_judge_a_folder(capsys, tmp_path):
    values = {"model_type": "gpt2", "n_layer": 12, "n_embd": 768, "n_head": 12, "n_positions": 1024}
    (tmp_path / "config.json").write_text(json.dumps(values))
    code, out, _ = run(capsys, "plan", "judge", str(tmp_path))
    assert code == 0
    assert out == run(capsys, "plan", "judge", str(tmp_path / "config.json"))[1]
    assert out == run(capsys, "plan", "judge", "--config", str(tmp_path))[1]
    assert "FLOPs per token, after 1,023 others" in out  # its table of positions ends there
    assert "after 99 others" in run(capsys, "plan", "judge", str(tmp_path), "--context", "99")[1]
    (tmp_path / "empty").mkdir()
    code, _, err = run(capsys, "plan", "judge", str(tmp_path / "empty"))
    assert code == 2
    assert "config.json: cannot be read (No such file or directory)" in err


def test_no_verdict_is_one_line(capsys, tmp_path):
    def judged(**values):
        (tmp_path / "config.json").write_text(json.dumps(values))
        data = json.loads(run(capsys, "plan", "judge", str(tmp_path), "--json")[1])
        return run(capsys, "plan", "judge", str(tmp_path))[1], data

    out, data = judged(model_type="bert")
    assert out.splitlines()[0].startswith("no verdict: the law is about decoders")
    assert "none: an encoder keeps no keys and values" in out
    assert "KiB" not in out
    assert data["verdict"] is None
    assert "encoder" in data["no_verdict"]
    assert data["costs"]["cache_bytes"] == 0
    out, data = judged(model_type="t5")
    assert out.splitlines()[0].startswith("no verdict: the law is about one stack")
    assert data["costs"] is None
    out, data = judged(model_type="gpt2", n_layer=2, n_embd=8, n_head=2)
    assert "no verdict: the law is used for 12·L·d² from 1e+05" in out
    out, _ = judged(model_type="mistral")
    assert "the 2020 fit, extrapolated, would take 54" in out
    assert "32 of 32 layers attend to 4,096 tokens at most" in out
    assert "512 MiB" in out


def test_laws_and_prices(capsys):
    out = run(capsys, "plan", "7B", "--laws")[1]
    for words in (
        "arXiv:2601.20994",
        "64 layers lose to 32",
        "12 to 34%",
        "30 layers of 576",
        "KiB",
        "outside",
    ):
        assert words in out
    data = json.loads(run(capsys, "plan", "7B", "--laws", "--json")[1])
    assert data["balanced"] is True
    assert data["disagreement"].endswith("Depth Delusion.")
    assert {law["name"] for law in data["laws"]} >= {"Kaplan", "MobileLLM", "CompleteP", "inverse depth"}
    assert "laws" not in json.loads(run(capsys, "plan", "7B", "--json")[1])
    assert "Not balanced" in run(capsys, "plan", "10M", "--multiple-of", "512")[1]


def test_table(capsys):
    code, out, _ = run(capsys, "plan", "table")
    assert code == 0
    assert "GPT-NeoX 20B" in out
    assert len(json.loads(run(capsys, "plan", "table", "--json")[1])) == len(MODELS)


def test_pictures(capsys, tmp_path):
    for marked, arguments in {
        "this plan": ["shape", "1.3B"],
        "this shape": ["judge", "--depth", "96", "--width", "12288"],
        "": ["table"],
    }.items():
        path = tmp_path / "plane.svg"
        assert run(capsys, "plan", *arguments, "--plot", str(path))[0] == 0
        text = path.read_text()
        assert marked in text
        assert ("this " in text) == bool(marked)
        for words in ("GPT-3 175B", "depth (layers)", "one standard error"):
            assert words in text
    code, _, err = run(capsys, "plan", "table", "--plot", str(tmp_path / "table.xyz"))
    assert code == 2
    assert "expected a name ending in" in err
