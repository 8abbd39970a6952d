"""Jobs of ``bench.jobs`` with other libraries, as their documentation recommends, on the same data and endpoint.

Each peer documents its input and its omissions. Methods that return Python objects get fewer items: per item they take
100 times as long.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import shutil
import warnings
from dataclasses import dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import boto3
import pyarrow as pa
import pyarrow.json as pj
import pyarrow.parquet as pq
from boto3.dynamodb.types import TypeDeserializer
from isal import igzip

from bench import jobs, orders, spark_json
from bench.decoders import Deserializer
from bench.e2e.emr.connector import Connector, MissingConnectorError
from bench.pyarrow_json.tagged import tagged_struct
from ddbio.items.schema.arrow import RESCUE_NAME

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

SLOW_SHARE = 8
"""The slow peers get one in this number of items."""

ZSTD = {"compression": "zstd", "compression_level": 1}
OF_SPARK = {"compression": "zstd", "parquet.compression.codec.zstd.level": "1"}
EMR, CONNECTOR = "EMR connector", "emr-dynamodb-hadoop"
TAGS = "leaves the tags on, so that it does less"


@dataclass(frozen=True)
class Peer:
    """Other method for a job.

    Attributes
    ----------
    package
        The distribution whose version is recorded.
    settings
        Its settings, and its omissions.
    items
        Number of processed items.
    run
        Runs the job. Returns the number of processed items, and the CPU seconds if it used a separate process.
    """

    package: str
    settings: str
    items: int
    run: Callable[[], tuple[int, float | None]]

    @property
    def recorded(self) -> dict[str, Any]:
        """The description of the peer in a row."""
        number = "5.0.0" if self.package == CONNECTOR else version(self.package)
        return {"package": self.package, "version": number, "settings": self.settings, "items": self.items}


def of(
    verb: str, source: jobs.Source, session: SparkSession | None, connector: Connector | str | None
) -> dict[str, Peer | str]:
    """Return the peers of a verb by name, on threads or in a session of Spark, or the reason if one is missing."""
    path = source.folder / "peer"
    path.mkdir(exist_ok=True)
    if session is None:
        return dict(_ON_THREADS.get(verb, _none)(source, path))
    found_peers: dict[str, Peer | str] = dict(_by_spark(verb, source, session))
    if isinstance(connector, Connector):
        return found_peers | dict(_by_connector(verb, source, connector))
    return found_peers | ({} if connector is None else {EMR: connector})


@contextlib.contextmanager
def open_connector(verb: str, source: jobs.Source, cores: int) -> Iterator[Connector | str | None]:
    """Start the EMR connector's JVM for its verbs, or report why it is not available."""
    if verb not in {"scan", "frame", "load"}:
        yield None
        return
    try:
        connector = Connector(source.endpoint_url, cores)
    except MissingConnectorError as missing:
        yield str(missing)
        return
    with connector:
        yield connector


def _none(source: jobs.Source, path: Path) -> Iterator[tuple[str, Peer]]:
    del source, path
    yield from ()


