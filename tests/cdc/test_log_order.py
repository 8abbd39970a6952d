"""Order of a log's rows: by numbers of any length, and the last row of each item."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ddbio
from ddbio.cdc.log_order import in_order, in_time_order, last_of_each
from ddbio.formats.log_columns import SEQUENCE
from ddbio.items.item_key import key_identity

CHANGES = st.lists(st.tuples(st.integers(0, 120), st.sampled_from("abc")), max_size=30)


def table_of(changes):
    """Return a table of numbers, items and positions, in two chunks."""
    rows = [{SEQUENCE: str(number), "pk": item, "place": index} for index, (number, item) in enumerate(changes)]
    schema = pa.schema([(SEQUENCE, pa.string()), ("pk", pa.string()), ("place", pa.int64())])
    middle = len(rows) // 2
    return pa.concat_tables(pa.Table.from_pylist(part, schema) for part in (rows[:middle], rows[middle:]))


@given(CHANGES, st.booleans())
def test_rows_are_put_in_order(changes, is_sorted):
    """Ordered rows are treated like others. Rows with the same number keep their order."""
    changes = sorted(changes) if is_sorted else changes
    wanted = sorted(enumerate(changes), key=lambda value: value[1][0])
    ordered = in_order(table_of(changes))
    assert ordered.column("place").to_pylist() == [index for index, _ in wanted]


@given(CHANGES)
def test_of_each_item_the_last_row_is_found(changes):
    """The remaining rows keep their order, with and without repeated items."""
    last = {item: index for index, (_, item) in enumerate(changes)}
    assert last_of_each(table_of(changes), ["pk"]).column("place").to_pylist() == sorted(last.values())


RESCUED = [
    ("N", pa.int64(), ["1", "1.5", "2", "1.50", "1.5E0", "2.5"]),
    ("N", pa.int64(), ["9" * 38, "1E+100", "-1E-100", "1E+100"]),
    ("N", pa.decimal128(5, 2), ["1.25", "1.125", "1.25", "1.125"]),
    ("N", pa.string(), ["1.5", "2.5", "1.5"]),
    ("S", pa.string(), ["a", "b", "a"]),
    ("S", pa.int64(), ["a", "1", "a"]),
    ("B", pa.string(), ["AA==", "AQ==", "AA=="]),
]


@pytest.mark.parametrize(("tag", "arrow", "texts"), RESCUED)
@pytest.mark.parametrize("with_range", [False, True])
def test_the_last_row_of_items_with_rescued_keys_is_found(tag, arrow, texts, with_range):
    """A rescued key identifies items like a column, in every spelling of a number."""
    keys = ["pk", "k"] if with_range else ["k"]
    schema = pa.schema([pa.field("pk", pa.string()), pa.field("k", arrow), pa.field("v", pa.int64())])
    lines = [json.dumps({"Item": {"pk": {"S": "p"}, "k": {tag: text}}}) for text in texts]
    rows = pa.Table.from_batches([ddbio.from_dynamodb_json("\n".join(lines).encode(), schema)])
    rows = pa.concat_tables([rows.slice(0, 2), rows.slice(2)]).append_column("place", pa.array(range(len(texts))))
    last = {key_identity({"k": {tag: value}}, ["k"]): index for index, value in enumerate(texts)}
    assert last_of_each(rows, keys).column("place").to_pylist() == sorted(last.values())


def test_rows_of_several_streams_are_put_in_the_order_of_their_times():
    """The numbers of a newer stream may be smaller. Rows with the same time are in the order of their numbers."""
    times = pa.array([9, 9, 7, 8, 9], pa.timestamp("s", "UTC")).cast(pa.timestamp("us", "UTC"))
    rows = pa.table({SEQUENCE: ["10", "9", "500", "1000", "11"], "_event_time": times})
    assert in_time_order(rows).column(SEQUENCE).to_pylist() == ["500", "1000", "9", "10", "11"]
