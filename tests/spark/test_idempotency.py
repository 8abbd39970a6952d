"""Keys of rows on Spark are those of Arrow."""

from __future__ import annotations

from datetime import date
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ddbio
from ddbio.errors import OptionError
from ddbio.spark.functions import idempotency_key

SMALL = pa.decimal128(38, 30)
COLUMNS = {
    "text": pa.array(["", "a:1", "é\x00", None]),
    "whole": pa.array([0, -1, 2**62, None], pa.int64()),
    "byte": pa.array([0, -1, 127, None], pa.int8()),
    "price": pa.array([Decimal("1.00"), Decimal("-0.10"), Decimal("100.00"), None], pa.decimal128(9, 2)),
    "small": pa.array([Decimal("1E-30"), Decimal("-1.5E-20"), Decimal(0), None], SMALL),
    "raw": pa.array([b"", b"\xff\x00", b"a", None], pa.binary()),
    "flag": pa.array([True, False, True, None]),
    "day": pa.array([date(1600, 2, 29), date(2026, 11, 21), date(1969, 12, 31), None]),
    "far": pa.array([2_932_897, 10**7, 2_932_896, None], pa.int32()).cast(pa.date32()),
    "broken": pa.array([b"\xff", b"a\xc3", b"", None], pa.binary()).view(pa.string()),
    "at": pa.array([1761352200000001, 0, -31532338000001, None]).cast(pa.timestamp("us", "UTC")),
    "local": pa.array([1761359400000000, -315619200000000, 253_402_300_800_000_001, None]).cast(pa.timestamp("us")),
}


@pytest.mark.parametrize(
    ("zone", "ansi"),
    [
        ("UTC", "true"),
        ("Europe/Berlin", "false"),
        pytest.param("UTC", "false", marks=pytest.mark.nightly),
        pytest.param("Europe/Berlin", "true", marks=pytest.mark.nightly),
    ],
)
def test_keys_are_those_of_arrow(spark, tmp_path, zone, ansi):
    """Each kind of value, alone and combined, has the key of Arrow, regardless of the session's settings."""
    table = pa.table(COLUMNS)
    pq.write_table(table, tmp_path / "rows.parquet")
    before = {name: spark.conf.get(name) for name in ("spark.sql.session.timeZone", "spark.sql.ansi.enabled")}
    try:
        spark.conf.set("spark.sql.session.timeZone", zone)
        spark.conf.set("spark.sql.ansi.enabled", ansi)
        frame = spark.read.parquet(str(tmp_path / "rows.parquet")).coalesce(1)
        wanted = [*([name] for name in COLUMNS), list(COLUMNS)]
        keys = frame.select(*(idempotency_key(*names).alias(str(n)) for n, names in enumerate(wanted))).collect()
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)
    for index, names in enumerate(wanted):
        assert [row[index] for row in keys] == ddbio.idempotency_key(table, names).to_pylist(), names


def test_floats_and_nothing_are_refused(spark):
    """A float fails the query with a remedy. A call without columns is an immediate error."""
    with pytest.raises(Exception, match="a column is of type double: idempotency_key takes"):
        spark.range(1).selectExpr("cast(id as double) as x").select(idempotency_key("x")).collect()
    with pytest.raises(OptionError, match="at least one column"):
        idempotency_key()
