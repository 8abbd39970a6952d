"""Files that are damaged, byte by byte: refused or read, in a process that lives; those of our own jobs refused."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

# With checksums of their own, and with those of a manifest.
OWN = ("own.parquet", "avro", "zstd.avro", "csv.gz", "own.csv", "own.csv.zst", "own.json", "own.dynamodb.json")
OWN += ("own.avro", "own.orc", "own.manifest", "own.snapshot")
KINDS = (*OWN, "arrow", "ipc", "parquet", "orc", "csv", "json", "gz", "ion", "manifests")
CHECKED = (*OWN, "gz", "ion", "manifests")


def outcomes(kinds, seed, count):
    """Return what became of so many damages of each kind."""
    command = [sys.executable, str(Path(__file__).parent / "damage_target.py"), *kinds, str(seed), str(count)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=3000, check=False, env={**os.environ})
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


def assert_harmless(found, count):
    """Require that each was read or refused, and that what has a checksum was never read as something else."""
    for kind, ends in found.items():
        assert sum(ends.values()) == count
        assert ends["refused"]
        assert kind not in CHECKED or "changed" not in ends


def test_no_byte_of_a_file_ends_the_process():
    """A byte that is another is an error of ours or another value; where a checksum stands, it is an error."""
    assert_harmless(outcomes(KINDS, 20, 40), 40)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", KINDS)
def test_no_byte_of_many_ends_the_process(kind):
    """The same of two thousand bytes of each format."""
    assert_harmless(outcomes([kind], 1, 2000), 2000)
