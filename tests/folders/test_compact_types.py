# ruff: noqa: DTZ001 - times without a zone
from __future__ import annotations

import datetime as dt
import json
import uuid

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ddbio
from ddbio.cli.main import cli
from ddbio.errors import DecodeError, SchemaError
from ddbio.formats.parquet import ParquetReader

LAST = dt.datetime(9999, 12, 31, 23, 59, 59, 999999)
INT96 = {"use_deprecated_int96_timestamps": True}
UUIDS = pa.array([uuid.UUID(int=1).bytes, None], pa.binary(16)).cast(pa.uuid())


def write(path, array, metadata=None, **options):
    """Write rows whose ids no other file has."""
    ids = [f"{path.name} {number}" for number in range(len(array))]
    path.parent.mkdir(exist_ok=True)
    pq.write_table(pa.table({"id": ids, "v": array}).replace_schema_metadata(metadata), path, **options)


def write_sql(path, expression):
    """Write rows of DuckDB's types."""
    path.parent.mkdir(exist_ok=True)
    duckdb.sql(f"COPY (SELECT '{path.name}' AS id, {expression} AS v) TO '{path}'")


def physical(folder):
    """Return the physical type of the column in each file, sorted."""
    return sorted(pq.ParquetFile(path).schema.column(1).physical_type for path in folder.glob("*.parquet"))


def names(folder):
    """Return the names of the data files."""
    return sorted(path.name for path in folder.iterdir() if path.is_file())


def test_files_of_different_stored_types_are_not_mixed(tmp_path):
    """Each kind becomes one file of the same kind, and then nothing remains to do."""
    for number in range(3):
        write(tmp_path / f"{number}a.parquet", pa.array([LAST]), **INT96)
        write(tmp_path / f"{number}b.parquet", pa.array([LAST]))
    digest = ddbio.digest(tmp_path)
    report = ddbio.compact(tmp_path)
    assert (report.files_after, report.digest_after, report.files_left) == (2, digest, {})
    assert physical(tmp_path) == ["INT64", "INT96"]
    assert ddbio.compact(tmp_path).files_rewritten == 0
    rows = duckdb.sql(f"SELECT DISTINCT v FROM '{tmp_path}/*.parquet'").fetchall()
    assert rows == [(LAST,)]


def test_files_of_the_old_calendar_are_not_mixed_with_new_ones(tmp_path):
    """The key by which Spark moves old dates would also apply to rows that must not be moved."""
    spark = {"org.apache.spark.version": "3.5.0"}
    for number in range(2):
        write(
            tmp_path / f"{number}a.parquet",
            pa.array([dt.date(2024, 1, 1)]),
            {**spark, "org.apache.spark.legacyDateTime": ""},
        )
        write(tmp_path / f"{number}b.parquet", pa.array([dt.date(1, 1, 1)]), spark)
    ddbio.compact(tmp_path)
    files = [pq.ParquetFile(path) for path in tmp_path.glob("*.parquet")]
    metadata_by_value = {file.read().column("v")[0].as_py(): set(file.metadata.metadata) for file in files}
    assert b"org.apache.spark.legacyDateTime" in metadata_by_value[dt.date(2024, 1, 1)]
    assert b"org.apache.spark.legacyDateTime" not in metadata_by_value[dt.date(1, 1, 1)]


def test_files_that_would_change_stay_and_are_reported(tmp_path, capsys):
    """Other files are compacted; a second run does nothing, and reports the same files."""
    for number in range(2):
        write_sql(tmp_path / f"{number}.parquet", "INTERVAL 1 MONTH")
        write(tmp_path / f"{number}x.parquet", UUIDS)
    report = ddbio.compact(tmp_path)
    assert list(report.files_left) == ["0.parquet", "1.parquet"]
    assert "Interval" in report.files_left["0.parquet"]
    assert (report.files_rewritten, report.files_after, report.rows) == (2, 3, 6)
    assert (report.digest_before, report.digest_after) == (None, None)
    assert {"0.parquet", "1.parquet"} < set(names(tmp_path))
    again = ddbio.compact(tmp_path)
    assert (again.files_rewritten, again.files_left) == (0, report.files_left)
    cli.main(["compact", str(tmp_path)], standalone_mode=False)
    assert "left     2 files, 0.parquet: column v is stored as" in capsys.readouterr().out
    cli.main(["compact", str(tmp_path), "--json"], standalone_mode=False)
    assert json.loads(capsys.readouterr().out)["files_left"] == report.files_left


