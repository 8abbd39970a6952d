"""The order of a log's rows: by numbers of any length, each once, the last of each item."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from ddbio.core.capture.columns import SEQUENCE
from ddbio.core.capture.log_order import in_order, last_of_each, once_each

CHANGES = st.lists(st.tuples(st.integers(0, 120), st.sampled_from("abc")), max_size=30)


def table_of(changes):
    """Return a table of numbers, items and places, in two chunks."""
    rows = [{SEQUENCE: str(number), "pk": item, "place": place} for place, (number, item) in enumerate(changes)]
    schema = pa.schema([(SEQUENCE, pa.string()), ("pk", pa.string()), ("place", pa.int64())])
    middle = len(rows) // 2
    return pa.concat_tables(pa.Table.from_pylist(part, schema) for part in (rows[:middle], rows[middle:]))


@given(CHANGES, st.booleans())
def test_rows_are_put_in_order_and_each_number_kept_once(changes, is_sorted):
    """What was in order already is treated as what was not; of rows with one number the last one stays."""
    changes = sorted(changes) if is_sorted else changes
    wanted = sorted(enumerate(changes), key=lambda each: each[1][0])
    ordered = in_order(table_of(changes))
    assert ordered.column("place").to_pylist() == [place for place, _ in wanted]
    last = {number: place for place, (number, _) in wanted}
    assert once_each(ordered).column("place").to_pylist() == list(last.values())


@given(CHANGES)
def test_of_each_item_the_last_row_is_found(changes):
    """The rows that stay are in their order, whether items repeat or not."""
    last = {item: place for place, (_, item) in enumerate(changes)}
    assert last_of_each(table_of(changes), ["pk"]).column("place").to_pylist() == sorted(last.values())
