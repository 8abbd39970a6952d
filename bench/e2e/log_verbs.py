"""Run the verbs on logs, archives, deliveries and lake tables as processes, relative to the sum of their steps alone.

Verbs that print items are included. All items of one table were deleted by their time to live: its log has their old
images, and they are archived. Another table is also a lake table. The puts of a third are in a log and in an
incremental export. Goal: every verb ≥ 0.7 × the sum of its steps.

In rows of commits before 0c830dd1, some steps were smaller than the verb's work: those of ``maintain`` read the same
rows from large files, which the verb does not get; those of ``changes write`` did not read its file; those of
``reconcile`` did not compute the MD5 of the export's files, which the verb compares with the manifest.
"""

from __future__ import annotations

import json
import shutil
import time
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from hashlib import md5
from pathlib import Path
from typing import TYPE_CHECKING, Any

import boto3
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from isal import igzip_lib

import ddbio
from bench import orders
from bench.e2e import delivered, sink, slopes
from bench.serving import isolate
from bench.steps import TABLE, Resources, Steps, data_files, unzipped
from ddbio.cdc.log_rows import LogDecoder
from ddbio.cdc.plain_lines import PlainLines, plain_lines
from ddbio.formats.log_columns import EVENT_TIME, EXPIRED, OLD_IMAGE, OLD_RESCUE, OPERATION, SEQUENCE
from ddbio.formats.parquet import parquet_bytes
from ddbio.items.digest_columns import ColumnDigest
from ddbio.items.plain_changes import ChangePrinter
from ddbio.items.row_lines import JsonLinePrinter
from ddbio.lake_formats.keys import key_texts
from ddbio.testing import FakeDynamoDB

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

ITEMS = 300_000
TTL, EXPIRED_SECONDS = "expires_at", 30 * 86_400
REGION = "eu-west-1"
_STREAM = {"StreamEnabled": True, "StreamViewType": "NEW_AND_OLD_IMAGES"}
_RECOVERY = {"PointInTimeRecoveryEnabled": True}
# An export starts some minutes before the reconciled window, and not before recovery was enabled.
_PASSED_SECONDS, _WINDOW, _BEFORE = 3_600, timedelta(seconds=900), timedelta(seconds=60)
_OVERLAP = timedelta(seconds=600)
_OLD_COLUMNS = [OPERATION, SEQUENCE, EVENT_TIME, EXPIRED, OLD_IMAGE, OLD_RESCUE]
_BUCKET, _SMALL_FILE_BYTES = "exports", 128 * 1024


def main() -> None:
    """Append a row with every verb."""
    slopes.main("log_verbs", ITEMS, serving, verbs)


@dataclass(frozen=True)
class LogResources:
    """Resources of one size.

    Attributes
    ----------
    table, lake, small_files
        Items whose time to live has passed; the same as a Delta table; the same in small files.
    gone, archive
        The log of a table all of whose items were deleted by their time to live, and the archive of them.
    kept, log, export, since
        A table, the log of its puts, an incremental export of them, and the start of the window of both.
    deliveries, changes
        Change records as Firehose delivers them, and the same in one file.
    read_url, write_url
        Endpoints: of the tables, and of one that accepts all writes.
    """

    count: int
    table: str
    lake: Path
    small_files: Path
    gone: Path
    archive: Path
    kept: str
    log: Path
    export: Path
    since: datetime
    deliveries: Path
    changes: Path
    read_url: str
    write_url: str


