# ruff: noqa: DTZ001 - INT96 has no zone
from __future__ import annotations

import datetime as dt
import re
import struct

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ddbio.errors import DecodeError
from ddbio.formats.parquet_input import open_parquet, read_parquet

YEARS = [dt.datetime(1, 1, 1), dt.datetime(1677, 9, 21), dt.datetime(2024, 2, 29, 1, 2, 3, 4), None,
         dt.datetime(2262, 4, 12), dt.datetime(9999, 12, 31, 23, 59, 59, 999999)]  # fmt: skip
FIRST_JULIAN_DAY = 2_440_588


def file_of(array, metadata=None, **options):
    """Return a file with a column ``v``, which is INT96 if it has timestamps."""
    sink = pa.BufferOutputStream()
    table = pa.table({"v": array, "n": range(len(array))}).replace_schema_metadata(metadata)
    pq.write_table(table, sink, use_deprecated_int96_timestamps=True, **options)
    return pa.BufferReader(sink.getvalue())


@pytest.mark.parametrize(
    ("kind", "wrapped"),
    [
        (pa.timestamp("us"), lambda time: time),
        (pa.timestamp("us", "Europe/Berlin"), lambda time: time),
        (pa.list_(pa.timestamp("us")), lambda time: [time, time]),
        (pa.struct([("t", pa.timestamp("us"))]), lambda time: {"t": time}),
        (pa.map_(pa.string(), pa.timestamp("us")), lambda time: [("k", time)]),
        (pa.list_(pa.struct([("t", pa.timestamp("us"))])), lambda time: [{"t": time}]),
    ],
    ids=["time", "zone", "list", "struct", "map", "list of struct"],
)
def test_all_years_of_int96_are_read(kind, wrapped):
    """Every method of reading, and every nesting, returns the years 0001 to 9999."""
    array = pa.array([wrapped(time) for time in YEARS], kind)
    source = file_of(array, row_group_size=2)
    opened = open_parquet(source)
    tables = [
        opened.read(),
        pa.Table.from_batches(opened.iter_batches(1)),
        pa.concat_tables(opened.read_row_group(group) for group in range(3)),
        opened.read_row_groups([0, 1, 2], columns=["v"]),
        read_parquet(source, ["v"]),
    ]
    wanted = array.cast(pa.timestamp("us")).to_pylist() if pa.types.is_timestamp(kind) else array.to_pylist()
    assert [table.column("v").to_pylist() for table in tables] == [wanted] * 5
    assert len(list(opened.iter_batches(6, row_groups=[1], columns=["n"]))) == 1


@pytest.mark.parametrize(("days", "nanoseconds", "what"), [
    (19_723, 1, "finer than a microsecond"),
    (19_723, 999, "finer than a microsecond"),
    (2_932_896, 1_001, "finer than a microsecond"),
    (2**31 - 1 - FIRST_JULIAN_DAY, 0, "beyond the year 9999"),
    (-(2**31) - FIRST_JULIAN_DAY, 0, "beyond the year 9999"),
    (200_000_000, 0, "beyond the year 9999"),
])  # fmt: skip
def test_an_int96_outside_of_microseconds_is_refused(days, nanoseconds, what):
    """The value is neither truncated nor wrapped."""
    zero = struct.pack("<qi", 0, FIRST_JULIAN_DAY)
    data = file_of(pa.array([YEARS[0], dt.datetime(1970, 1, 1)]), compression="none", use_dictionary=False).read()
    assert data.count(zero) == 1
    damaged = data.replace(zero, struct.pack("<qi", nanoseconds, (days + FIRST_JULIAN_DAY + 2**31) % 2**32 - 2**31))
    with pytest.raises(DecodeError, match=f"v: an INT96 timestamp of row group 0 is {what}"):
        read_parquet(pa.BufferReader(damaged))


SPARK = b"org.apache.spark.version"


@pytest.mark.parametrize("metadata", [
    {SPARK: b"2.4.5"},
    {SPARK: b"3.5.0", b"org.apache.spark.legacyDateTime": b""},
    {SPARK: b"4.0.0", b"org.apache.spark.legacyINT96": b""},
])  # fmt: skip
@pytest.mark.parametrize(("old", "new"), [
    (dt.date(1582, 10, 14), dt.date(1582, 10, 15)),
    (dt.date(1, 1, 1), dt.date(9999, 12, 31)),
    (dt.datetime(1899, 12, 31, 23), dt.datetime(1900, 1, 1)),
    ([None, {"t": dt.datetime(1, 1, 1)}], [{"t": dt.datetime(2024, 1, 1)}]),
    ({"d": dt.date(1, 1, 1)}, {"d": None}),
])  # fmt: skip
def test_old_times_of_the_julian_calendar_are_refused(metadata, old, new):
    """Times that are equal in both calendars are read, and so are files of Spark 3."""
    assert read_parquet(file_of(pa.array([new, None]), metadata)).column("v").to_pylist() == [new, None]
    assert read_parquet(file_of(pa.array([old]), {SPARK: b"3.5.0"})).column("v").to_pylist() == [old]
    with pytest.raises(DecodeError, match=re.escape("Spark wrote it in the Julian calendar")):
        read_parquet(file_of(pa.array([old]), metadata))


def test_other_files_are_opened_by_arrow_alone():
    """Files without these types have no further checks."""
    assert type(open_parquet(file_of(pa.array([1])))) is pq.ParquetFile
