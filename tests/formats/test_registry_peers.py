"""Independent readers read the files of each format and codec."""

from __future__ import annotations

import base64
import json
from datetime import UTC, date, datetime
from decimal import Decimal

import duckdb
import fastavro
import polars as pl
import pyarrow as pa
import pyorc
import pytest

from ddbio.formats.registry import FORMATS
from ddbio.formats.rolling_writer import FileOptions, RollingWriter
from ddbio.items.schema.arrow import normalize_schema
from ddbio.storage.local_store import LocalStore
from ddbio.storage.staged import FileNaming

SCHEMA = normalize_schema(
    pa.schema(
        [
            pa.field("pk", pa.string()),
            pa.field("n", pa.int64()),
            pa.field("f", pa.float64()),
            pa.field("d", pa.decimal128(38, 4)),
            pa.field("wide", pa.string(), metadata={b"ddb:type": b"N"}),
            pa.field("b", pa.binary()),
            pa.field("t", pa.bool_()),
            pa.field("ss", pa.list_(pa.string()), metadata={b"ddb:type": b"SS"}),
            pa.field("l", pa.list_(pa.int64())),
            pa.field("m", pa.struct([("a", pa.int64()), ("b", pa.struct([("c", pa.string())]))])),
            pa.field("at", pa.timestamp("us", "UTC")),
            pa.field("day", pa.date32()),
        ]
    )
)
AT = datetime(2026, 11, 22, 14, 30, 0, 1, UTC)
FIRST = {
    "pk": 'two\nlines, "quoted" \\ é\u2028😀',
    "n": 2**63 - 1,
    "f": 0.1,
    "d": Decimal("1234567890123456789012345678901234.5678"),
    "wide": "1E+120",
    "b": b"\0\xff",
    "t": True,
    "ss": ["a", ""],
    "l": [1, None, -5],
    "m": {"a": 1, "b": {"c": "x"}},
    "at": AT,
    "day": date(1969, 1, 31),
}
# Structs and lists of several rows, including null ones, so that shifted rows would be detected.
_SHORT = [FIRST, {"pk": ""}, {"pk": "NULL", "m": {"b": {}}, "l": []}]
_SHORT += [{"pk": f"k{number}", "m": {"a": number}} for number in range(50)]
ROWS = pa.RecordBatch.from_pylist(_SHORT, SCHEMA).to_pylist()


def of_codecs(name, *codecs):
    """Return the format with each of its codecs, or with the given ones."""
    return [(name, codec) for codec in codecs or FORMATS[name].extensions]


@pytest.fixture
def written(tmp_path):
    """Return a function that writes the rows in slices, as jobs do, and returns the file's path."""

    def write(name, codec):
        store = LocalStore(tmp_path)
        batch = pa.RecordBatch.from_pylist(ROWS, SCHEMA)
        writer = RollingWriter(store, FileNaming("job", 0), SCHEMA, FileOptions(format=name, compression=codec))
        for start in range(0, len(ROWS), 7):
            writer.write(batch.slice(start, 7))
        [staged] = writer.finish()
        store.complete(staged)
        return tmp_path / staged.path

    return write


def plain(row):
    """Return a row as JSON: declared text for values that JSON readers would change; nulls are omitted."""
    if isinstance(row, dict):
        return {name: plain(value) for name, value in row.items() if value is not None}
    if isinstance(row, list):
        return [plain(value) for value in row]
    if isinstance(row, bytes):
        return base64.b64encode(row).decode()
    if isinstance(row, datetime):
        return row.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return str(row) if isinstance(row, (Decimal, date)) else row


@pytest.mark.parametrize(("name", "codec"), of_codecs("parquet"))
def test_duckdb_and_polars_read_parquet(written, name, codec):
    """All values have the types that were written."""
    path = written(name, codec)
    assert pl.read_parquet(path).to_arrow().to_pylist() == ROWS
    assert duckdb.sql(f"SELECT * FROM '{path}'").to_arrow_table().to_pylist() == ROWS


