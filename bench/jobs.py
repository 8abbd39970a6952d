"""Each verb as one complete job on prepared data: the same jobs for asv here, and for ``bench.e2e.matrix``."""

from __future__ import annotations

import functools
import shutil
import statistics
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

import ddbio
from bench import data, orders, serving
from bench.pairs import interleave
from ddbio.formats.rolling_writer import FileOptions, RollingWriter
from ddbio.items.decode import Decoder
from ddbio.storage.local_store import LocalStore
from ddbio.storage.staged import FileNaming
from ddbio.testing.export import Change, ExportWriter

if TYPE_CHECKING:
    from collections.abc import Callable

ITEMS = 20_000
SMALL_FILES = 20
ROUNDS = 3
FORMATS = {
    "parquet zstd": {"format": "parquet", "compression": "zstd"},
    "parquet snappy": {"format": "parquet", "compression": "snappy"},
    "orc zstd": {"format": "orc", "compression": "zstd"},
    "avro": {"format": "avro"},
    "csv": {"format": "csv"},
    "json": {"format": "json"},
}


@dataclass(frozen=True)
class Done:
    """Result of a job.

    Attributes
    ----------
    rows
        Rows that it processed.
    file_bytes
        Sizes of the written files, or of the read files if it wrote none.
    read_units, write_units
        Units charged by the service.
    """

    rows: int
    file_bytes: list[int]
    read_units: float = 0.0
    write_units: float = 0.0

    @property
    def bytes_per_row(self) -> float:
        """Bytes of files per row."""
        return sum(self.file_bytes) / self.rows


@dataclass(frozen=True)
class Source:
    """Mixed orders as a table, as exports and as files, each created at its first use.

    Attributes
    ----------
    run_by
        Engine options: ``engine``, ``master`` and ``conf``.
    """

    folder: Path
    count: int
    file_format: str = "parquet zstd"
    run_by: dict[str, Any] = field(default_factory=lambda: {"engine": "local"})
    latency_seconds: float = 0.0

    @functools.cached_property
    def endpoint_url(self) -> str:
        """Endpoint of the table ``orders``, and of an empty one with the same key, ``empty``."""
        return serving.serve_orders(self.count, self.latency_seconds)

    @functools.cached_property
    def export(self) -> Path:
        """A full export."""
        return ExportWriter(self.folder / "exports", files=4, empty_files=0).full(orders.items("mixed", self.count))

    @functools.cached_property
    def increment(self) -> Path:
        """An incremental export that changes one in ten items."""
        changed = orders.items("mixed", self.count)[::10]
        return ExportWriter(self.folder / "exports", files=2, empty_files=0, seed=1).incremental(
            Change(number, {key: item[key] for key in orders.KEYS}, {**item, "status": {"S": "changed"}})
            for number, item in enumerate(changed, 1)
        )

    @functools.cached_property
    def batches(self) -> list[pa.RecordBatch]:
        """The orders as typed columns, some in each batch."""
        lines, decoder = orders.lines("mixed", self.count), Decoder(orders.schema_of("mixed"))
        return [decoder.decode(b"\n".join(lines[number::SMALL_FILES]), "items") for number in range(SMALL_FILES)]

    @functools.cached_property
    def small_files(self) -> Path:
        """Files of the format as written by many small tasks."""
        folder = self.folder / "small"
        folder.mkdir()
        store, options = LocalStore(str(folder)), FileOptions(**FORMATS[self.file_format])
        for number, batch in enumerate(self.batches):
            writer = RollingWriter(store, FileNaming("small", number), batch.schema, options)
            writer.write(batch)
            for staged in writer.finish():
                store.complete(staged)
        return folder

    @functools.cached_property
    def files(self) -> Path:
        """The table as files of the format."""
        scan(self)
        return (self.folder / SCANNED).rename(self.folder / "files")

    def words(self) -> dict[str, Any]:
        """Return the options of a job that writes files."""
        return {**FORMATS[self.file_format], **self.run_by, "mode": "overwrite"}

    def segments(self) -> dict[str, int]:
        """Return the segments of a scan, four per task if tasks are set: a small table would have fewer."""
        return {"segments": 4 * self.run_by["tasks"]} if "tasks" in self.run_by else {}


def scan(source: Source) -> Done:
    """Scan the table into files."""
    report = ddbio.scan_to_files(
        "orders", source.folder / SCANNED, endpoint_url=source.endpoint_url, schema=orders.schema_of("mixed"),
        **source.words(), **source.segments(),
    )  # fmt: skip
    return Done(report.rows, [file.bytes for file in report.files], read_units=report.rcu_consumed)


def frame(source: Source) -> Done:
    """Read the table into a DataFrame, which Spark writes; for engines that are Spark."""
    from ddbio.spark.session import running_session  # noqa: PLC0415 - asv imports this module, and needs no Spark

    session = running_session()
    assert session is not None
    chosen, dest = FORMATS[source.file_format], source.folder / "frame"
    split = {name: str(value) for name, value in {**source.run_by, **source.segments()}.items() if name in SPLIT}
    reader = session.read.format("dynamodb").option("table", "orders").option("endpointUrl", source.endpoint_url)
    rows = (
        reader.options(**split)
        .option("schema", ddbio.ItemSchema.from_arrow(orders.schema_of("mixed")).to_json())
        .load()
    )
    rows.write.mode("overwrite").options(**chosen).format(chosen["format"]).save(str(dest))
    return Done(source.count, [path.stat().st_size for path in dest.glob("part-*")])


