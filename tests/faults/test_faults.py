"""A sample of every kind of fault in the default tier, more of them in the slow one; seeds are printed, and
`python -m tests.faults` repeats a case or goes on by hand."""

import pytest

from tests.faults.__main__ import run

pytest.importorskip("starlette")
pytest.importorskip("minigrid")
SAMPLE = {"damage": 24, "hostile": 12, "hugging-face": 15, "kill": 5, "signals": 3}
MORE = {"damage": 300, "hostile": 150, "hugging-face": 500, "kill": 40, "signals": 20}


@pytest.mark.parametrize("kind", SAMPLE)
def test_a_sample(kind):
    if kind == "hugging-face":
        pytest.importorskip("transformers", reason="the folders are for its models")
    assert run(kind, seed=1, count=SAMPLE[kind]) == 0


@pytest.mark.slow
@pytest.mark.parametrize("kind", MORE)
@pytest.mark.timeout(3600)
def test_more(kind):
    if kind == "hugging-face":
        pytest.importorskip("transformers", reason="the folders are for its models")
    assert run(kind, seed=2, count=MORE[kind]) == 0


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_runner_and_its_workers_are_killed():
    assert run("executor", seed=1, count=3) == 0


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_cluster_and_its_workers_are_killed():
    pytest.importorskip("ray")
    assert run("ray", seed=1, count=2) == 0
