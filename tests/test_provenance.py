"""Where a number comes from."""

from plait import provenance


def test_a_copy_takes_its_commit_from_the_environment(monkeypatch):
    monkeypatch.setenv("PLAIT_COMMIT", "abc123")
    assert provenance.commit() == "abc123"
    monkeypatch.delenv("PLAIT_COMMIT")
    assert provenance.commit() != "abc123"