def load(source: Source) -> Done:
    """Load files into a table."""
    files = source.files
    report = ddbio.load_files(files, "target", endpoint_url=source.endpoint_url, **source.run_by)
    return Done(
        report.written, [data_file.stat().st_size for data_file in data_files(files)], write_units=report.wcu_consumed
    )


def read_export(source: Source) -> Done:
    """Read a full export into files."""
    report = ddbio.read_export_to_files(
        source.export, source.folder / "exported", schema=orders.schema_of("mixed"), **source.words()
    )
    return Done(report.rows, [file.bytes for file in report.files])


def fold(source: Source) -> Done:
    """Fold a full export and an increment into files."""
    report = ddbio.fold_exports_to_files(source.export, [source.increment], source.folder / "folded", **source.words())
    return Done(report.rows, [file.bytes for file in report.files])


def compact(source: Source) -> Done:
    """Compact many small files. A copy of links is compacted, so that it can be repeated."""
    folder = source.folder / "compacted"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(source.small_files, folder, copy_function=lambda old, new: Path(new).hardlink_to(old))
    report = ddbio.compact(folder, **source.run_by)
    return Done(report.rows, [data_file.stat().st_size for data_file in data_files(folder)])


def validate(source: Source) -> Done:
    """Validate the table against its files."""
    report = ddbio.validate("orders", source.files, endpoint_url=source.endpoint_url)
    assert report.equal
    return Done(report.source_rows, [data_file.stat().st_size for data_file in data_files(source.files)])


def import_files(source: Source) -> Done:
    """Write rows as files for the service's import."""
    rows = pa.Table.from_batches(source.batches).drop_columns(["_rescue"])
    report = ddbio.write_import_files(rows, source.folder / "imports", key=orders.KEY, mode="overwrite")
    return Done(report.items, [file.bytes for file in report.files])


SCANNED = "scanned"
SPLIT = ("lanes", "segments", "tasks")
JOBS: dict[str, Callable[[Source], Done]] = {
    "scan": scan,
    "frame": frame,
    "load": load,
    "export": read_export,
    "fold": fold,
    "compact": compact,
    "validate": validate,
    "import_files": import_files,
}


def data_files(folder: Path) -> list[Path]:
    """Return the files of a folder that contain rows."""
    return [path for path in folder.iterdir() if path.is_file() and not path.name.startswith((".", "_"))]


class Jobs:
    """Each verb on this process's threads, by the format of its files."""

    params = (
        [
            "scan, parquet zstd", "scan, parquet snappy", "scan, orc zstd", "scan, avro", "scan, csv", "scan, json",
            "load, parquet zstd", "load, json", "export, parquet zstd", "fold, parquet zstd", "compact, parquet zstd",
            "validate, parquet zstd", "import_files, json",
        ],
    )  # fmt: skip
    param_names = ("job",)
    timer = time.process_time
    timeout = 600

    def setup(self, job: str) -> None:
        self.home = tempfile.TemporaryDirectory()
        verb, _, file_format = job.partition(", ")
        self.source = Source(Path(self.home.name), data.scaled(ITEMS), file_format)
        self.run = functools.partial(JOBS[verb], self.source)
        self.check(job)

    def teardown(self, _: str) -> None:
        self.home.cleanup()

    def check(self, _: str) -> None:
        """Raise if a job does not process each row. Its first run loads its dependencies."""
        self.done = self.run()
        assert self.done.rows == self.source.count

    def time_job(self, _: str) -> None:
        self.run()

    def peakmem_job(self, _: str) -> None:
        self.run()

    def track_bytes_per_row(self, _: str) -> float:
        return self.done.bytes_per_row

    def track_files_per_gigabyte(self, _: str) -> float:
        return len(self.done.file_bytes) / sum(self.done.file_bytes) * 1e9

    def track_rows_per_cpu_second(self, _: str) -> float:
        return self.source.count / statistics.median(interleave({"job": self.run}, ROUNDS, collecting=True)["job"])

    track_bytes_per_row.unit = "bytes"  # type: ignore[attr-defined]
    track_files_per_gigabyte.unit = "files/GB"  # type: ignore[attr-defined]
    track_rows_per_cpu_second.unit = "rows/s"  # type: ignore[attr-defined]


class Units:
    """Units that the service charges for an item."""

    params = (["scan", "load"],)
    param_names = ("job",)
    timeout = 600

    def setup(self, job: str) -> None:
        self.home = tempfile.TemporaryDirectory()
        self.check(job)

    def teardown(self, _: str) -> None:
        self.home.cleanup()

    def check(self, job: str) -> None:
        """Read or write every item once."""
        self.done = JOBS[job](Source(Path(self.home.name), data.scaled(ITEMS)))
        assert self.done.rows == data.scaled(ITEMS)

    def track_units_per_item(self, _: str) -> float:
        return (self.done.read_units + self.done.write_units) / self.done.rows

    track_units_per_item.unit = "units"  # type: ignore[attr-defined]
