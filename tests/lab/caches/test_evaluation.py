"""Evaluation of bounded caches: what a cell measures, and an archive that is completed cell by cell."""

import html
import json
import math
import re

import pytest
import torch
from torch.nn.functional import cross_entropy

from plait.errors import BusyError, ConfigError, DataError

pytest.importorskip("transformers", reason="pip install 'plait[hf]'")
from plait.hf import BoundedCache, Scores
from plait.lab.caches import evaluation
from plait.lab.caches.evaluation import FULL, Settings, Variant, cache_bytes, evaluate, full_bytes, make_cache
from plait.lab.caches.texts import documents
from plait.lab.report.cache_page import read_results, write_cache_page
from plait.lab.runs.folder import Journal, locked

SMALL = Settings(
    context=96, prefix=40, documents=3, needles=2, kinds=("one",), needle_context=200, batch=2, seed=1
)
POLICIES = ["sinks", "random", "knorm", "keydiff", "h2o", "tova", "earned"]
CACHES = [Variant(FULL), *(Variant.of(policy, 12, None, 2) for policy in POLICIES)]


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    """Chunks that end inside the prefix, at its end and behind it."""
    monkeypatch.setattr(evaluation, "CHUNK", 20)


@pytest.fixture(scope="module")
def finished(lm, texts, tmp_path_factory):
    """The folder of an evaluation that ran to its end."""
    folder = tmp_path_factory.mktemp("evaluations") / "whole"
    assert evaluate(lm, texts, CACHES, SMALL, folder) == 3 * len(CACHES)
    return folder


def cells(folder):
    """Return the cells of an archive without what differs from run to run."""
    records = [record for record in Journal.read(folder / "results.jsonl") if "cell" in record]
    for record in records:
        del record["seconds"], record["processor_seconds"]
    return {json.dumps(record.pop("cell")): record for record in records}


