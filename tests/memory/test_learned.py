"""A memory that learns what to keep: what begins it, what trains it, what it refuses."""

import pytest
import torch

import plait
from plait import ElmanCell, RelevancyMemory, SelfAttentive
from plait.errors import CheckpointError, ConfigError, PlaitError
from plait.lab.tasks import CopyTask
from plait.lab.training.description import Network
from plait.models import MODELS


def learned(name="relrnn", **options):
    return MODELS[name](3, 8, window=3, capacity=2, **{"relevance": "learned", **options})


def test_an_earned_memory_draws_no_number_more_and_has_no_weight_more():
    torch.manual_seed(5)
    plain = plait.RelRNN(3, 8, window=3, capacity=2)
    after = torch.rand(())
    torch.manual_seed(5)
    named = plait.RelRNN(3, 8, window=3, capacity=2, relevance="earned")
    assert torch.equal(torch.rand(()), after)
    assert [*plain.state_dict()] == [*named.state_dict()]
    assert "relevance" not in plain.options()
    assert "noise" not in plain.options()


@pytest.mark.parametrize("name", ["relrnn", "rellstm", "relgru"])
def test_reading_trains_the_score(name):
    model = learned(name)
    output, _ = model(torch.randn(30, 4, 3))
    output[-1].square().sum().backward()
    gradient = model.layers[0].scorer.worth.grad
    assert gradient.abs().max() > 0
    assert model.options()["relevance"] == "learned"


def test_a_learned_score_keeps_what_comes_late_and_an_earned_one_what_came_first():
    """The input says which steps matter; g is set to read it off the state."""
    x = torch.zeros(60, 1, 3)
    wanted = [40, 43]
    x[wanted, :, 2] = 1.0
    kept = {}
    for relevance in ("earned", "learned"):
        torch.manual_seed(0)
        model = learned(relevance=relevance).eval()
        layer = model.layers[0]
        with torch.no_grad():
            layer.cell.weight_hh.zero_()
            layer.cell.weight_ih[0] = torch.tensor([0.0, 0.0, 3.0])
            if relevance == "learned":
                layer.scorer.worth[0] = 5.0
        _, state = model(x)
        kept[relevance] = sorted(state.memory[0].born[0, 3:].tolist())
    assert kept == {"earned": [0, 1], "learned": wanted}


def test_noise_is_drawn_while_training_from_the_seed_and_not_in_evaluation():
    model, x = learned(noise=2.0), torch.randn(40, 4, 3)

    def kept():
        torch.manual_seed(3)
        return model(x)[1].memory[0].born

    assert torch.equal(kept(), kept())
    quiet = model.eval()(x)[1].memory[0].born
    assert not torch.equal(model.train()(x)[1].memory[0].born, quiet)
    assert torch.equal(model.eval()(x)[1].memory[0].born, quiet)


def test_a_carried_state_is_rated_by_the_weights_of_today():
    """After an optimiser step the scores of old slots are those of the new g."""
    torch.manual_seed(0)
    model, x = learned(noise=0.0).eval(), torch.randn(12, 2, 3)
    _, state = model(x)
    with torch.no_grad():
        model.layers[0].scorer.worth.normal_()
    for backend in ("reference", "torch", "auto"):
        model.layers[0].backend = backend
        _, _, (trace,) = model(x[:1], state, need_trace=True)
        slots, worth = state.memory[0].slots, model.layers[0].scorer.worth
        kept = trace.born[0, :, 3:] == state.memory[0].born[:, 3:]  # what did not change places
        expected = (slots @ worth)[:, 3:]
        assert kept.any()
        torch.testing.assert_close(trace.relevance[0, :, 3:][kept], expected[kept])


def test_capacity_zero_is_the_window_and_loads_strictly():
    model = plait.RelRNN(3, 8, window=3, capacity=0, relevance="learned")
    assert model.layers[0].scorer.worth is None
    model.load_state_dict(plait.RelRNN(3, 8, window=3, capacity=0).state_dict())


