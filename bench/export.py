"""Gzipped DynamoDB export to typed Parquet on one core: ddbio, a chain of libraries, and each step alone."""

from __future__ import annotations

import functools
import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from isal import igzip

import ddbio
from bench import data, decoders
from bench.pairs import interleave, speed_ratio
from ddbio.formats.parquet import dictionary_columns
from ddbio.items.decode import Decoder
from ddbio.items.digest import Digest
from ddbio.items.digest_columns import digest_of_batches
from ddbio.testing.export import ExportWriter

if TYPE_CHECKING:
    from collections.abc import Callable

ITEMS = 120_000
ROUNDS = 5
OURS, CHAIN = "ddbio", "isal + pyarrow.json + cast + pyarrow.parquet"
GUNZIP, DECODE, PARQUET = "isal alone", "kernel alone", "pyarrow.parquet alone"


class ExportToParquet:
    params = (["export", "orders", "flights", "territories"],)
    param_names = ("shape",)
    timer = time.process_time
    timeout = 600

    def setup(self, shape: data.Shape) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.ways = ways(shape, Path(self.folder.name), data.scaled(ITEMS))
        self.check(shape)

    def teardown(self, *_: str) -> None:
        self.folder.cleanup()

    @staticmethod
    @functools.cache
    def check(shape: data.Shape) -> None:
        count = data.scaled(ITEMS // 20)
        wanted = Digest()
        wanted.add_items(_without_nulls(item) for item in data.items(shape, count))
        with tempfile.TemporaryDirectory() as folder:
            made = ways(shape, Path(folder), count)
            for name in (OURS, CHAIN):
                made[name]()
            paths = (Path(folder, "out"), Path(folder, "chain.parquet"))
            for path in paths:
                assert digest_of_batches(pq.read_table(path).to_batches()) == wanted

    def time_ddbio(self, *_: str) -> None:
        self.ways[OURS]()

    def time_chain(self, *_: str) -> None:
        self.ways[CHAIN]()

    def track_ratio_to_chain(self, *_: str) -> float:
        return speed_ratio(interleave({name: self.ways[name] for name in (OURS, CHAIN)}, ROUNDS), OURS, CHAIN)

    def track_share_of_steps(self, *_: str) -> float:
        alone = (GUNZIP, DECODE, PARQUET)
        seconds = interleave({name: self.ways[name] for name in (OURS, *alone)}, ROUNDS)
        return statistics.median(
            sum(seconds[step][turn] for step in alone) / seconds[OURS][turn] for turn in range(ROUNDS)
        )

    track_ratio_to_chain.unit = "x"  # type: ignore[attr-defined]
    track_share_of_steps.unit = "x"  # type: ignore[attr-defined]


def ways(shape: data.Shape, folder: Path, count: int) -> dict[str, Callable[[], object]]:
    """Return all methods from an export in a folder to a Parquet file, and the steps alone."""
    home = ExportWriter(folder / "in", files=1, empty_files=0).full(data.items(shape, count))
    (source,) = (home / "data").iterdir()
    schema = decoders.schema_of(shape)
    with igzip.open(source) as file:
        text = file.read()
    batches = Decoder(schema).decode_batches(text, "export")
    table = pa.Table.from_batches(batches)
    options: dict[str, Any] = {"schema": schema, "engine": "local", "tasks": 1, "mode": "overwrite"}
    # A task creates a decoder, and so does the step.
    return {
        OURS: lambda: ddbio.read_export_to_files(home, folder / "out", **options),
        CHAIN: functools.partial(_chain, shape, source, folder / "chain.parquet"),
        GUNZIP: functools.partial(_gunzip, source),
        DECODE: lambda: Decoder(schema).decode_batches(text, "export"),
        PARQUET: lambda: _write_parquet(table, folder / "alone.parquet"),
    }


def _gunzip(source: Path) -> bytes:
    with igzip.open(source) as file:
        read: bytes = file.read()
    return read


def _chain(shape: data.Shape, source: Path, path: Path) -> None:
    typed = decoders.parse_typed(_gunzip(source), shape)
    _write_parquet(pa.Table.from_batches([typed]), path)


def _write_parquet(table: pa.Table, path: Path) -> None:
    # As in ddbio: no dictionary of values that rarely repeat.
    chosen: Any = dictionary_columns(table)
    pq.write_table(table, path, compression="zstd", use_dictionary=chosen)


def _without_nulls(item: dict[str, Any]) -> dict[str, Any]:
    # The option's default merges NULL into missing.
    return {name: value for name, value in item.items() if "NULL" not in value}
