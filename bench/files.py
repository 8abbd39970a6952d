"""Record batches to Parquet files in a local folder: the rolling writer compared with pyarrow's writer."""

from __future__ import annotations

import functools
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from bench import data, decoders
from bench.pairs import interleave, speed_ratio
from ddbio.formats.rolling_writer import FileOptions, RollingWriter
from ddbio.items.decode import Decoder
from ddbio.storage.local_store import LocalStore
from ddbio.storage.staged import FileNaming

if TYPE_CHECKING:
    from ddbio.options import Compression

ITEMS = 60_000
PAGE_ITEMS = 3_000
ROUNDS = 5


class ParquetFiles:
    params = (["orders", "flights", "territories"], ["zstd", "snappy"])
    param_names = ("shape", "compression")
    timer = time.process_time
    timeout = 300

    def setup(self, shape: data.Shape, compression: Compression) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.batches = batches_of(shape, data.scaled(ITEMS))
        self.compression = compression
        self.check(shape, compression)

    def teardown(self, *_: str) -> None:
        self.folder.cleanup()

    @staticmethod
    @functools.cache
    def check(shape: data.Shape, compression: Compression) -> None:
        batches = batches_of(shape, data.scaled(ITEMS))
        wanted = pa.Table.from_batches(batches)
        with tempfile.TemporaryDirectory() as folder:
            paths = write_rolling(folder, batches, compression)
            assert pa.concat_tables(map(pq.read_table, paths)).combine_chunks().equals(wanted.combine_chunks())
            assert pq.read_table(write_plain(folder, batches, compression)).equals(wanted)

    def time_rolling_writer(self, *_: str) -> None:
        write_rolling(self.folder.name, self.batches, self.compression)

    def time_floor(self, *_: str) -> None:
        write_plain(self.folder.name, self.batches, self.compression)

    def track_rows_per_cpu_second(self, *_: str) -> float:
        seconds = interleave({"ours": self.time_rolling_writer}, ROUNDS)
        return data.scaled(ITEMS) / sorted(seconds["ours"])[ROUNDS // 2]

    def track_ratio_to_floor(self, *_: str) -> float:
        seconds = interleave({"ours": self.time_rolling_writer, "floor": self.time_floor}, ROUNDS)
        return speed_ratio(seconds, "ours", "floor")

    track_rows_per_cpu_second.unit = "rows/s"  # type: ignore[attr-defined]
    track_ratio_to_floor.unit = "x"  # type: ignore[attr-defined]


@functools.lru_cache(maxsize=2)
def batches_of(shape: data.Shape, count: int) -> list[pa.RecordBatch]:
    """Return items as the batches of a scan: one per page."""
    decoder = Decoder(decoders.schema_of(shape))
    lines = data.lines(shape, count)
    return [
        decoder.decode(b"\n".join(lines[first : first + PAGE_ITEMS]), "items") for first in range(0, count, PAGE_ITEMS)
    ]


def write_rolling(folder: str, batches: list[pa.RecordBatch], compression: Compression) -> list[Path]:
    """Write like a task of a scan. Return the staged files."""
    writer = RollingWriter(
        LocalStore(folder), FileNaming("bench", 0), batches[0].schema, FileOptions(compression=compression)
    )
    for batch in batches:
        writer.write(batch)
    return [Path(folder, staged.token["staged_at"]) for staged in writer.finish()]


def write_plain(folder: str, batches: list[pa.RecordBatch], compression: Compression) -> Path:
    """Write the same rows as one file with pyarrow only."""
    path = Path(folder, "floor.parquet")
    table = pa.Table.from_batches(batches)
    with pq.ParquetWriter(path, table.schema, compression=compression) as writer:
        writer.write_table(table)
    return path
