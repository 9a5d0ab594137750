"""Scores learn which states matter, by both recipes, and a run that was killed ends with the same bits."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import math
import os
import signal
import types
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from plait.errors import CheckpointError, ConfigError, DataError, DivergedError, OutputError
from plait.lab.cli import main

transformers = pytest.importorskip("transformers", reason="pip install 'plait[hf]'")
from plait.hf import Adapter, BoundedCache, Scores  # noqa: E402
from plait.hf.layer import Limits  # noqa: E402
from plait.lab.caches import future_use, rank_gradient, training  # noqa: E402
from plait.lab.caches.choice import ChoiceRecipe  # noqa: E402
from plait.lab.caches.eviction import EvictionRecipe, straight_through_attention  # noqa: E402
from plait.lab.caches.future_use import UsageRecipe, decision_steps, later_use, observe  # noqa: E402
from plait.lab.caches.models import LanguageModel  # noqa: E402
from plait.lab.caches.texts import Document  # noqa: E402
from plait.lab.caches.training import ScoresLearner, ScoresOptions, train_scores  # noqa: E402
from plait.lab.training import session  # noqa: E402
from plait.lab.training.learner import Step  # noqa: E402
from plait.lab.training.process import Group  # noqa: E402
from plait.lab.training.session import train_run  # noqa: E402
from plait.ops.bounded_attention import bounded_attention  # noqa: E402
from plait.ops.lifetimes import lifetimes  # noqa: E402

interpreted = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None or torch.cuda.is_available(),
    reason="without triton there are no kernels, with a GPU they do not run in the interpreter",
)
MARKS, LENGTH = 6, 40  # tokens below MARKS are those that later queries read
OPTIONS = ScoresOptions(window=4, capacity=4, sinks=1, updates=12, batch_size=2, width=4, held_out=3)


def reader():
    """Return a Llama of one layer in which every query reads the marks and hardly anything else.

    Feature 0 of an embedding is that of every token and becomes the query, feature 1 is that of a mark and
    becomes its key; both lie in the pair of features that rotate slowest.
    """
    config = transformers.LlamaConfig(
        vocab_size=32,
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        rope_parameters={"rope_type": "default", "rope_theta": 1e12},
        bos_token_id=None,
        eos_token_id=None,
        initializer_range=0.5,
        tie_word_embeddings=False,
    )
    torch.manual_seed(0)
    model = transformers.LlamaForCausalLM(config).eval().requires_grad_(False)
    attention = model.model.layers[0].self_attn
    model.model.embed_tokens.weight[:, :2] = 0
    model.model.embed_tokens.weight[:, 0] = 2
    model.model.embed_tokens.weight[:MARKS, 1] = 2
    for projection, feature in ((attention.q_proj, 0), (attention.k_proj, 1)):
        projection.weight.mul_(0.05)
        projection.weight[[3, 11], feature] = 3
    return LanguageModel(model, None, "reader", Path(), None)


def texts(count=20, seed=1):
    """Return documents with one mark among ten tokens."""
    generator = torch.Generator().manual_seed(seed)
    plain = torch.randint(MARKS, 32, (count, LENGTH), generator=generator)
    marks = torch.randint(MARKS, (count, LENGTH), generator=generator)
    ids = torch.where(torch.rand(count, LENGTH, generator=generator) < 0.1, marks, plain)
    return [Document("text", LENGTH * i, tuple(row)) for i, row in enumerate(ids.tolist())]


def kept_marks(language, scores, ids):
    """Return the share of the latest marks, at most the capacity, that a bounded cache still has."""
    cache = BoundedCache(language.model, **OPTIONS.limits._asdict(), scores=scores)
    with torch.no_grad():
        language.model(ids, past_key_values=cache)
    kept = total = 0
    for row, text in enumerate(ids.tolist()):
        older = [t for t in range(1, LENGTH - 4) if text[t] < MARKS]
        for head in range(2):
            states = set(cache.births(0)[row, head].tolist())
            kept += len(states.intersection(older))
            total += min(4, len(older))
    return kept / total


# What is learned


@pytest.mark.parametrize("recipe", ["usage", "choice", "eviction"])
def test_scores_learn_to_keep_what_is_read_later(recipe):
    language, pieces = reader(), texts()
    options = replace(OPTIONS, recipe=recipe, updates=40, lr=0.02)
    learner = ScoresLearner(language, pieces, options)
    before = learner.evaluate(final=False)["held_out"]
    weights = {name: value.clone() for name, value in language.model.state_dict().items()}
    scores, fitted = train_scores(language, pieces, options)
    after = fitted.summary["held_out"]["held_out"]
    assert after["loss"] < 0.5 * before["loss"]
    assert after["score"] > before["score"]
    held_out = learner.held_out_ids
    assert kept_marks(language, Scores(language.model, **options.limits._asdict()), held_out) < 0.6
    assert kept_marks(language, scores, held_out) > 0.9
    assert all(torch.equal(value, weights[name]) for name, value in language.model.state_dict().items())


@pytest.mark.parametrize("most", [future_use._MOST, 200], ids=["at once", "in blocks"])
@pytest.mark.parametrize("power", [math.inf, 2.0])
def test_usage_is_that_of_a_plain_loop(power, most, monkeypatch):
    monkeypatch.setattr(future_use, "_MOST", most)
    generator = torch.Generator().manual_seed(0)
    query = torch.randn(2, 4, 12, 6, generator=generator)
    key = torch.randn(2, 2, 12, 6, generator=generator)
    steps = [3, 5, 10]
    use = later_use(query, key, steps, power)
    for row, head in ((0, 0), (1, 1)):
        for g, step in enumerate(steps):
            for j in range(12):
                weights = [
                    (query[row, q, t] @ key[row, head, : t + 1].T / 6**0.5).softmax(-1)[j]
                    for q in (2 * head, 2 * head + 1)
                    for t in range(max(step, j), 12)
                ]
                torch.testing.assert_close(use[row, head, g, j], torch.stack(weights).norm(power))


def test_a_choice_is_scored_by_the_use_of_what_is_kept():
    """Ranks in the order of the use keep all that the oracle keeps, and cost less than in reverse."""
    language = reader()
    recipe = ChoiceRecipe(language.model, OPTIONS.limits)
    ids = torch.tensor([piece.tokens for piece in texts(2)])
    layers = observe(language.model, ids, OPTIONS.limits)
    for decision in range(len(decision_steps(LENGTH, OPTIONS.limits))):
        use = layers[0].log_use[:, :, decision]
        step = decision_steps(LENGTH, OPTIONS.limits)[decision]
        older = slice(OPTIONS.sinks, step - OPTIONS.window + 1)
        best, best_share = recipe._losses(lambda _, use=use, o=older: use[..., o], layers, decision)
        worst, worst_share = recipe._losses(lambda _, use=use, o=older: -use[..., o], layers, decision)
        torch.testing.assert_close(best_share, torch.ones(1))
        assert (best < worst).all()
        assert (worst_share < 1).all()


def test_states_are_compared_among_those_that_can_be_kept():
    """A state in the window or a sink changes neither the loss nor the gradient."""
    language = reader()
    limits = Limits(4, 4, 1)
    recipe, ids = UsageRecipe(language.model, limits), torch.tensor([piece.tokens for piece in texts(2)])
    scores = Scores(language.model, **limits._asdict(), width=0)
    layers = observe(language.model, ids, limits)
    assert decision_steps(LENGTH, limits)[0] == limits.slots
    error, spread = recipe._errors(scores, layers, slice(None))
    torch.testing.assert_close(error, spread)  # zero scores explain nothing
    last = decision_steps(LENGTH, limits)[-1]
    layers[0].log_use[..., 0] = 99
    layers[0].log_use[..., last - 3 :] = 99
    torch.testing.assert_close(recipe._errors(scores, layers, slice(None))[0], error)
    layers[0].log_use[:] += torch.randn(8)[:, None]  # the mean of each step does not matter
    torch.testing.assert_close(recipe._errors(scores, layers, slice(None))[0], error)


@pytest.mark.parametrize("limits", [Limits(4, 5, 2), Limits(1, 3, 0), Limits(3, 0, 1)], ids=str)
def test_forward_straight_through_is_the_bounded_cache(limits):
    generator = torch.Generator().manual_seed(0)
    query = torch.randn(2, 4, 30, 8, generator=generator)
    key, value = torch.randn(2, 2, 2, 30, 8, generator=generator)
    ranks = torch.randn(2, 2, 30, generator=generator).mul(3).round().requires_grad_()
    deaths = lifetimes(ranks, **limits._asdict()).deaths
    expected = bounded_attention(query, key, value, deaths, **limits._asdict())
    output = straight_through_attention(query, key, value, ranks, limits)
    torch.testing.assert_close(output, expected, atol=1e-5, rtol=1e-5)
    output.square().sum().backward()
    assert ranks.grad.isfinite().all()
    if limits.capacity:
        assert not ranks.grad[..., : limits.sinks].any()
        assert ranks.grad[..., limits.sinks : -limits.window].any()
    assert not ranks.grad[..., 30 - limits.window :].any()


def test_a_gradient_says_what_keeping_another_state_would_change():
    """One query reads state 1 of 0, 1, 2; the gradient of an evicted one is what keeping it would change."""
    query, key = torch.zeros(1, 1, 4, 2), torch.zeros(1, 1, 4, 2)
    value = torch.tensor([0.0, 1.0, 5.0, 0.0]).view(1, 1, 4, 1).expand(1, 1, 4, 2)
    ranks = torch.tensor([[[0.0, 2.0, 1.5, 0.0]]], requires_grad=True)
    output = straight_through_attention(query, key, value, ranks, Limits(1, 1, 0))
    assert output[0, 0, 3].tolist() == [0.5, 0.5]  # states 1 and 3
    output[0, 0, 3, 0].backward()
    slope = torch.tensor([0.0 - 2.0, 0.0, 1.5 - 2.0]).div(0.5).sigmoid()
    slope = slope * (1 - slope) / 0.5
    expected = slope * torch.tensor([1 / 3, 1 / 2, 1 / 3]) * (torch.tensor([0.0, 1.0, 5.0]) - 0.5)
    torch.testing.assert_close(ranks.grad[0, 0, :3], expected)


def test_the_gradient_of_ranks_does_not_depend_on_its_blocks(monkeypatch):
    generator = torch.Generator().manual_seed(0)
    query = torch.randn(2, 4, 30, 8, generator=generator)
    key, value = torch.randn(2, 2, 2, 30, 8, generator=generator)
    gradients = []
    for most in (rank_gradient._MOST, 2 * 4 * 30 * 3):
        monkeypatch.setattr(rank_gradient, "_MOST", most)
        ranks = torch.randn(2, 2, 30, generator=torch.Generator().manual_seed(1)).requires_grad_()
        straight_through_attention(query, key, value, ranks, Limits(4, 5, 2)).square().sum().backward()
        gradients.append(ranks.grad)
    torch.testing.assert_close(*gradients)


@interpreted
@pytest.mark.parametrize("limits", [Limits(4, 5, 2), Limits(1, 3, 0), Limits(3, 0, 1)], ids=str)
@pytest.mark.parametrize("length", [30, 75])
def test_kernels_give_the_gradient_of_the_definition(length, limits):
    from plait.lab.caches import triton_rank_gradient

    generator = torch.Generator().manual_seed(0)
    query, d_output = torch.randn(2, 2, 4, length, 24, generator=generator)
    key, value = torch.randn(2, 2, 2, length, 24, generator=generator)
    ranks = torch.randn(2, 2, length, generator=generator).mul(3).round()
    deaths = lifetimes(ranks, **limits._asdict()).deaths
    output = bounded_attention(query, key, value, deaths, **limits._asdict())
    tensors = d_output, query, key, value, output, ranks, deaths, limits
    expected = rank_gradient.rank_gradient(*tensors)
    gradient = triton_rank_gradient.rank_gradient(*tensors, rank_gradient.TEMPERATURE)
    torch.testing.assert_close(gradient, expected, atol=1e-5, rtol=1e-4)
    assert bool(expected.any()) == bool(limits.capacity)


def test_answers_weigh_more():
    language, ids = reader(), torch.tensor([piece.tokens for piece in texts(3)])
    scores = Scores(language.model, **OPTIONS.limits._asdict())
    answers = torch.zeros(ids.shape, dtype=torch.bool)
    answers[1, 30:33] = True
    one, ten = (EvictionRecipe(language.model, OPTIONS.limits, weight) for weight in (1.0, 10.0))
    plain = one.evaluate(scores, ids, answers)["loss"]
    assert plain == pytest.approx(one.evaluate(scores, ids)["loss"])
    with torch.no_grad():
        full = language.model(ids).logits.log_softmax(-1)
        cache = BoundedCache(language.model, **OPTIONS.limits._asdict(), scores=scores)
        own = language.model(ids, past_key_values=cache).logits.log_softmax(-1)
    divergence = (full.exp() * (full - own)).sum(-1)
    of_answers = divergence[1, 29:32].sum().item() / (3 * (LENGTH - OPTIONS.limits.slots))
    assert of_answers > 1e-4
    assert ten.evaluate(scores, ids, answers)["loss"] == pytest.approx(plain + 9 * of_answers, rel=1e-3)


# Runs


def outcome(folder):
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    tensors = (folder / "scores.safetensors").read_bytes()
    return tensors, [{k: v for k, v in line.items() if k != "seconds"} for line in lines]


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("recipe", ["usage", "choice", "eviction"])
def test_a_killed_run_resumes_to_the_same_bits(recipe, tmp_path, monkeypatch):
    language, pieces = reader(), texts()
    options = replace(OPTIONS, recipe=recipe, features="hidden", sizes=(1.0, 2.0))
    train_scores(language, pieces, options, tmp_path / "whole", checkpoint_every=2)
    child = os.fork()
    if not child:
        advance = ScoresLearner.advance

        def killed(learner, number, stop):
            if number == 8:
                os.kill(os.getpid(), signal.SIGKILL)
            return advance(learner, number, stop)

        monkeypatch.setattr(ScoresLearner, "advance", killed)
        train_scores(language, pieces, options, tmp_path / "killed", checkpoint_every=3)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL
    assert not (tmp_path / "killed" / "scores.json").exists()
    with pytest.raises(OutputError, match="unfinished; continue: plait cache train MODEL --text FILE --out"):
        train_scores(language, pieces, options, tmp_path / "killed")
    scores, _ = train_scores(language, pieces, options, tmp_path / "killed", resume=True)
    assert outcome(tmp_path / "killed") == outcome(tmp_path / "whole")
    sessions = json.loads((tmp_path / "killed" / "environment.json").read_text())["sessions"]
    assert [session["from_update"] for session in sessions] == [0, 6]
    again = Scores.load(tmp_path / "killed", language.model)
    assert again.trained["updates"] == again.trained["of_updates"] == 12
    assert all(torch.equal(v, again.state_dict()[k]) for k, v in scores.state_dict().items())


@pytest.mark.parametrize("recipe", ["eviction", "full"])
def test_a_tuned_model_loses_less_and_is_saved_with_its_scores(recipe, tmp_path):
    language, pieces = reader(), texts()
    options = replace(OPTIONS, recipe=recipe, tune="lora", rank=2, adapter_lr=1e-2, updates=20)
    scores, fitted = train_scores(language, pieces, options, tmp_path / "run", checkpoint_every=7)
    losses = [entry["held_out"]["held_out"]["loss"] for entry in fitted.metrics if "held_out" in entry]
    assert losses[-1] < losses[0]
    ids = torch.tensor([piece.tokens for piece in texts(1)])
    expected = language.model(ids).logits
    other = reader()
    assert not torch.allclose(other.model(ids).logits, expected, atol=1e-4)
    Adapter.load(tmp_path / "run", other.model).apply_to(other.model)
    torch.testing.assert_close(other.model(ids).logits, expected)
    again = Scores.load(tmp_path / "run", other.model)
    assert again.adapter == scores.adapter != ""
    assert bool(again.head(0).linear.any()) == (recipe == "eviction")


def test_a_run_is_listed_and_names_its_command(tmp_path, capsys):
    language, pieces = reader(), texts()
    train_scores(language, pieces, replace(OPTIONS, updates=2), tmp_path / "run")
    assert main(["runs", str(tmp_path)]) == 0
    assert "cache" in capsys.readouterr().out
    with pytest.raises(ConfigError, match="continue with plait cache train MODEL"):
        train_run(json.loads((tmp_path / "run" / "config.json").read_text()), folder=tmp_path / "other")
    with pytest.raises(CheckpointError, match="not cache-scores"):
        train_scores(language, texts(seed=2), replace(OPTIONS, updates=2), tmp_path / "run", resume=True)
    _, repeated = train_scores(language, pieces, replace(OPTIONS, updates=2), tmp_path / "run")
    assert repeated.already


def test_scores_can_begin_with_those_of_another_recipe(tmp_path):
    language, pieces = reader(), texts()
    first, _ = train_scores(language, pieces, OPTIONS)
    start = {name: value.clone() for name, value in first.state_dict().items()}
    learner = ScoresLearner(language, pieces, replace(OPTIONS, recipe="eviction"), first)
    assert all(torch.equal(value, start[name]) for name, value in learner.network.state_dict().items())
    learner.advance(1, None)
    assert torch.equal(learner.network.state_dict()["heads.0.mean"], start["heads.0.mean"])
    assert not torch.equal(learner.network.heads["0"].linear, start["heads.0.linear"])
    with pytest.raises(ConfigError, match="start: expected scores of width 9, got width 4"):
        train_scores(language, pieces, replace(OPTIONS, width=9), start=first)


def test_minutes_become_updates_that_a_resumed_run_keeps(tmp_path, monkeypatch):
    language, pieces = reader(), texts()
    _, fitted = train_scores(language, pieces, OPTIONS, tmp_path / "run", minutes=0.01)
    updates = json.loads((tmp_path / "run" / "config.json").read_text())["recipe"]["updates"]
    assert fitted.summary["updates"] == updates >= 1
    _, again = train_scores(language, pieces, OPTIONS, tmp_path / "run", minutes=5, resume=True)
    assert again.already


@pytest.mark.parametrize(
    ("update", "evaluation", "compilation", "minutes"),
    [(1.0, 8.0, 0.0, 2.0), (0.1, 0.2, 10.0, 1.0), (1.0, 0.1, 20.0, 1.0), (2.0, 8.0, 9.0, 2.0)],
)
def test_a_run_of_minutes_takes_as_many(update, evaluation, compilation, minutes, monkeypatch):
    """The plan counts what it spent itself, and evaluations at what they cost."""
    clock = [0.0]
    seen = set()

    def advance(learner, number, stop):
        size = (number - 1) % len(learner.options.sizes)
        clock[0] += update + (compilation if size not in seen else 0)
        seen.add(size)
        return Step({"loss": 1.0, "score": 0.0, "gradient_norm": 1.0})

    def evaluate(learner, final):
        clock[0] += 0 if final else evaluation
        return {} if final else {"held_out": {"loss": 1.0, "score": 0.0}}

    monkeypatch.setattr(training, "time", types.SimpleNamespace(monotonic=lambda: clock[0]))
    monkeypatch.setattr(ScoresLearner, "advance", advance)
    monkeypatch.setattr(ScoresLearner, "evaluate", evaluate)
    _, fitted = train_scores(
        reader(), texts(), replace(OPTIONS, sizes=(1.0, 2.0), held_out=2), minutes=minutes
    )
    assert fitted.summary["updates"] > 1
    assert 0.75 * 60 * minutes <= clock[0] <= 60 * minutes + update + evaluation


def test_several_processes_are_refused(monkeypatch):
    monkeypatch.setattr(session, "join", lambda device: contextlib.nullcontext(Group(size=2)))
    with pytest.raises(ConfigError, match="cache: expected one process, got 2; leave torchrun out"):
        train_scores(reader(), texts(), OPTIONS)


def test_numbers_that_are_not_finite_stop_the_run(monkeypatch):
    wrong = {"loss": float("nan"), "score": 0.0, "gradient_norm": 1.0}
    monkeypatch.setattr(EvictionRecipe, "update", lambda *_: wrong)
    with pytest.raises(DivergedError, match="update 1: the loss is not finite"):
        train_scores(reader(), texts(), replace(OPTIONS, recipe="eviction"))


def test_every_document_comes_once_an_epoch():
    learner = ScoresLearner(reader(), texts(), replace(OPTIONS, seed=5))
    count = len(learner.train_ids)
    assert count == 18
    rows = [tuple(learner._document(i).tolist()) for i in range(2 * count)]
    assert set(rows[:count]) == set(rows[count:]) == {tuple(ids.tolist()) for ids in learner.train_ids}
    assert rows[:count] != rows[count:]
    assert not {tuple(ids.tolist()) for ids in learner.held_out_ids}.intersection(rows)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"recipe": "usages"}, "unknown recipe 'usages': did you mean 'usage'"),
        ({"updates": 0}, "updates: expected at least 1"),
        ({"batch_size": 5000}, "batch_size: expected at most 4,096"),
        ({"window": 0}, "window: expected at least 1"),
        ({"lr": -1.0}, "lr: expected at least 0"),
        ({"tune": "lora"}, "tune: expected recipe eviction, or full for a control, with lora, got usage"),
        ({"recipe": "full"}, "recipe: full is a control of --tune lora"),
        ({"capacity": 32}, "context: expected at least sinks \\+ 2 · window \\+ capacity = 41 tokens"),
    ],
    ids=str,
)
def test_bad_options(options, match):
    with pytest.raises(ConfigError, match=match) as error:
        train_scores(reader(), texts(), replace(OPTIONS, **options))
    assert "\n" not in str(error.value)


# The command


@pytest.fixture
def folder(tmp_path):
    """A model with a tokenizer of one token a word, and a text of it."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = Tokenizer(models.WordLevel({f"w{i}": i for i in range(32)}, unk_token="w31"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    reader().model.save_pretrained(tmp_path / "model")
    transformers.PreTrainedTokenizerFast(tokenizer_object=words).save_pretrained(tmp_path / "model")
    lines = (" ".join(f"w{i}" for i in piece.tokens) for piece in texts())
    (tmp_path / "text.txt").write_text("\n".join(lines))
    return tmp_path


