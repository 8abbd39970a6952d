"""The cache of jars: a jar that differs from the lock is refused, and fetched again by the next run."""

from __future__ import annotations

import pytest

from tests.versions.jars import LOCK, require_locked


def test_a_damaged_jar_is_not_kept(tmp_path, monkeypatch):
    """It is deleted from both caches, and its folder no longer counts as complete."""
    monkeypatch.setenv("DDBIO_JARS", str(tmp_path))
    name = LOCK.read_text("utf-8").split()[1]
    kept = tmp_path / "a-coordinate" / name
    for path in (kept, tmp_path / "ivy/group/artifact/jars" / name):
        path.parent.mkdir(parents=True)
        path.write_bytes(b"cut o")
    (kept.parent / "complete").touch()
    with pytest.raises(AssertionError, match=f"{name} has SHA-256"):
        require_locked([kept])
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
