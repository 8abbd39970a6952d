from __future__ import annotations

import datetime as dt
from decimal import Decimal
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ddbio.errors import OptionError, TargetError
from ddbio.formats.partitions import NOT_A_TIME, PartitionBy, Partitioner, escape, folder_of, partitioning_of
from ddbio.formats.time_parts import local_times
from ddbio.storage.paths import hive_partition

RESCUE = pa.field("_rescue", pa.string())


def tagged(name, kind, tag):
    """Return a field as the decoder creates it."""
    return pa.field(name, kind, metadata={b"ddb:type": tag.encode()})


def sort(batch, *texts, **options):
    """Return partition, rows and misfits of a batch, and the columns of the files."""
    partitioner = Partitioner(partitioning_of(PartitionBy(texts=texts, **options), batch.schema), batch.schema)
    sorted_rows = partitioner.sort(batch)
    rows, start = {}, 0
    for values, count in zip(sorted_rows.partitions, sorted_rows.counts, strict=True):
        rows[values] = sorted_rows.rows.slice(start, count).to_pylist()
        start += count
    return rows, [(misfit.path, misfit.kind, misfit.count, misfit.example) for misfit in partitioner.log.misfits()]


@given(st.text(min_size=1, max_size=60), st.text(min_size=1, max_size=40))
def test_a_folder_has_its_column_and_value(name, value):
    """Any name and value are restored from the path, which has one folder for them and no control characters."""
    folder = folder_of({name: value})
    assert folder.count("/") == 1
    assert folder.endswith("/")
    assert not any(character < " " or character in "\"#'*:?\\{[]^\x7f" for character in folder[:-1])
    assert hive_partition(f"{folder}file") == {name: value}


def test_characters_are_escaped_as_in_hive():
    """Exactly Hive's characters are escaped: spaces, dots, closing braces and letters of any language are not."""
    assert escape("\x01\t\n\r\x1f\"#%'*/:=?\\\x7f{[]^") == (
        "%01%09%0A%0D%1F%22%23%25%27%2A%2F%3A%3D%3F%5C%7F%7B%5B%5D%5E"
    )
    assert escape("a b.c}|&+~ é日𝄞") == "a b.c}|&+~ é日𝄞"
    assert folder_of({"a": None, "b": ""}) == "a=__HIVE_DEFAULT_PARTITION__/b=__HIVE_DEFAULT_PARTITION__/"
    with pytest.raises(TargetError, match="at most 255"):
        folder_of({"a": "x" * 300})


def test_rows_are_sorted_by_partition_in_their_order():
    """Rows of one partition keep their order; partition columns are dropped unless they are kept."""
    batch = pa.record_batch({"pk": [1, 2, 3, 4], "t": ["b", None, "b", "a"], "n": [1, 1, 2, 1]})
    rows, misfits = sort(batch, "t", "n")
    assert rows == {("a", "1"): [{"pk": 4}], ("b", "1"): [{"pk": 1}], ("b", "2"): [{"pk": 3}], (None, "1"): [{"pk": 2}]}
    assert misfits == []
    kept, _ = sort(batch, "t", keep_columns=True)
    assert kept[(None,)] == [{"pk": 2, "t": None, "n": 1}]


def test_values_that_are_not_folder_names_are_rescued():
    """An empty text, and the name of the null partition, are in the null partition, and stored exactly."""
    names = ["", "__HIVE_DEFAULT_PARTITION__", "a"]
    batch = pa.record_batch([pa.array(names), pa.array([None, '{"x":{"N":"1"}}', None])], schema=pa.schema(
        [tagged("t", pa.string(), "S"), RESCUE]))  # fmt: skip
    rows, misfits = sort(batch, "t")
    assert rows[(None,)] == [
        {"_rescue": '{"t":{"S":""}}'},
        {"_rescue": '{"t":{"S":"__HIVE_DEFAULT_PARTITION__"},"x":{"N":"1"}}'},
    ]
    assert [count for _, _, count, _ in misfits] == [2]


def test_values_have_the_text_of_dynamodb():
    """Numbers have no digits that only the scale adds, booleans are lower case, texts of numbers are unchanged."""
    fields = [
        tagged("d", pa.decimal128(38, 2), "N"), tagged("b", pa.bool_(), "BOOL"), tagged("t", pa.string(), "N"),
    ]  # fmt: skip
    batch = pa.record_batch([[Decimal("-1.50")], [True], ["1.5E+40"]], schema=pa.schema(fields))
    assert list(sort(batch, "d", "b", "t")[0]) == [("-1.5", "true", "1.5E+40")]
    decimals = pa.record_batch([pa.array([Decimal("100.00")], pa.decimal128(38, 2))], ["d"])
    assert list(sort(decimals, "d")[0]) == [("100",)]


