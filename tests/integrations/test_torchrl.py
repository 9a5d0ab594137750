"""In TorchRL: step by step in a collector is the whole sequence in a loss, over ends of episodes too."""

import pytest
import torch

import plait
from plait.integrations.torchrl import TensorDictMemory

LAYER = {"window": 3, "capacity": 2}


class Plain(dict):
    """As much of a tensordict as a step needs."""

    set = dict.__setitem__


def test_steps_carry_the_state_and_reset_at_is_init():
    layer = plait.RelLSTM(3, 8, **LAYER)
    module, x = TensorDictMemory(layer), torch.randn(6, 4, 3)
    begins = torch.zeros(6, 4, 1, dtype=torch.bool)
    begins[0], begins[3, 1] = True, True
    state, found = None, []
    for step, flags in zip(x, begins, strict=True):
        held = Plain(observation=step, is_init=flags, **({} if state is None else {"memory": state}))
        module(held)
        state = held["next", "memory"]
        assert state.shape == (4, module.state_size)
        found.append(held["features"])
    wanted, _ = layer(x, reset=begins.squeeze(-1))
    torch.testing.assert_close(torch.stack(found), wanted)


def test_a_rollout_of_torchrl_is_read_again_as_sequences():
    pytest.importorskip("torchrl")
    from tensordict.nn import TensorDictModule, TensorDictSequential
    from torchrl.envs import Compose, GymEnv, InitTracker, TransformedEnv
    from torchrl.modules import set_recurrent_mode

    torch.manual_seed(0)
    memory = TensorDictMemory(plait.RelLSTM(4, 8, **LAYER))
    head = TensorDictModule(
        lambda h: torch.nn.functional.one_hot((h.sum(-1) > 0).long(), 2), ["features"], ["action"]
    )
    policy = TensorDictSequential(memory, head)
    env = TransformedEnv(GymEnv("CartPole-v1"), Compose(InitTracker(), memory.make_tensordict_primer()))
    with torch.no_grad():
        played = env.rollout(40, policy, break_when_any_done=False, auto_reset=True)
        assert played["is_init"].sum() > 1
        assert played["next", "memory"].shape == (40, memory.state_size)
        wanted = played["features"].clone()
        with set_recurrent_mode(True):
            again = memory(played.select("observation", "memory", "is_init")[10:].unsqueeze(0))
    torch.testing.assert_close(again["features"][0], wanted[10:])
    torch.testing.assert_close(again["next", "memory"][0, -1], played["next", "memory"][-1])