@pytest.mark.parametrize(
    "expression", ["'NaN'::DOUBLE", "'-inf'::FLOAT", "[1.0, 'NaN'::DOUBLE]", "{'a': 'inf'::DOUBLE}"]
)
def test_values_that_dynamodb_lacks(tmp_path, expression):
    """They have no digest; without it they are compacted."""
    for number in range(2):
        write_sql(tmp_path / f"{number}.parquet", expression)
    before, rows = names(tmp_path), duckdb.sql(f"SELECT v::VARCHAR FROM '{tmp_path}/*.parquet'").fetchall()
    with pytest.raises(DecodeError, match=r"is not a DynamoDB number.*verify=rows rewrites it"):
        ddbio.compact(tmp_path)
    assert names(tmp_path) == before
    assert ddbio.compact(tmp_path, verify="rows").files_after == 1
    assert duckdb.sql(f"SELECT v::VARCHAR FROM '{tmp_path}/*.parquet'").fetchall() == rows


@pytest.mark.parametrize("expression", ["MAP {1: 'x'}", "{'m': MAP {1: 2}}"])
def test_columns_that_dynamodb_lacks(tmp_path, expression):
    """They stay, and the reason names the option that rewrites them."""
    for number in range(2):
        write_sql(tmp_path / f"{number}.parquet", expression)
    report = ddbio.compact(tmp_path)
    assert report.files_rewritten == 0
    assert all(reason.endswith("; verify=rows rewrites it") for reason in report.files_left.values())
    report = ddbio.compact(tmp_path, verify="rows")
    assert (report.files_after, report.files_left) == (1, {})


def test_a_file_that_stays_and_has_no_digest(tmp_path):
    """The error names the option that omits the digest."""
    write(
        tmp_path / "large.parquet",
        pa.array([float("nan")] * 2000, pa.float64()),
        compression="none",
        use_dictionary=False,
    )
    for number in range(2):
        write(tmp_path / f"{number}.parquet", pa.array([1.5]))
    sizes = {"target_bytes": 70_000, "small_than": 5_000}
    with pytest.raises(DecodeError, match=r"a file that stays.*verify=rewritten does not read it"):
        ddbio.compact(tmp_path, **sizes)
    assert ddbio.compact(tmp_path, **sizes, verify="rewritten").files_after == 2


@pytest.mark.parametrize(("array", "change"), [
    (pa.array([1, 2]), lambda values: pa.array([1, 3])),
    (pa.array([LAST, None]), lambda values: pa.array([dt.datetime(1816, 3, 29), None])),
    (pa.array([dt.date(1, 1, 1)]), lambda values: pa.array([dt.date(1, 1, 3)])),
    (pa.array(["a", "b"]), lambda values: pa.array(["a", None])),
    (pa.array([True, False]), lambda values: pa.array([True, True])),
])  # fmt: skip
@pytest.mark.parametrize("verify", ["digest", "rewritten"])
def test_a_value_that_is_read_wrongly_is_noticed(tmp_path, monkeypatch, array, change, verify):
    """The statistics of the old and new footers differ, although the digests of the read rows are equal."""
    for number in range(2):
        write(tmp_path / f"{number}.parquet", array)
    before, read = names(tmp_path), ParquetReader.read

    def changed(self, part, batch_rows):
        for batch in read(self, part, batch_rows):
            is_old = self._entry.path in before
            yield batch.set_column(1, "v", change(batch.column(1)).cast(array.type)) if is_old else batch

    monkeypatch.setattr(ParquetReader, "read", changed)
    with pytest.raises(DecodeError, match=r"by their footers, column v has .* nothing was replaced; verify=rows"):
        ddbio.compact(tmp_path, verify=verify)
    assert names(tmp_path) == before


