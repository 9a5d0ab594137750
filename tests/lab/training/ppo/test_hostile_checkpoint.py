"""A policy's checkpoint with a right digest and wrong tensors is refused in one line."""

import pytest

CHANGES = {
    "negative age": (lambda n, v: v * 0 - 1 if n == "carry.5" else v, "0 <= age"),
    "int32": (lambda n, v: v.int() if n == "carry.4" else v, "expected torch.int64"),
    "narrow timesteps": (
        lambda n, v: v[:1] if n.startswith("optimizer.") and n.endswith("exp_avg") and v.dim() == 2 else v,
        "exp_avg: expected torch.float32",
    ),
    "no memory of an episode": (lambda n, v: None if n == "so_far.lasted" else v, "'lasted' is odd"),
    "no carried state": (lambda n, v: None if n.startswith("carry.") else v, "carried state: expected"),
    "timesteps of fewer worlds": (lambda n, v: v[1:] if n == "timestep.reward" else v, "reward: expected"),
    "worlds of another kind": (lambda n, v: v.int() if n == "worlds.actions" else v, "actions: expected"),
    "an action there is not": (lambda n, v: v * 0 + 200 if n == "worlds.actions" else v, "out of range"),
    "a direction there is not": (lambda n, v: v * 0 + 9 if n == "timestep.direction" else v, "out of range"),
    "a word there is not": (lambda n, v: v * 0 + 255 if n == "timestep.mission" else v, "out of range"),
    "an endless return": (lambda n, v: v + float("inf") if n == "so_far.gained" else v, "out of range"),
    "an episode before the first": (lambda n, v: v - 9 if n == "worlds.episode" else v, "out of range"),
}


@pytest.mark.parametrize("what", CHANGES)
def test_what_was_edited_is_named(small_fit, tmp_path, dying, edited, refused, what):
    change, message = CHANGES[what]
    with pytest.raises(dying.error):
        small_fit(tmp_path / "run", model="rellstm", watchers=[dying(3)])
    edited(tmp_path / "run", change)
    assert message in refused(tmp_path / "run")
