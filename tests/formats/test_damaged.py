"""Damaged files are refused or read without a crash, byte by byte; those of ddbio's jobs are refused."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

# Files with their own checksums, and files with those of a manifest.
OWN = ("own.parquet", "avro", "zstd.avro", "csv.gz", "own.csv", "own.csv.zst", "own.json", "own.dynamodb.json")
OWN += ("own.avro", "own.orc", "own.manifest", "own.snapshot")
KINDS = (*OWN, "arrow", "ipc", "parquet", "orc", "csv", "json", "gz", "ion", "manifests")
CHECKED = (*OWN, "gz", "ion", "manifests")


@pytest.mark.timeout(3600)
def test_no_byte_of_a_file_ends_the_process(seeds):
    """A changed byte is an error of ddbio or another value; it is an error if a checksum covers the byte."""
    chosen = seeds(40, 1_000)
    seed, count = chosen[0], len(chosen)
    command = [sys.executable, str(Path(__file__).parent / "damage_target.py"), *KINDS, str(seed), str(count)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (seed, done.stderr[-2000:])
    for kind, ends in json.loads(done.stdout).items():
        assert sum(ends.values()) == count
        assert ends["refused"], (kind, seed)
        assert kind not in CHECKED or "changed" not in ends, (kind, seed)