def command(folder, *more):
    options = [
        "--window",
        "4",
        "--capacity",
        "4",
        "--sinks",
        "1",
        "--context",
        str(LENGTH),
        "--device",
        "cpu",
        "--facts",
        "0",
    ]
    text = ["--text", str(folder / "text.txt"), "--out", str(folder / "scores")]
    return main(["cache", "train", str(folder / "model"), *text, *options, *more])


def test_the_command_writes_scores_that_a_cache_takes(folder, capsys):
    assert command(folder, "--updates", "3", "--width", "4") == 0
    out, err = capsys.readouterr()
    assert "held-out explained variance" in out
    assert "scores='" in out
    assert "update 3/3" in err
    model = transformers.AutoModelForCausalLM.from_pretrained(folder / "model").eval()
    cache = BoundedCache(model, window=4, capacity=4, sinks=1, scores=folder / "scores")
    assert cache.policy == "learned"
    started = ("--start", str(folder / "scores"), "--width", "4", "--out", str(folder / "more"))
    assert command(folder, *started, "--recipe", "eviction", "--updates", "1", "--quiet", "--json") == 0
    data = json.loads(capsys.readouterr().out)
    assert data["trained"]["recipe"] == "eviction"
    assert data["trained"]["documents"] == 20
    assert data["trained"]["lr"] == EvictionRecipe.lr


