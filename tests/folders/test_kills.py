from __future__ import annotations

import random
import subprocess
import sys
import time

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ddbio

ROWS, FILES = 50, 40

_SCRIPT = """
import sys
import ddbio
verb, lake, curated = sys.argv[1:]
ddbio.list_files(lake)
print("ready", flush=True)
if verb == "compact":
    ddbio.compact(lake, verify="rows")
elif verb == "publish":
    ddbio.publish(lake, curated)
elif verb == "rollback":
    ddbio.rollback(curated)
else:
    ddbio.vacuum(curated, older_than="0s")
"""


def keys(paths):
    """Return the keys in files, with duplicates."""
    return sorted(key for path in paths for key in pq.ParquetFile(path).read()["pk"].to_pylist())


def write(lake, numbers):
    """Write small files, each with its own rows."""
    lake.mkdir(exist_ok=True)
    for number in numbers:
        pq.write_table(
            pa.table({"pk": [f"{number:03}-{row:03}" for row in range(ROWS)]}), lake / f"{number:03}.parquet"
        )


def kill(verb, lake, curated, seconds):
    """Run a verb in its own process, and kill it after this time."""
    words = [sys.executable, "-c", _SCRIPT, verb, str(lake), str(curated)]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    time.sleep(seconds)
    process.kill()
    process.communicate()


@pytest.mark.nightly
def test_a_killed_compaction_loses_and_doubles_no_row(tmp_path):
    """The live files have each row once after any kill; the next compaction leaves exactly these files."""
    rng = random.Random(1)
    for number in range(6):
        lake = tmp_path / f"lake{number}"
        write(lake, range(FILES))
        all_keys = keys(lake.glob("*.parquet"))
        kill("compact", lake, lake, rng.uniform(0, 0.4))
        assert keys(ddbio.list_files(lake).paths) == all_keys
        ddbio.compact(lake, verify="rows")
        assert keys(lake.glob("*.parquet")) == keys(ddbio.list_files(lake).paths) == all_keys
        assert not [path for pattern in ("*.claim.json", "*.intent.json", "*.staged") for path in lake.rglob(pattern)]


@pytest.mark.nightly
@pytest.mark.parametrize("verb", ["publish", "rollback", "vacuum"])
def test_a_killed_publication_shows_old_or_new(tmp_path, verb):
    """Readers of the versions see the old rows or the new ones after any kill; the next run works."""
    lake, curated = tmp_path / "lake", tmp_path / "curated"
    write(lake, range(FILES // 2))
    ddbio.publish(lake, curated)
    old = keys(ddbio.list_files(curated).paths)
    write(lake, range(FILES // 2, FILES))
    new = keys(lake.glob("*.parquet"))
    if verb != "publish":
        ddbio.publish(lake, curated)
    rng = random.Random(verb)
    for _ in range(4):
        kill(verb, lake, curated, rng.uniform(0, 0.2))
        assert keys(ddbio.list_files(curated).paths) in (old, new)
    assert ddbio.publish(lake, curated).version >= 2
    ddbio.vacuum(curated, older_than="0s")
    assert keys(ddbio.list_files(curated).paths) == new
    linked = (curated / "_symlink_format_manifest" / "manifest").read_text("utf-8").splitlines()
    assert sorted(linked) == sorted(str(path) for path in curated.rglob("*.parquet"))
    assert not [path for pattern in ("*.claim.json", "*.intent.json", "*.staged") for path in curated.rglob(pattern)]
