from __future__ import annotations

import io
import json
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from item_strategies import ITEMS

import ddbio
from ddbio.cli.rows import print_json, python_lines
from ddbio.items.row_lines import JsonLinePrinter


def printed(batch):
    """Return the lines of a batch, and those of plain Python."""
    out = io.StringIO()
    print_json([batch], out)
    return out.getvalue(), "".join(python_lines(batch))


def printed_by_the_loops(batch):
    """Return the number of rows that the loops printed."""
    return sum(rows.num_rows for rows, lines in JsonLinePrinter(batch.schema).print_pieces(batch) if lines is not None)


@given(st.lists(ITEMS, min_size=1, max_size=5), st.sampled_from(["merge", "keep"]), st.booleans())
def test_items_are_printed_as_plain_python_prints_them(items, nulls, is_rescued):
    """The loops print every row of any item, in typed columns or in the rescue column, byte for byte like Python."""
    body = b"".join(json.dumps(item).encode() + b"\n" for item in items)
    schema = None if not is_rescued else pa.schema([("pk", pa.string()), ("n", pa.decimal128(38, 10))])
    rows = ddbio.from_dynamodb_json(body, schema=schema, nulls=nulls)
    for batch in rows.to_batches() if isinstance(rows, pa.Table) else [rows]:
        lines, wanted = printed(batch)
        assert lines == wanted


TIMES = st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31))  # noqa: DTZ001 - a column without a time zone
COLUMNS = {
    "text": (pa.string(), st.text(max_size=5)),
    "binary": (pa.binary(), st.binary(max_size=7)),
    "int": (pa.int64(), st.integers(-(1 << 63), (1 << 63) - 1)),
    "unsigned": (pa.uint64(), st.integers(0, (1 << 64) - 1)),
    "small": (pa.int8(), st.integers(-128, 127)),
    "decimal": (pa.decimal128(38, 6), st.decimals(-(10**31), 10**31, places=6)),
    "wide": (pa.decimal256(60, 2), st.decimals(-(10**50), 10**50, places=2)),
    "bool": (pa.bool_(), st.booleans()),
    "float": (pa.float64(), st.floats()),
    "day": (pa.date32(), st.dates()),
    "micros": (pa.timestamp("us", "UTC"), TIMES.map(lambda at: at.replace(tzinfo=UTC))),
    "seconds": (pa.timestamp("s"), TIMES.map(lambda at: at.replace(microsecond=0))),
    "millis": (pa.timestamp("ms"), TIMES.map(lambda at: at.replace(microsecond=at.microsecond // 1000 * 1000))),
}


@st.composite
def columns(draw, depth=2):
    """Draw a type, and a strategy for its values."""
    chosen = draw(st.sampled_from([*COLUMNS, *(["list", "struct", "map"] if depth else [])]))
    if chosen in COLUMNS:
        return COLUMNS[chosen]
    inside, values = draw(columns(depth - 1))
    if chosen == "list":
        return pa.list_(inside), st.lists(st.none() | values, max_size=3)
    if chosen == "map":
        return pa.map_(pa.string(), inside), st.lists(st.tuples(st.text(max_size=3), st.none() | values), max_size=3)
    return pa.struct([("x", inside), ("é", pa.string())]), st.fixed_dictionaries({"x": st.none() | values, "é": st.none() | st.text(max_size=3)})  # fmt: skip # noqa: E501


@given(st.data())
def test_rows_of_any_columns_are_printed_as_plain_python_prints_them(data):
    """For types that items lack, nulls within maps, and names that are no attribute's, the lines are the same."""
    columns_drawn = [data.draw(columns()) for _ in range(data.draw(st.integers(1, 3)))]
    names = data.draw(
        st.lists(st.text(max_size=3), min_size=len(columns_drawn), max_size=len(columns_drawn), unique=True)
    )
    count = data.draw(st.integers(1, 4))
    drawn = [data.draw(st.lists(st.none() | values, min_size=count, max_size=count)) for _, values in columns_drawn]
    batch = pa.record_batch(
        [pa.array(values, kind) for values, (kind, _) in zip(drawn, columns_drawn, strict=True)], names
    )
    start = data.draw(st.integers(0, count - 1))
    lines, wanted = printed(batch.slice(start))
    assert lines == wanted


def test_the_loops_print_everything_that_items_contain():
    """Sets, text in JSON, rescued values, times and empty maps. An empty row is an object."""
    batch = pa.record_batch(
        {
            "s": pa.array([["b", "a", "a"], [], None], pa.list_(pa.string())),
            "m": pa.array([[], [("k", "1")], None], pa.map_(pa.string(), pa.string())),
            "d": pa.array([Decimal("1.50"), Decimal("-100.00"), None], pa.decimal128(38, 2)),
            "t": pa.array([datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, 1, 2, 3, 4, tzinfo=UTC), None]),
            "_rescue": pa.array(['{"x":{"S":"é"}}', None, '{"y":{"NULL":true}}'], pa.string()),
        }
    )
    tags = {"s": "SS", "m": "M", "d": "N"}
    fields = [
        field.with_metadata({"ddb:type": tags[field.name]} if field.name in tags else None) for field in batch.schema
    ]
    batch = pa.RecordBatch.from_arrays(batch.columns, schema=pa.schema(fields))
    assert printed_by_the_loops(batch) == 3
    lines, wanted = printed(batch)
    assert lines == wanted
    assert lines.splitlines() == [
        '{"s":["b","a","a"],"m":{},"d":1.5,"t":"2026-01-01T00:00:00+00:00","_rescue":{"x":{"S":"é"}}}',
        '{"s":[],"m":{"k":"1"},"d":-100,"t":"2026-01-01T01:02:03.000004+00:00"}',
        '{"_rescue":{"y":{"NULL":true}}}',
    ]


@pytest.mark.parametrize(
    ("column", "quick"),
    [
        (pa.array([1.0, None, 1e20]), 0),
        (pa.array([date(2026, 1, 1), None, None]), 0),
        (pa.array([[("a", None)], [], None], pa.map_(pa.string(), pa.string())), 0),
        (pa.array([[("a", "x"), ("a", "y")], [], None], pa.map_(pa.string(), pa.string())), 2),
        (pa.array(["x" * 500_000, "y", None]), 2),
        (pa.array([b"\0", b"", None]), 3),
    ],
    ids=["floats", "days", "null_in_map", "twice_in_map", "too_large", "binary"],
)
def test_what_no_item_has_is_left_to_python(column, quick):
    """Python prints whole columns, or only the rows that are not items. The other lines keep their positions."""
    batch = pa.record_batch({"v": column, "n": [1, 2, 3]})
    assert printed_by_the_loops(batch) == quick
    lines, wanted = printed(batch)
    assert lines == wanted
    assert len(lines.splitlines()) == 3