@pytest.mark.parametrize(
    ("more", "match"),
    [
        (["--minutes", "1", "--updates", "1"], "minutes: expected either --minutes or --updates"),
        (["--context", "9"], "context: expected at least sinks"),
        (["--context", "4000"], "text: expected a file of at least 4,000 tokens"),
        (["--recipe", "oracle"], "--recipe: expected"),
        (["--start", "missing"], "scores.json: expected a folder of trained scores"),
        (["--minutes", "-1"], "minutes: expected at least 0"),
    ],
    ids=lambda x: " ".join(x) if isinstance(x, list) else "",
)
def test_the_command_refuses_in_one_line(folder, more, match, capsys):
    assert command(folder, *more) == 2
    err = capsys.readouterr().err
    assert match in err
    assert err.count("\n") == 1
    assert not (folder / "scores").exists()


def test_texts_too_few_to_hold_one_out():
    with pytest.raises(DataError, match="expected at least 2 documents"):
        train_scores(reader(), texts(1), OPTIONS)


@pytest.mark.parametrize(("updates", "shares"), [(40, (1 / 2, 39 / 40, 38 / 40)), (10, (1, 9 / 10, 8 / 10))])
def test_the_learning_rate_rises_to_its_largest_value_and_falls(updates, shares):
    learner = ScoresLearner(reader(), texts(), replace(OPTIONS, recipe="usage", updates=updates, lr=0.02))
    rates = []
    for number in range(1, 4):
        learner.advance(number, lambda: None)
        rates.append(learner.optimizer.param_groups[0]["lr"])
    assert rates == pytest.approx([0.02 * share for share in shares])