COLUMNS = {
    "uuid": UUIDS,
    "uuids": pa.ListArray.from_arrays([0, 1, 1], UUIDS[:1]),
    "json": pa.array(['{"a": 1}', None]).cast(pa.json_()),
    "float16": pa.array(np.array([0.5, 2.0], np.float16)),
    "bool8": pa.array([1, None], pa.int8()).cast(pa.bool8()),
    "time": pa.array([dt.time(23, 59, 59, 999999), None]),
    "seconds": pa.array([1, None], pa.time32("s")),
    "duration": pa.array([1500, None], pa.duration("ms")),
    "dictionary": pa.array(["a", None]).dictionary_encode(),
    "fixed": pa.array([b"abc", None], pa.binary(3)),
    "fixed list": pa.array([[1, 2], [3, None]], pa.list_(pa.int32(), 2)),
    "views": pa.array(["a", None], pa.string_view()),
    "wide": pa.array([10**37, None], pa.decimal256(60, 2)),
    "times": pa.array([[LAST], None], pa.list_(pa.timestamp("us"))),
    "struct": pa.array([{"t": dt.time(1), "d": None}, None], pa.struct([("t", pa.time64("us")), ("d", pa.date32())])),
    "map": pa.array([[("k", LAST)], None], pa.map_(pa.string(), pa.timestamp("us"))),
    "nothing": pa.nulls(2),
    "large": pa.array([["a"], None], pa.large_list(pa.large_string())),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_every_type_is_compacted_unchanged_and_into_every_format(tmp_path, name):
    """Items and schema stay the same; in Parquet the Arrow types, too."""
    for form in ("parquet", "orc", "avro", "csv", "json"):
        folder = tmp_path / form
        for number in range(2):
            write(folder / f"{number}.parquet", COLUMNS[name])
        digest = ddbio.digest(folder)
        report = ddbio.compact(folder, format=form)
        assert (report.files_after, report.rows) == (1, 4)
        assert report.digest_before == report.digest_after == ddbio.digest(folder) == digest
        if form == "parquet":
            write(tmp_path / "one.parquet", COLUMNS[name])
            (new,) = folder.glob("*.parquet")
            assert pq.read_schema(new).field("v") == pq.read_schema(tmp_path / "one.parquet").field("v")


def test_a_time_that_another_format_cannot_hold(tmp_path):
    """ORC's readers use nanoseconds: the error names the value, and the folder is unchanged."""
    write(tmp_path / "0.parquet", pa.array([LAST]))
    with pytest.raises(ddbio.DdbioError, match="ORC cannot store a value"):
        ddbio.compact(tmp_path, format="orc")
    assert names(tmp_path) == ["0.parquet"]


def test_a_column_without_an_equivalent_is_not_converted(tmp_path):
    """The error is that of a load."""
    write_sql(tmp_path / "0.parquet", "MAP {1: 2}")
    with pytest.raises(SchemaError, match="does not hold DynamoDB's M"):
        ddbio.compact(tmp_path, format="csv", verify="rows")
    assert names(tmp_path) == ["0.parquet"]


def test_files_on_s3_keep_their_types(tmp_path, s3, s3_url, bucket):
    """Only the ends of files are read before they are rewritten."""
    for number in range(2):
        write(tmp_path / f"{number}a.parquet", pa.array([LAST]), **INT96)
        write_sql(tmp_path / f"{number}b.parquet", "INTERVAL 1 DAY")
    for path in tmp_path.iterdir():
        s3.upload_file(str(path), bucket, f"lake/{path.name}")
    report = ddbio.compact(f"s3://{bucket}/lake", s3_endpoint_url=s3_url)
    assert (report.files_after, list(report.files_left)) == (3, ["0b.parquet", "1b.parquet"])
    listed = s3.list_objects_v2(Bucket=bucket, Prefix="lake/part-")["Contents"]
    data = s3.get_object(Bucket=bucket, Key=listed[0]["Key"])["Body"].read()
    assert pq.ParquetFile(pa.BufferReader(data)).schema.column(1).physical_type == "INT96"
