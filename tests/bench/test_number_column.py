from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from item_strategies import NUMBERS

from bench.pyarrow_json.number_column import cast_numbers
from ddbio.errors import DecodeError
from ddbio.items.reference import RowBuilder
from ddbio.items.rescue import MisfitLog
from ddbio.items.schema.arrow import normalize_schema, tagged_field

TYPES = [pa.int64(), pa.int32(), pa.int8(), pa.uint64(), pa.decimal128(38, 0), pa.decimal128(38, 2)]
TYPES += [pa.decimal128(38, 38), pa.decimal128(9, 2), pa.decimal256(60, 10), pa.float64(), pa.float32(), pa.string()]
TYPES += [pa.large_string()]
SPELLED = NUMBERS | st.sampled_from(["-0", "007", "1.50", "5.", ".5", "1e3", "+1"])


@pytest.mark.parametrize("arrow_type", TYPES, ids=str)
@given(texts=st.lists(st.none() | SPELLED, max_size=4))
@example(texts=["1" * 38])
@example(texts=["9" * 36, "0.01"])
@example(texts=["0." + "0" * 37 + "1"])
@example(texts=["128", "-128"])
def test_a_cast_is_exact_or_refused(arrow_type, texts):
    """A cast gives the values of the reference, or refuses the column. It never rounds or wraps."""
    schema = normalize_schema(pa.schema([tagged_field("a", arrow_type, "N")]))
    log = MisfitLog()
    items = [{} if text is None else {"a": {"N": text}} for text in texts]
    expected = RowBuilder(schema, keep_nulls=True).batch(items, log)
    try:
        column = cast_numbers(pa.array(texts, pa.string()), arrow_type)
    except (DecodeError, pa.ArrowException):
        return
    assert not log.misfits()
    assert column.equals(expected.column("a"))


@pytest.mark.parametrize("text", ["0x1f", "1e3", " 1", "1_0", "nan", "inf", "+1", "", "-", "1/2", "\uff11", "1" * 39])
@pytest.mark.parametrize("arrow_type", TYPES[:-2], ids=str)
def test_lenient_spellings_are_left_to_the_reference(text, arrow_type):
    """A text that a cast of Arrow would accept, but the service would not, is refused; so are more than 38 digits."""
    with pytest.raises((DecodeError, pa.ArrowException)):
        cast_numbers(pa.array([text]), arrow_type)


def test_38_digits_do_not_wrap_around():
    """Scaling 38 digits up does not silently exceed a bound. Arrow's own cast gives another number here."""
    assert pa.array(["1" * 38]).cast(pa.decimal128(38, 2))[0].as_py() != Decimal("1" * 38)
    with pytest.raises(pa.ArrowInvalid):
        cast_numbers(pa.array(["1" * 38]), pa.decimal128(38, 2))


def test_text_columns_have_canonical_numbers():
    """A number kept as text is canonical."""
    numbers = pa.array(["1e3", None, "1.50", "1e100", "-0", "7"])
    assert cast_numbers(numbers, pa.string()).to_pylist() == ["1000", None, "1.5", "1" + "0" * 100, "0", "7"]