def verbs(resources: LogResources) -> dict[str, slopes.Job]:
    """Return the jobs of each verb."""
    ways, at = LogSteps(resources).ways, ["--endpoint-url", resources.read_url, "--region", REGION]
    first = orders.items("mixed", 1)[0]
    key = json.dumps({name: first[name] for name in orders.KEYS})
    until = (resources.since + _WINDOW).isoformat()
    read = ("fetch", "infer", "decode")

    def job(steps: tuple[str, ...], command: Callable[[Path], list[str]], **more: Any) -> slopes.Job:
        return slopes.Job(resources.count, command, steps={step: ways[step] for step in steps}, **more)

    return {
        "read": job((*read, "print"), lambda _: ["read", resources.table, *at]),
        "archive": job(
            ("read old images", "choose expired", "write expired"),
            lambda folder: ["archive", str(resources.gone), str(folder / "archive"), "--ttl", TTL, "--json"],
        ),
        "archive restore": job(
            ("read archive", "choose last", "encode", "hash keys", "spread", "deal", "lay out", "send batches"),
            lambda _: ["archive", "restore", str(resources.archive), TABLE, "--mode", "upsert", "--json",
                       "--endpoint-url", resources.write_url, "--region", REGION],
        ),
        "archive expired": job(read, lambda _: ["archive", "expired", resources.table, "--ttl", TTL, "--json", *at]),
        "history": job(
            ("read log", "write keys"), lambda _: ["history", str(resources.log), key, "--json"]
        ),
        "capture verify": job(
            ("read changes", "hash new images", "hash old images"),
            lambda _: ["capture", "verify", str(resources.gone), "--json", *at],
        ),
        "changes read": job(
            ("gunzip", "decode records", "print records"), lambda _: ["changes", "read", str(resources.deliveries)]
        ),
        "changes write": job(
            ("read text", "print images", "gzip lines"),
            lambda folder: ["changes", "write", str(resources.changes), str(folder / "delivered"), "--json"],
        ),
        "replay": job(
            ("gunzip", "decode records", "write records"),
            lambda folder: ["replay", str(resources.deliveries), str(folder / "log"), "--json"],
        ),
        "bootstrap": job(
            (*read, "write keys of rows", "write Parquet"),
            lambda folder: ["bootstrap", resources.table, str(folder / "lake"), "--log", str(folder / "log"), "--json",
                            *at],
        ),
        "verify": job(
            ("fetch", "decode", "hash", "read lake", "hash again"),
            lambda _: ["verify", resources.table, str(resources.lake), "--json", *at],
        ),
        "reconcile": job(
            ("read log", "hash log", "sum MD5 of export", "gunzip export", "decode export", "hash export"),
            lambda folder: ["reconcile", resources.kept, str(folder / "log"), "--from-export", str(resources.export),
                            "--since", resources.since.isoformat(), "--until", until, "--json", *at],
            prepare=lambda folder: shutil.copytree(resources.log, folder / "log"),
        ),
        "maintain": job(
            ("read small files", "write Parquet"),
            lambda folder: ["maintain", str(folder / "lake"), "--json"],
            prepare=lambda folder: shutil.copytree(resources.small_files, folder / "lake"),
        ),
    }  # fmt: skip


class LogSteps(Steps):
    """Steps of these verbs, in addition to those of verbs on tables.

        Parameters
        ----------
        resources
    XX
    """

    def __init__(self, resources: LogResources) -> None:
        none = Path()
        table_resources = Resources(none, none, none, none, resources.read_url, resources.write_url, resources.table)
        super().__init__(table_resources, 1)
        self._place = resources
        keys = orders.KEYS
        self.ways |= {
            "read log": lambda: _read(resources.log),
            "read changes": lambda: _read(resources.gone),
            "read old images": lambda: _read(resources.gone, _OLD_COLUMNS),
            "read archive": lambda: _read(resources.archive),
            "read lake": lambda: _read(resources.lake),
            # Threads cost more than they save for such small files.
            "read small files": lambda: _read(resources.small_files, use_threads=False),
            "choose last": self._choose_last,
            "choose expired": lambda: self._gone.filter(pc.equal(self._gone.column(OPERATION), pa.scalar("REMOVE"))),
            "write expired": lambda: parquet_bytes(self._expired, "zstd"),
            "write keys": lambda: [key_texts(batch, keys) for batch in self._log.to_batches()],
            "hash new images": lambda: _hashed(self._new_images, keys),
            "hash old images": lambda: _hashed(self._old_images),
            "hash log": lambda: _hashed(self._logged, keys),
            "hash export": lambda: _hashed(self._exported_images, keys),
            "write keys of rows": lambda: [key_texts(batch, keys) for batch in self._rows],
            "hash again": self._hash,
            "gunzip": lambda: [unzipped(path) for path in self._delivered],
            "decode records": lambda: [self._decoded(text) for text in self._texts],
            "write records": lambda: [
                parquet_bytes(pa.Table.from_batches([record]), "zstd") for record in self._records
            ],
            "read text": resources.changes.read_bytes,
            "print images": lambda: ChangePrinter().print_changes(memoryview(self._changes)),
            "gzip lines": lambda: [
                igzip_lib.compress(plain_line.data, 2, igzip_lib.COMP_GZIP) for plain_line in self._plain_lines
            ],
            "sum MD5 of export": lambda: [md5(path.read_bytes()) for path in data_files(resources.export)],
            "gunzip export": lambda: [unzipped(path) for path in data_files(resources.export)],
            "decode export": lambda: ddbio.ChangeDecoder(self._schema, keys).decode(self._exported),
            "print": lambda: [_print(batch) for batch in self._rows],
            "print records": lambda: [_print(batch) for batch in self._records],
        }

    @cached_property
    def _schema(self) -> pa.Schema:
        lines = b"\n".join(_expiring(orders.lines("mixed", min(self._place.count, 2_000))))
        return ddbio.infer_schema(lines).to_arrow()

    @cached_property
    def _gone(self) -> pa.Table:
        return _read(self._place.gone)

    def _choose_last(self) -> None:
        """Find the last row of each item, by sequence number."""
        rows: pa.Table = self._expired.select([*orders.KEYS, SEQUENCE])
        pc.sort_indices(rows, sort_keys=[(SEQUENCE, "ascending")])
        rows.append_column("row", pa.array(np.arange(rows.num_rows))).group_by(orders.KEYS).aggregate([("row", "max")])

    @cached_property
    def _new_images(self) -> pa.Table:
        return _images(self._gone)

    @cached_property
    def _old_images(self) -> pa.Table:
        return _images(_unnested(self._gone, OLD_IMAGE))

    @cached_property
    def _logged(self) -> pa.Table:
        return _images(_read(self._place.log))

    @cached_property
    def _exported_images(self) -> pa.Table:
        rows = ddbio.ChangeDecoder(self._schema, orders.KEYS).decode(self._exported)
        return _images(_unnested(pa.Table.from_batches([rows]), "new_image"))

    @cached_property
    def _expired(self) -> pa.Table:
        return _read(self._place.archive)

    @cached_property
    def _log(self) -> pa.Table:
        return _read(self._place.log).select(orders.KEYS).combine_chunks()

    @cached_property
    def _exported(self) -> bytes:
        return b"".join(map(unzipped, data_files(self._place.export)))

    @cached_property
    def _delivered(self) -> list[Path]:
        return sorted(self._place.deliveries.iterdir())

    @cached_property
    def _texts(self) -> list[bytes]:
        return [unzipped(path) for path in self._delivered]

    @cached_property
    def _changes(self) -> bytes:
        return self._place.changes.read_bytes()

    @cached_property
    def _plain_lines(self) -> list[PlainLines]:
        lines = plain_lines(self._changes)
        assert lines is not None
        return lines

    @cached_property
    def _records(self) -> list[pa.RecordBatch]:
        return [self._decoded(text) for text in self._texts]

    def _decoded(self, text: bytes) -> pa.RecordBatch:
        decoded = LogDecoder(orders.schema_of("mixed"), orders.KEYS).decode_records(text)
        assert decoded is not None
        return decoded.rows


