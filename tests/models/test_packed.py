"""A state as one tensor: given back exactly, empty where it is zero, and in the place of an `nn.LSTM`'s."""

import pytest
import torch
from torch.utils._pytree import tree_leaves

import plait
from plait.errors import ConfigError, ShapeError
from plait.models.packed import Packed, packed_size, unpack
from plait.models.state import DIGIT

OPTIONS = {"window": 2, "capacity": 3}
LAYERS = {
    "lstm": lambda **more: plait.LSTM(3, 8, **more),
    "gru": lambda **more: plait.GRU(3, 8, **more),
    "relrnn": lambda **more: plait.RelRNN(3, 8, **OPTIONS, **more),
    "rellstm": lambda **more: plait.RelLSTM(3, 8, **OPTIONS, **more),
    "relgru, learned": lambda **more: plait.RelGRU(3, 8, **OPTIONS, relevance="learned", noise=0.0, **more),
    "transformer": lambda **more: plait.Transformer(
        3, 8, heads=2, memory="relevancy", noise=0.0, **OPTIONS, **more
    ),
    "unilstm": lambda **more: plait.UniLSTM(3, 8, **OPTIONS, every=2, **more),
}


def same(one, other):
    leaves = [[leaf for leaf in tree_leaves(state) if leaf is not None] for state in (one, other)]
    pairs = zip(*leaves, strict=True)
    return all(torch.equal(a, b) and a.dtype == b.dtype for a, b in pairs)


@pytest.mark.parametrize("num_layers", [1, 2])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("name", LAYERS)
def test_what_was_packed_is_given_back(name, dtype, num_layers):
    layer = LAYERS[name](num_layers=num_layers).to(dtype)
    state = layer(torch.randn(9, 4, 3, dtype=dtype))[1].detach()
    packed = state.pack()
    assert packed.shape == (1, 4, packed_size(layer))
    assert packed.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    assert same(unpack(packed, layer), state)
    assert same(unpack(state.rows(torch.tensor([2])).pack(), layer), state.rows(torch.tensor([2])))


@pytest.mark.parametrize("name", LAYERS)
def test_zeros_are_the_empty_state(name):
    """As RecurrentPPO and CleanRL clear a row whose episode begins: by multiplying what they kept."""
    layer = Packed(LAYERS[name]())
    x, (first, second) = torch.randn(6, 4, 3), torch.zeros(2, 1, 4, layer.hidden_size)
    fresh, _ = layer.layer(x)
    torch.testing.assert_close(layer(x, (first, second))[0], fresh)
    begins = torch.tensor([0.0, 1.0, 0.0, 1.0])
    reset = torch.zeros(6, 4, dtype=torch.bool)
    reset[3] = begins.bool()
    wanted, _ = layer.layer(x, reset=reset)
    _, state = layer(x[:3])
    kept = tuple((1.0 - begins).view(1, 4, 1) * part for part in state)
    torch.testing.assert_close(layer(x[3:], kept)[0], wanted[3:])
    assert not torch.allclose(layer(x[3:], state)[0][:, 1], wanted[3:, 1])


@pytest.mark.parametrize("name", LAYERS)
def test_step_by_step_through_packed_states_is_step_by_step_gradients_included(name):
    layer = Packed(LAYERS[name]().double())
    x = torch.randn(7, 2, 3, dtype=torch.float64, requires_grad=True)

    def walked(one):
        state, outputs = None, []
        for step in x.unbind():
            output, state = one(step.unsqueeze(0), state)
            outputs.append(output)
        whole = torch.cat(outputs)
        return whole, torch.autograd.grad(whole.square().sum(), [x, *layer.parameters()])

    (plain, wanted), (packed, found) = walked(layer.layer), walked(layer)
    torch.testing.assert_close(packed, plain)
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other)


def test_steps_are_exact_beyond_what_a_float32_counts():
    layer = LAYERS["rellstm"]()
    state = layer(torch.randn(9, 2, 3))[1].detach()
    late = [2**24 + 1, 2**31 + 12345]
    memory = state.memory[0]
    moved = torch.tensor(late)
    born = torch.where(memory.born < 0, -1, memory.born + moved[:, None])
    state = state.replace(memory=(memory._replace(born=born, age=memory.age + moved),))
    found = unpack(state.pack(), layer)
    assert found.memory[0].age.tolist() == state.memory[0].age.tolist()
    assert torch.equal(found.memory[0].born, born)
    assert max(late) > DIGIT


def test_states_that_cannot_be_packed_are_refused():
    for layer in (plait.MemLSTM(3, 8), plait.Transformer(3, 8)):
        with pytest.raises(
            ConfigError, match=f"got {type(layer).__name__}, whose memory grows; take one with"
        ):
            Packed(layer)
    with pytest.raises(ConfigError, match="got a bidirectional one"):
        Packed(plait.LSTM(3, 8, bidirectional=True))
    layer = LAYERS["rellstm"]()
    for width in (packed_size(layer) - 1, packed_size(layer) + 1, 3):
        with pytest.raises(ShapeError, match=rf"packed state: expected \(1, B, {packed_size(layer)}\), got"):
            unpack(torch.zeros(1, 2, width), layer)
    with pytest.raises(ShapeError, match=r"expected \(1, B, F\), got \(2, 2, 5\)"):
        unpack(torch.zeros(2, 2, 5), layer)


def test_recurrent_ppo_reads_its_buffer_again_as_it_was_played():
    """With the real library: what its update works out first is what was done, over ends of episodes too."""
    contrib = pytest.importorskip("sb3_contrib", reason="needs sb3-contrib")
    from sb3_contrib.common.recurrent.policies import RecurrentActorCriticPolicy
    from stable_baselines3.common.env_util import make_vec_env

    class MemoryPolicy(RecurrentActorCriticPolicy):
        def __init__(self, *spaces, **options):
            super().__init__(*spaces, lstm_hidden_size=8, **options)
            for name in ("lstm_actor", "lstm_critic"):
                setattr(self, name, Packed(plait.RelLSTM(self.features_dim, 8, **OPTIONS)))
            self.lstm_hidden_state_shape = (1, 1, self.lstm_actor.hidden_size)
            self.optimizer = torch.optim.Adam(self.parameters(), lr=1e-3)

    worlds = make_vec_env("CartPole-v1", 3, seed=0)
    model = contrib.RecurrentPPO(MemoryPolicy, worlds, n_steps=40, batch_size=60, seed=0, device="cpu")
    _, callback = model._setup_learn(10**6)
    model.collect_rollouts(model.env, callback, model.rollout_buffer, model.n_steps)
    assert model.rollout_buffer.episode_starts.sum() > 4
    batches = 0
    for batch in model.rollout_buffer.get(60):
        with torch.no_grad():
            values, logarithms, _ = model.policy.evaluate_actions(
                batch.observations, batch.actions.long().flatten(), batch.lstm_states, batch.episode_starts
            )
        mask, batches = batch.mask > 1e-8, batches + 1
        torch.testing.assert_close(values.flatten()[mask], batch.old_values[mask], atol=1e-5, rtol=1e-4)
        torch.testing.assert_close(logarithms[mask], batch.old_log_prob[mask], atol=1e-5, rtol=1e-4)
    assert batches == 2
    before = [p.clone() for p in model.policy.lstm_critic.parameters()]
    model.train()
    assert any(
        not torch.equal(one, two)
        for one, two in zip(before, model.policy.lstm_critic.parameters(), strict=True)
    )
