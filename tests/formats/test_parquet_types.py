# ruff: noqa: DTZ001 - most files have times without a zone
from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ddbio.formats.parquet_types import FooterFacts, stored_types

INT96 = "use_deprecated_int96_timestamps"


def of_arrow(array, **options):
    """Return an open file with one column, written by Arrow."""
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"v": array}), sink, **options)
    return pq.ParquetFile(pa.BufferReader(sink.getvalue()), coerce_int96_timestamp_unit="us")


def of_duckdb(expression, tmp_path):
    """Return an open file, written by DuckDB."""
    duckdb.sql(f"COPY (SELECT {expression} AS v) TO '{tmp_path}/x.parquet'")
    return pq.ParquetFile(tmp_path / "x.parquet")


@pytest.mark.parametrize(("expression", "options"), [
    ("1::INTEGER", []), ("1::UBIGINT", []), ("uuid()", []), ("'{}'::JSON", []), ("[uuid()]", []), ("1.5::FLOAT", []),
    ("1.5::DECIMAL(9, 2)", ["store_decimal_as_integer"]), ("1.5::DECIMAL(18, 2)", ["store_decimal_as_integer"]),
    ("1.5::DECIMAL(38, 2)", []), ("TIME '12:00:00'", []), ("TIMETZ '12:00:00+02'", ["write_time_adjusted_to_utc"]),
    ("[TIMETZ '12:00:00+02']", ["write_time_adjusted_to_utc"]), ("TIMESTAMP '9999-12-31'", []),
    ("TIMESTAMPTZ '2024-01-01 00:00:00+00'", []),
    ("MAP {'k': 1}", []), ("{'a': 1, 'b': [1]}", []), ("'e'::ENUM ('e')", []), ("DATE '0001-01-01'", []), ("NULL", []),
])  # fmt: skip
def test_types_that_arrow_writes_again(tmp_path, expression, options):
    """A few of them need an option."""
    types = stored_types(of_duckdb(expression, tmp_path))
    assert (types.options, types.unwritable) == (tuple((name, True) for name in options), "")


@pytest.mark.parametrize(("expression", "why"), [
    ("INTERVAL 1 MONTH", "v is stored as FIXED_LEN_BYTE_ARRAY Interval, and Arrow would write FIXED_LEN_BYTE_ARRAY"),
    ("[INTERVAL 1 DAY]", "v.list.element is stored as FIXED_LEN_BYTE_ARRAY Interval"),
    ("{'t': TIME '12:00:00', 'z': TIMETZ '12:00:00+02'}", "v.t is stored as INT64 Time isAdjustedToUTC=False"),
])  # fmt: skip
def test_types_that_arrow_changes(tmp_path, expression, why):
    """The reason names them."""
    assert why in stored_types(of_duckdb(expression, tmp_path)).unwritable


@pytest.mark.parametrize(("array", "written", "wanted"), [
    (pa.array([dt.datetime(9999, 1, 1)]), {INT96: True}, [INT96]),
    (pa.array([[dt.datetime(1, 1, 1)]]), {INT96: True}, [INT96]),
    (pa.array([Decimal("1.5")], pa.decimal128(9, 2)), {}, []),
    (pa.array([Decimal("1.5")], pa.decimal256(60, 2)), {}, []),
    (pa.array([1], pa.timestamp("ms")), {"version": "1.0"}, []),
    (pa.array(["a"]).dictionary_encode(), {}, []),
    (pa.array(["a"], pa.large_string()), {}, []),
    (pa.array([[1]]), {"use_compliant_nested_type": False}, []),
    (pa.array([1.5], pa.float16()), {}, []),
    (pa.array([b"abc"], pa.binary(3)), {}, []),
    (pa.nulls(1), {}, []),
])  # fmt: skip
def test_types_of_arrow(array, written, wanted):
    """All of them are written with the same types."""
    types = stored_types(of_arrow(array, **written))
    assert (types.options, types.unwritable) == (tuple((name, True) for name in wanted), "")


def facts(*arrays, **options):
    """Return the facts of files of one column each."""
    footer_facts = FooterFacts()
    for array in arrays:
        footer_facts.add(of_arrow(array, **options).metadata)
    return footer_facts


@pytest.mark.parametrize(("old", "new", "difference"), [
    ([1, 2, 3], [1, 2, 4], "column v has 3 as the greatest value, and then 4"),
    ([1, 2, 3], [0, 2, 3], "column v has 1 as the least value, and then 0"),
    ([1, None, 3], [1, 2, 3], "column v has 2 values, and then 3"),
    ([1.5, None], [1.25, None], "column v has 1.5 as the least value, and then 1.25"),
    ([True, False], [True, True], "column v has False as the least value, and then True"),
    ([dt.datetime(9999, 1, 1)], [dt.datetime(1815, 3, 30)], "column v has 253370764800000000 as the least value"),
    ([dt.date(9999, 1, 1)], [dt.date(1, 1, 1)], "column v has 2932532 as the least value"),
    (["a", None], ["a", "b"], "column v has 1 values, and then 2"),
    ([None], [1], "column v has 0 values, and then 1"),
    ([[1], None], [[2], None], ""),
    ([1, 2, 3], [1, 3, 2], ""),
    ([math.nan, 1.0], [1.0, 5.0], ""),
    ([0.0], [-0.0], ""),
])  # fmt: skip
def test_facts_of_footers_are_compared(old, new, difference):
    """Different values are reported, another order is not."""
    kind = pa.int64() if old == [None] else None
    half = len(old) // 2
    facts_of_halves = facts(
        pa.array(old[:half], pa.array(old, kind).type), pa.array(old[half:], pa.array(old, kind).type)
    )
    shown = facts_of_halves.difference(facts(pa.array(new)))
    assert shown.startswith(difference) if difference else shown == ""


def test_a_missing_fact_is_not_a_difference():
    """A writer may omit statistics; unsigned numbers have their own order."""
    assert facts(pa.array([1]), write_statistics=False).difference(facts(pa.array([2]))) == ""
    large = pa.array([1, 2**32 - 1], pa.uint32())
    assert facts(large[:1], large[1:]).difference(facts(large)) == ""
