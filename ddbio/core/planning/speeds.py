"""What one core of a machine does in a second, and how long jobs take by that."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from ddbio.core.planning.estimate import SENT_RATIO
from ddbio.core.result import Result
from ddbio.errors import OptionError

PROCESSORS = "the processors"
"""What limits a job that waits for nothing else."""

# Verbs do more than the sum of their steps: about so much of a second is left for these.
_SHARE = 0.5
ASSUMED_BYTES_PER_SECOND = 20 * 1024 * 1024
"""What a core scans in a second, as plans assume it without a profile."""


@dataclass(frozen=True)
class Speeds(Result):
    """Hold what one core does in a second, in bytes.

    Attributes
    ----------
    decode, encode
        DynamoDB JSON into Arrow, and back.
    parquet_write, parquet_read
        Arrow data into files with zstd, and back.
    gunzip, zstd
        Text out of its compressed forms.
    loopback
        Through a socket of this machine; None if it was not measured.
    date
        When they were measured; empty if they are only assumed.
    """

    decode: float = 200e6
    encode: float = 150e6
    parquet_write: float = 150e6
    parquet_read: float = 500e6
    gunzip: float = 400e6
    zstd: float = 600e6
    loopback: float | None = None
    date: str = ""

    @staticmethod
    def from_json(text: str) -> Speeds:
        """Return the speeds that ``to_json`` wrote.

        Raises
        ------
        OptionError
            If it is no profile of speeds.
        """
        try:
            values: dict[str, Any] = json.loads(text)
            date = str(values.pop("date"))
            return Speeds(**{name: None if each is None else float(each) for name, each in values.items()}, date=date)  # type: ignore[arg-type]
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise OptionError(f"no profile of speeds ({error}): run ddbio calibrate again") from None

    @property
    def scan(self) -> float:
        """Return bytes of items a second, from answers to files."""
        if not self.date:
            return float(ASSUMED_BYTES_PER_SECOND)
        return _SHARE * _combined(self.decode, self.parquet_write) / SENT_RATIO

    @property
    def export(self) -> float:
        """Return bytes of text a second, from an export's files to others."""
        return _SHARE * _combined(self.gunzip, self.decode, self.parquet_write)

    @property
    def rewrite(self) -> float:
        """Return bytes of Arrow data a second, from files to others, which are read once more."""
        return _SHARE * _combined(self.parquet_read, self.parquet_read, self.parquet_write)

    @property
    def digest(self) -> float:
        """Return bytes of Arrow data a second, from files into digests."""
        return _SHARE * self.parquet_read

    @property
    def lines(self) -> float:
        """Return bytes of DynamoDB JSON a second, from files into compressed objects; one core does it."""
        return _SHARE * _combined(self.parquet_read, self.encode, self.parquet_write)

    @property
    def load(self) -> float:
        """Return bytes of requests a second."""
        return _SHARE * _combined(self.parquet_read, self.encode)


def _combined(*speeds: float) -> float:
    return 1 / sum(1 / speed for speed in speeds)