def test_a_scan_without_a_fused_twin_learns_too():
    model = learned(truncate=7)
    output, _ = model(torch.randn(25, 2, 3))
    output.sum().backward()
    assert model.layers[0].scorer.worth.grad.abs().max() > 0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"relevance": "lerned"}, "did you mean 'learned'"),
        ({"relevance": "learned", "noise": -0.5}, "noise: expected at least 0, got -0.5"),
        ({"relevance": "earned", "noise": 0.5}, "noise: expected none where relevance is earned, got 0.5"),
    ],
)
def test_what_makes_no_sense_is_one_line(options, words):
    with pytest.raises(PlaitError, match=words):
        learned(**options)


def worth_gradient(usage, backend="reference", **options):
    """Of a loss on the last output alone: the model, its inputs and trace, dL/dh_T, and every gradient."""
    torch.manual_seed(3)
    model = learned(usage=usage, noise=0.0, backend=backend, **options).double()
    torch.nn.init.normal_(model.layers[0].scorer.worth)
    x, weights = torch.randn(14, 2, 3, dtype=torch.float64), torch.randn(2, 8, dtype=torch.float64)
    output, _, (trace,) = model(x, need_trace=True)
    (output[-1] * weights).sum().backward()
    return model, x, output.detach(), trace, weights, {n: p.grad for n, p in model.named_parameters()}


@pytest.mark.parametrize("backend", ["reference", "torch"])
def test_usage_draws_the_score_to_what_the_next_answer_reads(backend):
    """One step serves the last answer, the one before it: its part is written out here."""
    (*_, without), (*_, half) = worth_gradient(0.0, backend), worth_gradient(0.5, backend)
    model, x, output, trace, weights, whole = worth_gradient(1.0, backend)
    layer, found = model.layers[0], "layers.0.scorer.worth"
    assert all(torch.equal(whole[name], without[name]) for name in whole if name != found), (
        "it reaches g alone"
    )
    extra = whole[found] - without[found]
    torch.testing.assert_close(half[found] - without[found], extra / 2)
    states = output.transpose(0, 1).gather(1, trace.born[-2].unsqueeze(2).expand(2, 5, 8))  # what was held
    energies = trace.weights[-2].log().requires_grad_()
    context = (energies.softmax(1).unsqueeze(2) * states).sum(1)
    cell = layer.cell
    asked = (
        cell.weight_ih @ x[-1].t()
        + cell.bias.unsqueeze(1)
        + cell.weight_hh @ (layer.mix * (output[-2] + context)).t()
    )
    (torch.tanh(asked).t() * weights).sum().backward()
    felt = energies.grad.abs()
    used = weights.norm(dim=1, keepdim=True) * felt / felt.sum(1, keepdim=True)
    used, kept = used[:, 3:], states[:, 3:]
    likely = (kept @ layer.scorer.worth).softmax(1)
    expected = ((likely * used.sum(1, keepdim=True) - used).unsqueeze(2) * kept).sum((0, 1))
    torch.testing.assert_close(extra, expected.detach())


@pytest.mark.parametrize(("kept", "asked"), [("earned", "learned"), ("learned", "earned")])
def test_a_checkpoint_of_the_other_kind_is_one_line(kept, asked, tmp_path):
    def network(relevance):
        return Network(plait.RelRNN(10, 4, window=3, capacity=2, relevance=relevance), 9)

    numbers = {"updates": 1, "batch_size": 2, "evaluate_on": 2, "device": "cpu"}
    plait.fit(network(kept), CopyTask(3), folder=tmp_path / "run", **numbers)
    with pytest.raises(CheckpointError, match=r"does not fit the model.*scorer\.worth") as caught:
        plait.load(tmp_path / "run", model=network(asked))
    assert "\n" not in str(caught.value)


def test_a_scorer_of_ones_own_must_have_a_worth():
    memory = RelevancyMemory(3, 2, relevance="learned")
    with pytest.raises(ConfigError, match="expected a parameter `worth`"):
        SelfAttentive(ElmanCell(3, 8), memory, scorer=torch.nn.Identity())


def test_usage_counts_in_a_truncated_layer_too():
    """Truncated beyond its length it walks step by step, and has the gradients of the scan."""
    scanned, walked, without = (
        worth_gradient(usage, **options)[-1]
        for usage, options in ((1.0, {}), (1.0, {"truncate": 99}), (0.0, {"truncate": 99}))
    )
    for name, gradient in scanned.items():
        torch.testing.assert_close(walked[name], gradient)
    assert not torch.allclose(walked["layers.0.scorer.worth"], without["layers.0.scorer.worth"])
