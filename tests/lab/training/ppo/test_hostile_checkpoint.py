"""A policy's checkpoint with a correct digest and invalid tensors is refused in one line."""

import pytest

CHANGES = {
    "negative age": (lambda n, v: v * 0 - 1 if n == "carry.5" else v, "0 <= age"),
    "int32": (lambda n, v: v.int() if n == "carry.4" else v, "expected torch.int64"),
    "narrow timesteps": (
        lambda n, v: v[:1] if n.startswith("optimizer.") and n.endswith("exp_avg") and v.dim() == 2 else v,
        "exp_avg: expected torch.float32",
    ),
    "no length of an episode": (lambda n, v: None if n == "episode.length" else v, "'length' is odd"),
    "no carried state": (lambda n, v: None if n.startswith("carry.") else v, "carried state: expected"),
    "time steps of fewer environments": (
        lambda n, v: v[1:] if n == "timestep.reward" else v,
        "reward: expected",
    ),
    "actions of another dtype": (lambda n, v: v.int() if n == "env.actions" else v, "actions: expected"),
    "an invalid action": (lambda n, v: v * 0 + 200 if n == "env.actions" else v, "out of range"),
    "an invalid direction": (lambda n, v: v * 0 + 9 if n == "timestep.direction" else v, "out of range"),
    "an invalid word": (lambda n, v: v * 0 + 255 if n == "timestep.mission" else v, "out of range"),
    "an infinite return": (lambda n, v: v + float("inf") if n == "episode.return" else v, "out of range"),
    "a negative episode number": (lambda n, v: v - 9 if n == "env.episode" else v, "out of range"),
}


@pytest.mark.parametrize("what", CHANGES)
def test_an_edited_tensor_is_named(small_fit, tmp_path, dying, edited, refused, what):
    change, message = CHANGES[what]
    with pytest.raises(dying.error):
        small_fit(tmp_path / "run", model="rellstm", callbacks=[dying(3)])
    edited(tmp_path / "run", change)
    assert message in refused(tmp_path / "run")
