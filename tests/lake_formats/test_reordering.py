"""Reordered columns, by loops and by Arrow."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddbio.lake_formats import reordering

WORDS = st.none() | st.text(max_size=40)
COUNTS = st.none() | st.integers(-(2**40), 2**40)
COLUMNS = {
    pa.string(): WORDS,
    pa.binary(): st.none() | st.binary(max_size=40),
    pa.int64(): COUNTS,
    pa.bool_(): st.none() | st.booleans(),
    pa.decimal128(38, 2): st.none() | st.integers(-99, 99).map(lambda number: Decimal(number) / 4),
    pa.list_(pa.string()): st.none() | st.lists(WORDS, max_size=3),
    pa.map_(pa.string(), pa.int64()): st.none()
    | st.dictionaries(st.text(max_size=3), COUNTS, max_size=3).map(lambda entries: [*entries.items()]),
    pa.struct({"a": pa.string(), "b": pa.list_(pa.int64())}): st.none()
    | st.fixed_dictionaries({"a": WORDS, "b": st.none() | st.lists(COUNTS, max_size=2)}),
    pa.list_(pa.struct({"a": pa.string(), "b": pa.decimal128(38, 2)})): st.none()
    | st.lists(st.none() | st.fixed_dictionaries({"a": WORDS, "b": st.none()}), max_size=3),
}


@pytest.mark.parametrize("kind", COLUMNS, ids=str)
@given(data=st.data())
def test_a_column_in_another_order(kind, data):
    """Every value is at its new index, for all types, nulls and slices."""
    lots = [data.draw(st.lists(COLUMNS[kind], min_size=1, max_size=8)) for _ in range(data.draw(st.integers(1, 3)))]
    # Each array is a slice of a longer one.
    arrays = [pa.array([lot[-1], *lot, lot[0]], kind).slice(1, len(lot)) for lot in lots]
    values = pa.concat_arrays(arrays).to_pylist()
    order = np.array(data.draw(st.permutations(range(len(values)))), np.int64)
    reordered = reordering.reordered(arrays, order)
    reordered.validate(full=True)
    assert reordered.type == kind
    assert reordered.to_pylist() == [values[row] for row in order]