@pytest.mark.parametrize(("name", "codec"), of_codecs("orc"))
def test_pyorc_reads_orc(written, name, codec):
    """All values are equal; DynamoDB's types are not in the file."""
    with written(name, codec).open("rb") as file:
        rows = list(pyorc.Reader(file, struct_repr=pyorc.StructRepr.DICT))
    assert [row | {"at": row["at"] and row["at"].astimezone(UTC)} for row in rows] == ROWS


@pytest.mark.parametrize(("name", "codec"), of_codecs("avro", "gzip", "snappy", "none"))
def test_fastavro_and_polars_read_avro(written, name, codec):
    """All values are equal, with null in every union; the schema also has DynamoDB's types."""
    path = written(name, codec)
    with path.open("rb") as file:
        reader = fastavro.reader(file)
        assert list(reader) == ROWS
        types = {field["name"]: field.get("ddb:type") for field in reader.writer_schema["fields"]}
    assert (types["pk"], types["wide"], types["ss"], types["_rescue"]) == ("S", "N", "SS", "RESCUE")
    simple = ["pk", "n", "f", "wide", "b", "t", "at", "day"]
    rows = pl.read_avro(path, columns=simple).to_arrow().to_pylist()
    assert rows == [{name: row[name] for name in simple} for row in ROWS]


@pytest.mark.parametrize(("name", "codec"), of_codecs("json"))
def test_duckdb_and_python_read_json(written, name, codec):
    """Plain JSON with one row per line: no number is rounded, because such numbers are text."""
    path = written(name, codec)
    lines = duckdb.sql(f"SELECT * FROM read_csv('{path}', columns={{'line': 'VARCHAR'}}, header=false, sep='\x01', "
                       f"quote='', escape='')").fetchall()  # fmt: skip
    assert [json.loads(line) for (line,) in lines] == [plain(row) for row in ROWS]
    query = f"SELECT pk, n, f, d::DECIMAL(38, 4) AS d, ss, l, m.b.c AS c, \"at\" FROM read_json('{path}')"
    [row] = duckdb.sql(f"{query} WHERE n IS NOT NULL").fetchall()
    assert row[:7] == (*(FIRST[name] for name in ("pk", "n", "f", "d", "ss", "l")), "x")


@pytest.mark.parametrize(("name", "codec"), of_codecs("csv"))
def test_duckdb_and_polars_read_csv(written, name, codec):
    """Null is an empty cell without quotes, an empty text one with quotes; nested values are JSON."""
    path = written(name, codec)
    types = "{'pk': 'VARCHAR', 'n': 'BIGINT', 'f': 'DOUBLE', 'd': 'DECIMAL(38, 4)', 't': 'BOOLEAN', 'day': 'DATE',"
    types += " 'wide': 'VARCHAR', 'at': 'VARCHAR', 'b': 'VARCHAR', 'm': 'VARCHAR', 'l': 'VARCHAR', 'ss': 'VARCHAR'}"
    rows_of_duckdb = duckdb.sql(
        f"SELECT * FROM read_csv('{path}', types={types}, allow_quoted_nulls=false, header=true)"
    ).fetchall()
    nested = {"ss", "l", "m"}
    for row, cells in zip(ROWS, rows_of_duckdb, strict=True):
        for column, cell in zip(SCHEMA.names, cells, strict=True):
            expected, actual = row[column], cell
            if column in {"b", "wide"} | nested and actual is not None:
                expected, actual = plain(expected), json.loads(str(actual)) if column in nested else actual
            if column == "at" and actual is not None:
                actual = actual.replace(tzinfo=UTC) if isinstance(actual, datetime) else datetime.fromisoformat(actual)
            assert actual == expected, column
    texts = pl.read_csv(path, infer_schema=False)
    assert texts.height == len(ROWS)
    assert texts["n"][0] == str(2**63 - 1)
