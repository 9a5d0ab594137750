"""A policy's checkpoint with a right digest and wrong tensors is refused in one line."""

import pytest

CHANGES = {
    "negative age": (lambda n, v: v * 0 - 1 if n == "carry.5" else v, "0 <= age"),
    "int32": (lambda n, v: v.int() if n == "carry.4" else v, "expected torch.int64"),
    "narrow moments": (
        lambda n, v: v[:1] if n.startswith("optimizer.") and n.endswith("exp_avg") and v.dim() == 2 else v,
        "exp_avg: expected torch.float32",
    ),
}


@pytest.mark.parametrize("what", CHANGES)
def test_what_was_edited_is_named(small_fit, tmp_path, dying, edited, refused, what):
    change, message = CHANGES[what]
    with pytest.raises(dying.error):
        small_fit(tmp_path / "run", model="rellstm", watchers=[dying(3)])
    edited(tmp_path / "run", change)
    assert message in refused(tmp_path / "run")