@contextmanager
def serving(home: Path, counts: tuple[int, ...]) -> Iterator[list[LogResources]]:
    """Serve tables of ``counts`` items, accept writes, and create the other resources, while the context is open."""
    isolate()
    exports = home / "exported"
    (exports / _BUCKET).mkdir(parents=True)
    with FakeDynamoDB(process=True, export_to=str(exports)) as fake, sink.running(orders.KEY) as taker:
        client: Any = boto3.client("dynamodb", endpoint_url=fake.endpoint_url, region_name=REGION)
        for count in counts:
            for name in ("table", "gone", "kept"):
                table = {"TableName": f"{name}-{count}"}
                fake.load(table["TableName"], b"", orders.KEY)
                client.update_time_to_live(**table, TimeToLiveSpecification={"Enabled": True, "AttributeName": TTL})
                client.update_continuous_backups(**table, PointInTimeRecoverySpecification=_RECOVERY)
            _let_expire(home / str(count), count, fake, client)
        fake.pass_time(_PASSED_SECONDS)
        all_resources = [
            _prepared_resources(home / str(count), count, fake, client, taker.endpoint_url) for count in counts
        ]
        for resources in all_resources:
            check(resources)
        yield all_resources


def _let_expire(home: Path, count: int, fake: FakeDynamoDB, client: Any) -> None:
    """Put items into a table, delete them by their time to live, and capture and archive the deletions."""
    home.mkdir()
    gone = f"gone-{count}"
    client.update_table(TableName=gone, StreamSpecification=_STREAM)
    fake.load(gone, _expiring(orders.lines("mixed", count)), orders.KEY)
    assert fake.expire(gone) == count
    at: Any = {"endpoint_url": fake.endpoint_url, "region": REGION}
    ddbio.capture(gone, home / "gone", available_now=True, old_image=True, **at)
    ddbio.archive(home / "gone", home / "archive", ttl=TTL)