INSTANTS = st.datetimes(dt.datetime(1, 1, 3), dt.datetime(9999, 12, 29), timezones=st.just(dt.UTC))  # noqa: DTZ001
ZONES = st.sampled_from(["UTC", "Europe/Berlin", "America/St_Johns", "Asia/Kathmandu"])


@settings(max_examples=150, deadline=None)
@given(st.lists(INSTANTS, min_size=1, max_size=8), ZONES)
def test_times_are_those_of_the_standard_library(instants, zone):
    """Every notation of an instant gives its local time, also before 1970, rounded down to a microsecond."""
    wanted = [instant.astimezone(ZoneInfo(zone)).replace(tzinfo=None) for instant in instants]
    since = [(instant - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(microseconds=1) for instant in instants]
    iso = pa.array([instant.isoformat() for instant in instants])
    assert local_times(iso, "auto", zone).to_pylist() == wanted
    mixed = pa.array([*[instant.isoformat().replace("+00:00", "Z") for instant in instants], "x"])
    assert local_times(mixed, "auto", zone).to_pylist() == [*wanted, None]
    assert local_times(pa.array(since), "us", zone).to_pylist() == wanted
    seconds = [time.replace(microsecond=0) for time in wanted]
    assert local_times(pa.array([micros // 10**6 for micros in since]), "s", zone).to_pylist() == seconds
    decimals = pa.array([Decimal(micros).scaleb(-6) for micros in since], pa.decimal128(38, 6))
    assert local_times(decimals, "s", zone).to_pylist() == seconds
    texts = pa.array([f"{Decimal(micros).scaleb(-6):f}" for micros in since])
    assert local_times(texts, "s", zone).to_pylist() == seconds


def test_units_follow_from_magnitude():
    """Seconds, milli-, micro- and nanoseconds are distinguished by magnitude, by a documented rule."""
    numbers = pa.array(
        [1_700_000_000, -1_700_000_000_000, 1_700_000_000_000_000, 1_700_000_000_000_000_000, 10**11 - 1]
    )
    years = [time.year for time in local_times(numbers, "auto", "UTC").to_pylist()]
    assert years == [2023, 1916, 2023, 2023, 5138]


def test_a_number_of_64_bits_without_sign_is_a_time_or_none():
    """Numbers above 63 bits are beyond the year 9999 in any unit except nanoseconds, so they are not times."""
    numbers = pa.array([1_700_000_000, 2**63 - 1, 2**63, 2**64 - 1, None], pa.uint64())
    years = [time and time.year for time in local_times(numbers, "auto", "UTC").to_pylist()]
    assert years == [2023, 2262, None, None, None]


def test_invalid_times_have_the_null_partition_and_are_counted():
    """Invalid text and numbers are counted with the first example; nulls are not counted."""
    batch = pa.record_batch(
        [["2024-02-30", None, "1969-12-31T23:30:00-01:00", "soon", "2024-02-29"]],
        schema=pa.schema([tagged("ts", pa.string(), "S")]),
    )
    rows, misfits = sort(batch, "year(ts)", "month(ts)", "day(ts)", "hour(ts) as h")
    partitions = {values: len(rows_of_partition) for values, rows_of_partition in rows.items()}
    assert partitions == {("1970", "1", "1", "0"): 1, ("2024", "2", "29", "0"): 1, (None, None, None, None): 3}
    assert misfits[0] == ("year(ts)", NOT_A_TIME, 2, '{"S":"2024-02-30"}')
    assert rows[("2024", "2", "29", "0")] == [{"ts": "2024-02-29"}]


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["nothing"], "no column for 'nothing'"),
        (["b"], "have no text"),
        (["year(b)"], "are not times"),
        (["year(ts)"], "would be called 'year', as a column is already: give it another name, such as 'year"),
        (["month(ts)", "month(pk)"], "as month"),
        (["pk", "pk"], "a column twice"),
    ],
)
def test_bad_columns_are_refused(texts, message):
    """A missing column, one without text or time, or a duplicate name is an error of options."""
    schema = pa.schema([("pk", pa.string()), ("b", pa.binary()), ("ts", pa.string()), ("Year", pa.int64())])
    with pytest.raises(OptionError, match=message):
        partitioning_of(PartitionBy(texts=tuple(texts)), schema)


def test_an_attribute_may_be_called_like_a_part():
    """A name of an attribute is that attribute, even if it looks like a function."""
    schema = pa.schema([("year(ts)", pa.string()), ("ts", pa.string())])
    assert partitioning_of(PartitionBy(texts=("year(ts)",)), schema).columns[0].part is None