def test_losses_are_those_of_the_definition(lm, texts, finished):
    """Token by token, one document at a time, with the probabilities of the same tokens."""
    _, _, scored = read_results(finished)
    chosen = documents(texts, lm.tokenizer, 200)
    chosen = [chosen[i * len(chosen) // 3] for i in range(3)]
    for variant, one in zip(CACHES, scored, strict=True):
        for number, document in list(enumerate(chosen))[-1:]:
            cache, ids, losses = make_cache(lm.model, variant, 1), torch.tensor([document.tokens[:96]]), []
            with torch.no_grad():
                for t in range(95):
                    logits = lm.model(ids[:, t : t + 1], past_key_values=cache).logits[:, -1]
                    losses.append(float(cross_entropy(logits, ids[:, t + 1])))
            # keys of one word have one norm in the first layer, but for rounding
            close = 0.01 if variant.policy == "knorm" else 2e-5
            assert one.policy == variant.policy
            assert one.losses[number] == pytest.approx(sum(losses[39:]) / 56, abs=close)
            assert one.blocks[number] == pytest.approx([one.losses[number]], abs=1e-4)


def test_the_full_cache_is_a_pass_without_a_cache(lm, texts, finished):
    full = read_results(finished)[2][0]
    ids = torch.tensor([documents(texts, lm.tokenizer, 200)[0].tokens[:96]])
    with torch.no_grad():
        logits = lm.model(ids, use_cache=False).logits[0, 39:-1]
    assert full.losses[0] == pytest.approx(float(cross_entropy(logits, ids[0, 40:])), abs=2e-5)


def test_slots_for_the_whole_text_are_the_full_cache(lm, texts, tmp_path):
    settings = Settings(context=96, prefix=40, documents=2, needles=0, batch=2)
    evaluate(lm, texts, [Variant(FULL), Variant.of("h2o", 96)], settings, tmp_path)
    full, bounded = read_results(tmp_path)[2]
    assert bounded.losses == pytest.approx(full.losses, abs=2e-5)


def test_bytes_are_those_of_one_text(lm, finished):
    scored = read_results(finished)[2]
    states = 2 * 1 * 8 * 4 * 2  # layers, KV heads, head size, bytes, keys and values
    assert scored[0].bytes == {"text": 95 * states, "one": 211 * states}
    slots = 12 * (states + 2 * (8 + 1 + 4))  # with birth, mark of a sink and rank
    assert {tuple(one.bytes.items()) for one in scored[1:]} == {(("text", slots), ("one", slots))}


def test_the_tokens_kept_are_counted_by_heads(lm, finished):
    scored = read_results(finished)[2]
    assert scored[0].kept is None
    for one in scored[1:]:
        assert one.kept["heads"] == 2
        assert sum(one.kept["counts"]) == 2 * 12
        assert one.kept["counts"][:2] == [2, 2]  # sinks
        assert one.kept["counts"][-3:] == [2, 2, 2]  # the window, a quarter of the slots
    assert scored[1].kept["counts"][-10:] == [2] * 10  # the policy sinks keeps the latest


def test_answers_are_generated_greedily(lm, texts, tmp_path, finished):
    for cell, record in cells(finished).items():
        cell = json.loads(cell)
        if cell["task"] == "text" or cell["policy"] not in (FULL, "tova"):
            continue
        variant = next(one for one in CACHES if one.policy == cell["policy"])
        prose = documents(texts, lm.tokenizer, 200)
        prose = [prose[i * len(prose) // 2] for i in range(2)]
        for number, result in zip(cell["numbers"], record["results"], strict=True):
            needle = evaluation.hide("one", number, 1, 200, prose[number], lm.tokenizer)
            ids = lm.model.generate(
                torch.tensor([needle.prompt]),
                attention_mask=torch.ones(1, 200, dtype=torch.int64),
                past_key_values=make_cache(lm.model, variant, 1),
                max_new_tokens=evaluation.ANSWER_TOKENS,
                do_sample=False,
                pad_token_id=0,
            )
            assert result["text"] == lm.tokenizer.decode(ids[0, 200:], skip_special_tokens=True)
            assert result["answer"] == needle.answer


def test_an_answer_that_is_right_is_counted(lm, texts, tmp_path, monkeypatch):
    """A model that knows every second answer by heart."""
    answers = iter([" 12345.", " 99999."])
    needle = evaluation.hide
    fixed = "12345"
    monkeypatch.setattr(
        evaluation,
        "hide",
        lambda *args: evaluation.Needle("one", 0, needle(*args).prompt, fixed, (0.5,)),
    )
    spoken = [lm.tokenizer(text)["input_ids"] for text in answers]
    spoken = [tokens + [0] * 20 for tokens in spoken]
    step = iter(range(100))

    def read_in(model, ids, cache, keep=1):
        now = 0 if ids.shape[1] > 1 else next(step) + 1
        logits = torch.zeros(len(ids), 1, len(lm.tokenizer))
        for row in range(len(ids)):
            logits[row, 0, spoken[row][now]] = 1
        return logits

    monkeypatch.setattr(evaluation, "read_in", read_in)
    monkeypatch.setattr(evaluation, "cache_bytes", lambda model, cache: {"keys": 2})
    settings = Settings(documents=0, needles=2, kinds=("one",), needle_context=200, batch=2)
    evaluate(lm, texts, [Variant(FULL)], settings, tmp_path)
    (one,) = read_results(tmp_path)[2]
    assert one.right == {"one": {0: True, 1: False}}


# The archive


class Stopped(Exception):
    pass


@pytest.mark.parametrize("after", [0, 5])
def test_a_stopped_evaluation_continues_to_the_same_archive(lm, texts, tmp_path, finished, after):
    some = [CACHES[0], CACHES[-1]]

    def stop(done, total, label):
        if done == after:
            raise Stopped

    with pytest.raises(Stopped):
        evaluate(lm, texts, some, SMALL, tmp_path, stop)
    with (tmp_path / "results.jsonl").open("a") as file:
        file.write('{"cell": {"task": "te')  # a killed writer's line
    assert evaluate(lm, texts, some, SMALL, tmp_path) == 6 - after
    assert evaluate(lm, texts, some, SMALL, tmp_path) == 0
    present, expected = cells(tmp_path), cells(finished)
    assert len(present) == 6
    assert present == {key: expected[key] for key in present}


def test_policies_and_slots_can_be_added(lm, texts, tmp_path):
    settings = Settings(context=96, prefix=40, documents=2, needles=0)
    assert evaluate(lm, texts, CACHES[:1], settings, tmp_path) == 1
    assert evaluate(lm, texts, [CACHES[0], Variant.of("tova", 9)], settings, tmp_path) == 1
    assert evaluate(lm, texts, [Variant.of("tova", 10)], settings, tmp_path) == 1
    assert [one.label for one in read_results(tmp_path)[2]] == ["full", "tova, 9 slots", "tova, 10 slots"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [({"seed": 2}, "seed was 1 and is 2"), ({"context": 90}, "context was 96 and is 90")],
)
def test_a_folder_of_other_settings_is_refused(lm, texts, finished, changes, message):
    with pytest.raises(ConfigError, match=message):
        evaluate(lm, texts, CACHES, Settings(**{**vars(SMALL), **changes}), finished)


def test_a_folder_of_other_texts_or_in_use_is_refused(lm, texts, finished, tmp_path):
    with pytest.raises(ConfigError, match="has results of other texts"):
        evaluate(lm, texts[:1], CACHES, SMALL, finished)
    with locked(finished), pytest.raises(BusyError):
        evaluate(lm, texts, CACHES, SMALL, finished)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ConfigError, match="expected a new folder or one of plait cache eval"):
        evaluate(lm, texts, CACHES, SMALL, tmp_path)


def test_trained_scores_are_cells_of_their_own(lm, texts, tmp_path):
    settings = Settings(context=96, prefix=40, documents=2, needles=0)
    losses = []
    for seed in (1, 2):
        scores = Scores(lm.model, window=4, capacity=6, sinks=2, width=4, seed=seed)
        for head in scores.heads.values():
            for weight in head.parameters():
                torch.nn.init.normal_(weight, generator=torch.Generator().manual_seed(seed))
        evaluate(lm, texts, [Variant.of("learned", 12, 4, 2, scores, f"{seed}")], settings, tmp_path)
        losses.append(read_results(tmp_path)[2][-1].losses)
    assert len(cells(tmp_path)) == 2
    assert losses[0] != losses[1]
    evaluate(lm, texts, [Variant.of("sinks", 12, window, 2) for window in (4, 5)], settings, tmp_path)
    rows = write_cache_page(tmp_path).tables[0].rows
    names = ["learned (scores 1)", "learned (scores 2)", "sinks (window 4)", "sinks (window 5)"]
    assert [row[0] for row in rows] == names


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"context": 600}, "expected at most 512 tokens, this model's positions, got 600"),
        ({"needle_context": 505}, "this model's positions, got 517"),
        ({"prefix": 96}, "expected fewer tokens than the context of 96, got 96"),
        ({"documents": 0, "needles": 0}, "nothing to measure"),
        ({"batch": 0}, "batch: expected at least 1"),
    ],
)
def test_sizes_that_do_not_fit_are_refused_before_the_work(lm, texts, tmp_path, changes, message):
    with pytest.raises(ConfigError, match=message):
        evaluate(lm, texts, CACHES, Settings(**{**vars(SMALL), **changes}), tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_too_little_text_is_refused_before_the_work(lm, texts, tmp_path):
    with pytest.raises(DataError, match="expected 100 documents of 200 tokens, got"):
        evaluate(lm, texts, CACHES, Settings(**{**vars(SMALL), "documents": 100}), tmp_path / "new")
    settings = Settings(**{**vars(SMALL), "kinds": ("eight",)})
    with pytest.raises(DataError, match="take a larger --needle-context"):
        evaluate(lm, texts, CACHES, settings, tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_slots_are_divided_into_sinks_window_and_the_rest():
    assert Variant.of("h2o", 256).window == 64
    assert Variant.of("h2o", 5, None, 4).window == 1
    assert Variant.of("h2o", 256, 100, 8).key == {"policy": "h2o", "slots": 256, "window": 100, "sinks": 8}
    with pytest.raises(ConfigError, match=r"slots: expected at least sinks \+ 1 = 5, got 4"):
        Variant.of("h2o", 4)
    with pytest.raises(ConfigError, match="window: expected at most slots - sinks = 12, got 13"):
        Variant.of("h2o", 16, 13)


def test_the_size_of_the_full_cache_is_known_from_a_bounded_one(lm):
    ids = torch.arange(50)[None] + 2
    caches = [make_cache(lm.model, CACHES[0]), BoundedCache(lm.model, window=3, capacity=2, sinks=1)]
    for cache in caches:
        lm.model(ids, past_key_values=cache)
    total = sum(cache_bytes(lm.model, caches[0]).values())
    assert [full_bytes(lm.model, cache) for cache in caches] == [total, total]


# The page


def test_the_page_and_the_readme_hold_every_result(finished):
    written = write_cache_page(finished)
    page, readme = (path.read_text() for path in written.files)
    quality = written.tables[0]
    assert [row[0] for row in quality.rows] == [FULL, *POLICIES]
    full = read_results(finished)[2][0]
    assert full.perplexity == pytest.approx(math.exp(sum(full.losses.values()) / 3))
    assert quality.rows[0][2] == f"{full.perplexity:.2f}"
    for row in quality.rows:
        for value in row:
            assert str(value if value is not None else "–") in page
            assert str(value if value is not None else "–") in readme
    assert page.count("<svg") == 3  # perplexity, needles, loss by position
    assert page.count('<div class="text">') == len(POLICIES)
    assert "http" not in page.replace("http://www.w3.org", "")
    text = "".join(json.loads((finished / "text.json").read_text())["tokens"][:95])
    shown = re.findall(r'<div class="text">(.*?)</div>', page, re.DOTALL)
    shades = re.findall(r"^\.(k\d+) ", page, re.MULTILINE)
    assert set(re.findall(r'class="(k\d+)"', page)) <= set(shades) == {f"k{level}" for level in range(11)}
    assert {html.unescape(re.sub(r"<.*?>", "", part)) for part in shown} == {text}


def test_a_page_needs_only_the_archive(finished, tmp_path):
    for name in ("config.json", "results.jsonl"):
        (tmp_path / name).write_bytes((finished / name).read_bytes())
    page = write_cache_page(tmp_path).files[0].read_text()
    assert '<div class="text">' not in page
    (tmp_path / "results.jsonl").write_text("")
    with pytest.raises(ConfigError, match="expected results, got none yet"):
        write_cache_page(tmp_path)
    (tmp_path / "config.json").unlink()
    with pytest.raises(ConfigError, match=r"got one without config\.json"):
        write_cache_page(tmp_path)
