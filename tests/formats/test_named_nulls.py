"""Rows of JSON that name their nulls, for every reader."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from ddbio.formats.file_format import ReadOptions
from ddbio.formats.json_rows import JsonRows
from ddbio.formats.text_reader import TextReader
from ddbio.items.schema.arrow import is_nulls, normalize_schema
from ddbio.storage.local_store import LocalStore

COLUMNS = normalize_schema(pa.schema({"pk": pa.string(), "v": pa.int64(), "w": pa.int64()}))
ROWS = [
    {"pk": f"k{n}", **({"v": None if n % 7 else n} if n % 3 else {}), **({"w": None} if n % 5 else {})}
    for n in range(3_000)
]


def named(folder, text, piece_bytes=1 << 40, **options):
    """Return the names of the nulls in each row, and the name of the column."""
    (folder / "rows.jsonl").write_text(text)
    [entry] = LocalStore(folder).list()
    options = ReadOptions(names_nulls=True, splits_text="range_bytes" in options, **options)
    reader = TextReader(LocalStore(folder), entry, options, make_rows=JsonRows, piece_bytes=piece_bytes)
    nulls, columns = [], set()
    for part in range(len(reader.parts().sizes_bytes)):
        for batch in reader.read(part, 0):
            [name] = [field.name for field in batch.schema if is_nulls(field)]
            columns.add(name)
            nulls += [names or [] for names in batch.column(name).to_pylist()]
    [column] = columns
    return nulls, column


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"piece_bytes": 10_000},
        {"range_bytes": 20_000},
        {"piece_bytes": 10_000, "columns": COLUMNS},
        {"schema": COLUMNS},
    ],
)
@pytest.mark.parametrize("exact", [False, True])
def test_plain_json_names_its_nulls(options, exact, tmp_path):
    """Every reader names exactly the null members of a row: complete, in pieces, by ranges, and with given columns."""
    rows = [*ROWS, {"pk": "last", "v": [None] if exact else 1}]
    nulls, _ = named(tmp_path, "".join(f"{json.dumps(row)}\n" for row in rows), **options)
    assert nulls == [[name for name, value in row.items() if value is None] for row in rows]


def test_nulls_are_named_by_their_attributes(tmp_path):
    """Nulls have the names of attributes, not of columns; nulls within a map or a text are not named."""
    field = pa.field("v_1", pa.int64(), metadata={"ddb:name": "V"})
    schema = normalize_schema(pa.schema([("pk", pa.string()), field, ("_nulls", pa.string())]))
    rows = [{"pk": "a", "v_1": None}, {"pk": "null", "v_1": 1, "_nulls": None}, {"pk": "c"}]
    nulls, column = named(tmp_path, "\n".join(map(json.dumps, rows)), schema=schema)
    assert (nulls, column) == ([["V"], ["_nulls"], []], "_nulls_")
    assert named(tmp_path, json.dumps({"pk": "a", "m": {"v": None}}))[0] == [[]]


def test_dynamodb_json_names_none(tmp_path):
    """NULL is a value."""
    rows = [{"pk": {"S": "a"}, "v": {"NULL": True}}, {"pk": {"S": "null"}}]
    assert named(tmp_path, "\n".join(map(json.dumps, rows)))[0] == [[], []]