def _scan(source: jobs.Source, path: Path) -> Iterator[tuple[str, Peer]]:
    fewer = max(1, source.count // SLOW_SHARE)
    settings = "paginator of the client, TypeDeserializer, Table.from_pylist, pyarrow.parquet zstd 1; types inferred"
    yield "boto3 client.scan", Peer("boto3", settings, fewer, lambda: (_boto3_scan(source, path, fewer), None))
    settings = "read_items(allow_full_scan=True, max_items_evaluated=…), DataFrame.to_parquet zstd 1"
    yield (
        "awswrangler read_items",
        Peer("awswrangler", settings, fewer, lambda: (_wrangler_scan(source, path, fewer), None)),
    )


def _load(source: jobs.Source, path: Path) -> Iterator[tuple[str, Peer]]:
    del path
    fewer = max(1, source.count // SLOW_SHARE)
    settings = "rows by Table.to_pylist, sets as lists, Table.batch_writer()"
    yield "boto3 batch_writer", Peer("boto3", settings, fewer, lambda: (_boto3_load(source, fewer), None))
    settings = "read_parquet, nulls left out, dynamodb.put_items"
    yield "awswrangler put_items", Peer("awswrangler", settings, fewer, lambda: (_wrangler_load(source, fewer), None))


def _export(source: jobs.Source, path: Path) -> Iterator[tuple[str, Peer]]:
    fewer, count = max(1, source.count // SLOW_SHARE), source.count
    settings = f"isal, read_json(explicit_schema=…), pyarrow.parquet zstd 1; {TAGS}"
    yield "pyarrow.json", Peer("pyarrow", settings, count, lambda: (_pyarrow_export(source, path), None))
    settings = f"read_json(lines=True, engine='pyarrow', dtype_backend='pyarrow'), to_parquet zstd 1; {TAGS}"
    yield "pandas read_json", Peer("pandas", settings, count, lambda: (_pandas_export(source, path), None))
    settings = f"read_ndjson(infer_schema_length=2000), write_parquet zstd 1; {TAGS}"
    yield "polars read_ndjson", Peer("polars", settings, count, lambda: (_polars_export(source, path), None))
    settings = f"COPY (read_json(format='newline_delimited')) TO … (COMPRESSION zstd, level 1); {TAGS}"
    yield "DuckDB read_json", Peer("duckdb", settings, count, lambda: (_duckdb_export(source, path), None))
    settings = "isal, json.loads, TypeDeserializer, Table.from_pylist, pyarrow.parquet zstd 1; types inferred"
    yield "boto3 TypeDeserializer", Peer("boto3", settings, fewer, lambda: (_boto3_export(source, path, fewer), None))


def _compact(source: jobs.Source, path: Path) -> Iterator[tuple[str, Peer]]:
    count = source.count
    settings = "dataset.to_table, pyarrow.parquet zstd 1; no digests, nothing replaced"
    yield "pyarrow.dataset", Peer("pyarrow", settings, count, lambda: (_pyarrow_compact(source, path), None))
    settings = "read_parquet(dtype_backend='pyarrow'), to_parquet zstd 1; no digests, nothing replaced"
    yield "pandas read_parquet", Peer("pandas", settings, count, lambda: (_pandas_compact(source, path), None))
    settings = "scan_parquet, sink_parquet zstd 1; no digests, nothing replaced"
    yield "polars scan_parquet", Peer("polars", settings, count, lambda: (_polars_compact(source, path), None))
    settings = "COPY (read_parquet) TO … (COMPRESSION zstd, level 1); no digests, nothing replaced"
    yield "DuckDB read_parquet", Peer("duckdb", settings, count, lambda: (_duckdb_compact(source, path), None))


_ON_THREADS = {"scan": _scan, "load": _load, "export": _export, "compact": _compact}


def _by_spark(verb: str, source: jobs.Source, session: SparkSession) -> Iterator[tuple[str, Peer]]:
    count = source.count
    if verb == "export":
        settings = "read.schema(tagged).json, expressions that take the tags off, write.parquet zstd 1"
        yield "Spark's JSON reader", Peer("pyspark", settings, count, lambda: (_spark_export(source, session), None))
    if verb == "compact":
        settings = "read.parquet, coalesce(1), write.parquet zstd 1; no digests, nothing replaced"
        yield (
            "Spark's Parquet writer",
            Peer("pyspark", settings, count, lambda: (_spark_compact(source, session), None)),
        )
    if verb == "scan":
        settings = "our own data source, write.parquet: what rows cost that pass through the JVM"
        yield "Spark's Parquet writer", Peer("pyspark", settings, count, lambda: (jobs.frame(source).rows, None))


def _by_connector(verb: str, source: jobs.Source, connector: Connector) -> Iterator[tuple[str, Peer]]:
    count, target = source.count, source.folder / "peer" / "emr"
    if verb == "load":
        settings = "read.parquet, DynamoDBItemWritable, sets as lists, DynamoDBOutputFormat, write percent 1.5"
        yield EMR, Peer(CONNECTOR, settings, count, lambda: (count, connector.load("target", source.files)))
        return
    schema = _spark_schema()
    settings = "DynamoDBInputFormat, 4 segments, a task a core, read percent 1.5, Row, write.parquet zstd 1"
    yield EMR, Peer(CONNECTOR, settings, count, lambda: (count, connector.scan("orders", target, 4, schema)))


def _tagged() -> pa.StructType:
    fields = [field for field in orders.schema_of("mixed") if field.name != RESCUE_NAME]
    tagged = tagged_struct(fields, "", orders.NULL_PATHS)
    assert tagged is not None
    return tagged


def _spark_schema() -> str:
    from ddbio.spark.types import to_spark_schema  # noqa: PLC0415 - asv imports this module, and needs no Spark

    fields = [field for field in orders.schema_of("mixed") if field.name != RESCUE_NAME]
    return to_spark_schema(pa.schema(fields)).json()


def _boto3_scan(source: jobs.Source, path: Path, count: int) -> int:
    client = boto3.client("dynamodb", endpoint_url=source.endpoint_url)
    pages = client.get_paginator("scan").paginate(TableName="orders", PaginationConfig={"MaxItems": count})
    items = (item for page in pages for item in page["Items"])
    return _write_items(items, TypeDeserializer().deserialize, path / "boto3.parquet")


def _boto3_export(source: jobs.Source, path: Path, count: int) -> int:
    lines = (json.loads(line)["Item"] for path in _export_files(source) for line in _unzipped(path).splitlines())
    return _write_items(itertools.islice(lines, count), Deserializer().deserialize, path / "boto3.parquet")


def _write_items(items: Iterator[dict[str, Any]], deserialize: Callable[[Any], Any], path: Path) -> int:
    rows = [{name: _plain(deserialize(value)) for name, value in item.items()} for item in items]
    pq.write_table(pa.Table.from_pylist(rows), path, compression="zstd", compression_level=1)
    return len(rows)


def _plain(value: Any) -> Any:
    """Return the value for Arrow, which has no sets."""
    match value:
        case set():
            return sorted(value)
        case dict():
            return {name: _plain(member) for name, member in value.items()}
        case list():
            return [_plain(member) for member in value]
    return bytes(value) if type(value).__name__ == "Binary" else value


def _boto3_load(source: jobs.Source, count: int) -> int:
    resource: Any = boto3.resource("dynamodb", endpoint_url=source.endpoint_url)
    rows = _rows_of(source, count)
    with resource.Table("target").batch_writer() as writer:
        for row in rows:
            writer.put_item(Item=row)
    return len(rows)


def _rows_of(source: jobs.Source, count: int) -> list[dict[str, Any]]:
    (first, *_) = jobs.data_files(source.files)
    table = pq.read_table(first).slice(0, count)
    rows = table.drop_columns([name for name in (RESCUE_NAME,) if name in table.column_names]).to_pylist()
    return [_without_nulls(row) for row in rows]


def _without_nulls(value: Any) -> Any:
    match value:
        case dict():
            return {name: _without_nulls(member) for name, member in value.items() if member is not None}
        case list():
            return [_without_nulls(member) for member in value]
    return value


def _wrangler_load(source: jobs.Source, count: int) -> int:
    import awswrangler  # noqa: PLC0415 - its import takes seconds

    awswrangler.config.dynamodb_endpoint_url = source.endpoint_url
    rows = _rows_of(source, count)
    awswrangler.dynamodb.put_items(rows, "target")
    return len(rows)


def _wrangler_scan(source: jobs.Source, path: Path, count: int) -> int:
    import awswrangler  # noqa: PLC0415 - its import takes seconds

    awswrangler.config.dynamodb_endpoint_url = source.endpoint_url
    with warnings.catch_warnings():
        # The argument confirms the scan of the entire table.
        warnings.simplefilter("ignore", UserWarning)
        frame = awswrangler.dynamodb.read_items("orders", allow_full_scan=True, max_items_evaluated=count)
    frame = frame.apply(lambda column: column.map(_plain))
    frame.to_parquet(path / "wrangler.parquet", **ZSTD)
    return len(frame)


def _export_files(source: jobs.Source) -> list[Path]:
    return sorted((source.export / "data").glob("*.json.gz"))


def _unzipped(path: Path) -> bytes:
    with igzip.open(path) as opened:
        text: bytes = opened.read()
    return text


def _pyarrow_export(source: jobs.Source, path: Path) -> int:
    parse = pj.ParseOptions(explicit_schema=pa.schema([pa.field("Item", _tagged())]))
    tables = [pj.read_json(pa.BufferReader(_unzipped(path)), parse_options=parse) for path in _export_files(source)]
    table = pa.concat_tables(tables)
    pq.write_table(table, path / "pyarrow.parquet", compression="zstd", compression_level=1)
    return table.num_rows


def _pandas_export(source: jobs.Source, dest: Path) -> int:
    import pandas as pd  # noqa: PLC0415 - asv imports this module, and needs none of them

    rows = 0
    for number, path in enumerate(_export_files(source)):
        text = io.BytesIO(_unzipped(path))
        frame = pd.read_json(text, lines=True, engine="pyarrow", dtype_backend="pyarrow")
        frame.to_parquet(dest / f"pandas-{number}.parquet", **ZSTD)
        rows += len(frame)
    return rows


def _polars_export(source: jobs.Source, dest: Path) -> int:
    import polars as pl  # noqa: PLC0415 - asv imports this module, and needs none

    rows = 0
    for number, path in enumerate(_export_files(source)):
        frame = pl.read_ndjson(_unzipped(path), infer_schema_length=2_000)
        frame.write_parquet(dest / f"polars-{number}.parquet", **ZSTD)
        rows += len(frame)
    return rows


def _duckdb_export(source: jobs.Source, path: Path) -> int:
    files = [str(path) for path in _export_files(source)]
    return _duckdb_copy(f"read_json({files}, format='newline_delimited')", path)


def _duckdb_compact(source: jobs.Source, path: Path) -> int:
    return _duckdb_copy(f"read_parquet('{source.small_files}/*.parquet')", path)


def _duckdb_copy(read: str, path: Path) -> int:
    import duckdb  # noqa: PLC0415 - asv imports this module, and needs none

    target = path / "duckdb.parquet"
    with duckdb.connect() as base:
        base.execute(
            f"COPY (SELECT * FROM {read}) TO '{target}' (FORMAT parquet, COMPRESSION zstd, COMPRESSION_LEVEL 1)"
        )
    return pq.read_metadata(target).num_rows


def _pyarrow_compact(source: jobs.Source, path: Path) -> int:
    # It imports pandas.
    from pyarrow import dataset  # noqa: PLC0415 - asv imports this module, and needs none

    table = dataset.dataset(source.small_files).to_table()
    pq.write_table(table, path / "pyarrow.parquet", compression="zstd", compression_level=1)
    return table.num_rows


def _pandas_compact(source: jobs.Source, path: Path) -> int:
    import pandas as pd  # noqa: PLC0415 - asv imports this module, and needs none

    frame = pd.read_parquet(source.small_files, dtype_backend="pyarrow")
    frame.to_parquet(path / "pandas.parquet", **ZSTD)
    return len(frame)


def _polars_compact(source: jobs.Source, path: Path) -> int:
    import polars as pl  # noqa: PLC0415 - asv imports this module, and needs none

    target = path / "polars.parquet"
    pl.scan_parquet(source.small_files / "*.parquet").sink_parquet(target, **ZSTD)
    return pq.read_metadata(target).num_rows


def _spark_export(source: jobs.Source, session: SparkSession) -> int:
    fields = [field for field in orders.schema_of("mixed") if field.name != RESCUE_NAME]
    frame = spark_json.read_columns(session, source.export / "data", fields, _tagged())
    return _spark_write(frame, source.folder / "peer" / "spark")


def _spark_compact(source: jobs.Source, session: SparkSession) -> int:
    frame = session.read.parquet(*(str(path) for path in jobs.data_files(source.small_files))).coalesce(1)
    return _spark_write(frame, source.folder / "peer" / "spark")


def _spark_write(frame: Any, target: Path) -> int:
    shutil.rmtree(target, ignore_errors=True)
    frame.write.options(**OF_SPARK).parquet(str(target))
    return sum(pq.read_metadata(path).num_rows for path in target.glob("part-*"))