def _prepared_resources(home: Path, count: int, fake: FakeDynamoDB, client: Any, write_url: str) -> LogResources:
    lines = _expiring(orders.lines("mixed", count))
    at: Any = {"endpoint_url": fake.endpoint_url, "region": REGION}
    table, kept = f"table-{count}", f"kept-{count}"
    fake.load(table, lines, orders.KEY)
    for name in (table, kept):
        client.update_table(TableName=name, StreamSpecification=_STREAM)
    fake.load(kept, lines, orders.KEY)
    # A change younger than the capture counts as a later change, and this server's clock is ahead.
    while ddbio.capture(kept, home / "log", available_now=True, **at).records:
        pass
    ddbio.scan_to_files(table, home / "lake", format="delta", engine="local", **at)
    small: Any = {**at, "target_file_bytes": _SMALL_FILE_BYTES}
    ddbio.scan_to_files(table, home / "small_files", format="delta", engine="local", **small)
    times: Any = _read(home / "log").column("_event_time")
    since = pc.min(times).as_py().replace(microsecond=0) - _BEFORE
    fake.pass_time(_PASSED_SECONDS)
    export = _exported(client, kept, since, Path(fake.export_to or ""))
    (home / "deliveries").mkdir()
    delivered.deliver(home / "deliveries", count)
    texts = map(unzipped, sorted((home / "deliveries").iterdir()))
    (home / "changes.json").write_bytes(b"".join(texts).replace(b'}{"eventID"', b'}\n{"eventID"'))
    return LogResources(
        count=count,
        table=table,
        lake=home / "lake",
        small_files=home / "small_files",
        gone=home / "gone",
        archive=home / "archive",
        kept=kept,
        log=home / "log",
        export=export,
        since=since,
        deliveries=home / "deliveries",
        changes=home / "changes.json",
        read_url=fake.endpoint_url,
        write_url=write_url,
    )


def _exported(client: Any, table: str, since: datetime, home: Path) -> Path:
    """Let the fake export the changes of a table. Return the folder of the export."""
    window = {"ExportFromTime": since - _OVERLAP, "ExportToTime": since + _WINDOW}
    started = client.export_table_to_point_in_time(
        TableArn=client.describe_table(TableName=table)["Table"]["TableArn"],
        S3Bucket=_BUCKET,
        S3Prefix=table,
        ExportType="INCREMENTAL_EXPORT",
        IncrementalExportSpecification=window,
    )["ExportDescription"]
    while True:
        export = client.describe_export(ExportArn=started["ExportArn"])["ExportDescription"]
        if export["ExportStatus"] == "COMPLETED":
            folder: Path = (home / _BUCKET / export["ExportManifest"]).parent
            return folder
        assert export["ExportStatus"] == "IN_PROGRESS", export
        time.sleep(0.05)


def check(resources: LogResources) -> None:
    """Raise unless the resources contain every item once."""
    assert _read(resources.gone).num_rows == 2 * resources.count
    assert _read(resources.archive).num_rows == _read(resources.log).num_rows == resources.count
    assert _read(resources.lake).num_rows == _read(resources.small_files).num_rows == resources.count
    assert len(resources.changes.read_bytes().splitlines()) == resources.count
    exported = b"".join(map(unzipped, data_files(resources.export)))
    assert exported.count(b"\n") == resources.count


def _expiring(lines: tuple[bytes, ...]) -> list[bytes]:
    """Return lines of items whose time to live has passed."""
    passed = int(datetime.now(UTC).timestamp()) - EXPIRED_SECONDS
    return [b'%b,"%b":{"N":"%d"}}' % (line[:-1], TTL.encode(), passed + number) for number, line in enumerate(lines)]


def _read(folder: Path, columns: list[str] | None = None, *, use_threads: bool = True) -> pa.Table:
    """Return the rows of all Parquet files below a folder; for a lake table, those of all its versions."""
    paths = sorted(path for path in folder.rglob("*.parquet") if "_ddbio" not in path.parts)
    files = (pq.ParquetFile(path, page_checksum_verification=True) for path in paths)
    tables = [file.read(columns=columns, use_threads=use_threads) for file in files]
    return pa.concat_tables(tables, promote_options="permissive")


def _images(rows: pa.Table) -> pa.Table:
    """Return the item columns of the rows of a log."""
    own = {OPERATION, SEQUENCE, EVENT_TIME, EXPIRED, OLD_IMAGE, OLD_RESCUE}
    return rows.drop_columns([name for name in rows.column_names if name in own]).combine_chunks()


def _unnested(rows: pa.Table, name: str) -> pa.Table:
    image: Any = rows.column(name).combine_chunks()
    return pa.Table.from_arrays(image.flatten(), schema=pa.schema(list(image.type)))


def _hashed(rows: pa.Table, keys: Sequence[str] = ()) -> object:
    return [ColumnDigest(keys).add_rows(batch) for batch in rows.to_batches()]


def _print(batch: pa.RecordBatch) -> object:
    return list(JsonLinePrinter(batch.schema).print_pieces(batch))


if __name__ == "__main__":
    main()
