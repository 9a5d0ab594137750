"""Where a number comes from."""

from plait import provenance


def test_a_copy_can_be_told_its_commit(monkeypatch):
    monkeypatch.setenv("PLAIT_COMMIT", "abc123")
    assert provenance.commit() == "abc123"
    monkeypatch.delenv("PLAIT_COMMIT")
    assert provenance.commit() != "abc123"
