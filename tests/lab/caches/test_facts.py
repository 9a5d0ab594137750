"""Facts in training documents can be answered from the text, and are none that the evaluation hides."""

import itertools
import random
import re
from dataclasses import replace

import pytest
import torch

from plait.errors import ConfigError

pytest.importorskip("transformers", reason="pip install 'plait[hf]'")
from plait.lab.caches.facts import FACTS, FactWriter
from plait.lab.caches.future_use import UsageRecipe
from plait.lab.caches.hiding import SentenceEnds, put_into
from plait.lab.caches.needles import NEEDLES
from plait.lab.caches.texts import documents
from plait.lab.caches.training import ScoresLearner, ScoresOptions

OPTIONS = ScoresOptions(window=40, capacity=40, updates=2, batch_size=4, width=4, held_out=2, facts=0.5)


def answers_of(written, tokenizer):
    """Return each answer with the text before it."""
    pairs, begin = [], 0
    for is_answer, run in itertools.groupby(range(len(written.tokens)), lambda i: written.answers[i]):
        begin, end = (run := list(run))[0], run[-1] + 1
        if is_answer:
            pairs.append(
                (tokenizer.decode(written.tokens[:begin]), tokenizer.decode(written.tokens[begin:end]))
            )
    return pairs


def test_every_answer_is_in_the_text_before_its_question(lm, texts):
    prose = documents(texts, lm.tokenizer, 900)[0].tokens
    writer, count, at_the_end = FactWriter(lm.tokenizer), 0, 0
    for number in range(30):
        written = writer.write(prose, random.Random(number))
        assert writer.write(prose, random.Random(number)) == written
        assert len(written.tokens) == len(written.answers) == len(prose)
        for before, answer in answers_of(written, lm.tokenizer):
            head, question = before.rsplit("\n\n", 1)
            assert answer.startswith(" ")
            assert answer.strip() in head
            assert answer.strip() not in question
            count += 1
        at_the_end += written.answers[-1]
    assert count > 40
    assert 10 < at_the_end <= 30
    different = {tuple(writer.write(prose, random.Random(i)).tokens) for i in range(10)}
    assert len(different) == 10


@pytest.mark.parametrize("name", FACTS)
def test_formats_are_not_those_of_the_needles(name):
    rng, wording = random.Random(0), FACTS[name]
    texts = [
        text.format(s=wording.subject(rng), v=wording.value(rng))
        for text in (*wording.statements, *wording.endings, *wording.questions)
        for _ in range(50)
    ]
    needles = [needle(random.Random(i)) for needle in NEEDLES.values() for i in range(50)]
    sentences = {sentence for facts in needles for sentence in (*facts.sentences, facts.question)}
    assert not sentences.intersection(texts)
    for text in texts:
        assert not re.search(r"magic|number of|\bVAR\b|stands? for", text)
        assert not re.search(r"(?<![\w.-])\d{5}(?![\w.-])", text)


def test_a_document_too_short_for_a_fact_is_refused(lm):
    with pytest.raises(ConfigError, match=r"facts: expected documents long enough for one, got 30 tokens"):
        FactWriter(lm.tokenizer).write([5] * 30, random.Random(0))


def test_sentences_go_behind_sentences(lm):
    tokens = lm.tokenizer("The bird walks. The river was cold.\nIt", add_special_tokens=False)["input_ids"]
    ends = SentenceEnds(lm.tokenizer)(tokens)
    for end in ends:
        assert lm.tokenizer.decode(tokens[:end]).rstrip().endswith((".", "\n"))
    text, begins = put_into(tokens, [[7], [8]], [0.0, 0.01], ends)
    assert begins == [ends[0], ends[0] + 1]
    assert text == [*tokens[: ends[0]], 7, 8, *tokens[ends[0] :]]


def test_facts_are_drawn_for_each_document_each_time_it_comes(lm, texts, monkeypatch):
    pieces = documents(texts, lm.tokenizer, 500)
    seen = []
    monkeypatch.setattr(UsageRecipe, "update", lambda _, scores, optimizer, *batch: seen.append(batch) or {})
    for _ in range(2):
        learner = ScoresLearner(lm, pieces, OPTIONS)
        for number in range(1, 9):
            learner.advance(number, None)
    first, again = seen[:8], seen[8:]
    assert all(
        torch.equal(a, b) for x, y in zip(first, again, strict=True) for a, b in zip(x, y, strict=True)
    )
    rows = [row.any().item() for _, answers in first for row in answers]
    assert 0.2 < sum(rows) / len(rows) < 0.8
    changed = [tuple(ids.tolist()) for batch in first for ids, mask in zip(*batch, strict=True) if mask.any()]
    assert len(set(changed)) == len(changed)
    learner = ScoresLearner(lm, pieces, replace(OPTIONS, facts=0.0))
    learner.advance(1, None)
    assert not seen[-1][1].any()


@pytest.mark.parametrize(("share", "match"), [(1.5, "facts: expected a share"), (-1.0, "facts: expected at")])
def test_a_share_is_one(share, match):
    with pytest.raises(ConfigError, match=match):
        replace(OPTIONS, facts=share).check(500)
