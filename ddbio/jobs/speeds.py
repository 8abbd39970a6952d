"""Bytes a second that plans assume of one core, by kind of job."""

from __future__ import annotations

PROCESSORS = "the processors"
"""What limits a job that waits for nothing else."""

# Single steps: DynamoDB JSON into Arrow and back, Arrow into Parquet with zstd and back, gzip into text.
_DECODE, _ENCODE, _PARQUET_WRITE, _PARQUET_READ, _GUNZIP = 200e6, 150e6, 150e6, 500e6, 400e6
# A job does more than its steps: it reaches about half of what they alone would.
_SHARE = 0.5


def _job(*steps: float) -> float:
    """Return the bytes a second of a job that does these steps one after the other."""
    return _SHARE / sum(1 / step for step in steps)


SCAN_SPEED = 20.0 * 1024 * 1024
"""Items, from answers of DynamoDB to files."""
EXPORT_SPEED = _job(_GUNZIP, _DECODE, _PARQUET_WRITE)
"""Text of an export, from its files to others."""
REWRITE_SPEED = _job(_PARQUET_READ, _PARQUET_READ, _PARQUET_WRITE)
"""Arrow data, from files to others, which are read once more."""
DIGEST_SPEED = _job(_PARQUET_READ)
"""Arrow data, from files into digests."""
LINES_SPEED = _job(_PARQUET_READ, _ENCODE, _PARQUET_WRITE)
"""DynamoDB JSON, from files into compressed objects."""
