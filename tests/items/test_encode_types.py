from __future__ import annotations

import json
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

import ddbio
from ddbio.errors import SchemaError
from ddbio.items.encode import EncodeOptions, Encoder
from ddbio.items.kernel.arrays import take_rows


def values_of(array, **options):
    """Return the attribute value of each entry of an array, or None without one."""
    batch = pa.RecordBatch.from_arrays([array], names=["a"])
    lines = Encoder(batch.schema, options=EncodeOptions(**options)).encode_lines(batch).splitlines()
    return [json.loads(line).get("a") for line in lines]


def numbers(*texts):
    """Return the texts as attribute values, None as None."""
    return [None if text is None else {"N": text} for text in texts]


TEXTS = ["a", None, 'q"\\\n\x01é', "x" * 100]
WANTED = [None if text is None else {"S": text} for text in TEXTS]


@pytest.mark.parametrize(
    "array",
    [
        pa.array(TEXTS, pa.string()),
        pa.array(TEXTS, pa.large_string()),
        pa.array(TEXTS, pa.string_view()),
        pa.array(TEXTS).dictionary_encode(),
        pa.RunEndEncodedArray.from_arrays([1, 2, 3, 4], pa.array(TEXTS)),
        pa.DictionaryArray.from_arrays([0, 1, 2, 3], pa.array(TEXTS, pa.string_view())),
        pa.RunEndEncodedArray.from_arrays([1, 2, 3, 4], pa.array(TEXTS, pa.string_view())),
        pa.ExtensionArray.from_storage(pa.json_(pa.string_view()), pa.array(TEXTS, pa.string_view())),
    ],
    ids=lambda array: str(array.type),
)
def test_every_kind_of_text(array):
    """Text is S in every Arrow layout, also in a slice."""
    assert values_of(array) == WANTED
    assert values_of(array.slice(2)) == WANTED[2:]


@pytest.mark.parametrize("arrow_type", [pa.binary(), pa.large_binary(), pa.binary_view(), pa.binary(3)], ids=str)
def test_every_kind_of_bytes(arrow_type):
    """Bytes are B in base64 in every Arrow layout."""
    assert values_of(pa.array([b"abc", None, b"\xff\xfe\0"], arrow_type)) == [{"B": "YWJj"}, None, {"B": "//4A"}]


@pytest.mark.parametrize("signed", [True, False])
@pytest.mark.parametrize("bits", [8, 16, 32, 64])
def test_every_integer(bits, signed):
    """Integers are N at both ends of their range."""
    smallest, largest = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
    arrow_type = getattr(pa, f"{'' if signed else 'u'}int{bits}")()
    array = pa.array([smallest, None, largest, 0, 100], arrow_type)
    assert values_of(array) == numbers(str(smallest), None, str(largest), "0", "100")


@pytest.mark.parametrize(
    "arrow_type", [pa.decimal32(9, 2), pa.decimal64(18, 2), pa.decimal128(38, 2), pa.decimal256(60, 2)], ids=str
)
def test_every_decimal(arrow_type):
    """Decimals are N without superfluous zeros."""
    texts = ["1.50", None, "-0.05", "1200.00", "0.00", "9999999.99"]
    array = pa.array([text and Decimal(text) for text in texts], arrow_type)
    assert values_of(array) == numbers("1.5", None, "-0.05", "1200", "0", "9999999.99")


def test_wide_decimals():
    """All 38 digits are printed for every position of the decimal point. A negative scale adds zeros."""
    most = Decimal("9" * 38)
    assert values_of(
        pa.array([most, most.copy_negate(), Decimal(2**63), Decimal(10**37)], pa.decimal128(38, 0))
    ) == numbers("9" * 38, "-" + "9" * 38, str(2**63), "1" + "0" * 37)
    small = Decimal("0." + "9" * 38)
    assert values_of(pa.array([small, small.copy_negate(), Decimal("1E-38")], pa.decimal128(38, 38))) == numbers(
        "0." + "9" * 38, "-0." + "9" * 38, "0." + "0" * 37 + "1"
    )
    assert values_of(pa.array([Decimal("12E3")], pa.decimal128(5, -3))) == numbers("12000")
    assert values_of(pa.array([Decimal("9" * 38 + "0" * 20)], pa.decimal256(60, 0))) == numbers("9" * 38 + "0" * 20)


def test_floats_are_their_shortest_text():
    """A float is the shortest text that reads back as it. A narrow one is that of its exact value."""
    texts = ["0.1", "100000000000000000000", "-1.5", "0", "0.0000001", "12345678901.5", "9007199254740993"]
    values = [0.1, 1e20, -1.5, -0.0, 1e-7, 12345678901.5, 2.0**53]
    assert values_of(pa.array(values)) == numbers(*texts[:-1], "9007199254740992")
    assert values_of(pa.array([0.5, 0.1], pa.float32())) == numbers("0.5", "0.10000000149011612")
    assert values_of(pa.array([0.5, None, -2], pa.float16())) == numbers("0.5", None, "-2")


MOMENT = datetime(2024, 2, 29, 12, 30, 15, 250_000)  # noqa: DTZ001 - without a time zone on purpose


def test_moments():
    """A timestamp is ISO text of fixed length, in UTC if it has a zone, or an exact count of the given unit."""
    naive, zoned = pa.array([MOMENT, None], pa.timestamp("us")), pa.timestamp("ms", "Europe/Paris")
    aware = pa.array([MOMENT.replace(tzinfo=UTC)], zoned)
    assert values_of(naive) == [{"S": "2024-02-29T12:30:15.250000"}, None]
    assert values_of(aware) == [{"S": "2024-02-29T12:30:15.250Z"}]
    assert values_of(aware, timestamps="s") == numbers("1709209815.25")
    assert values_of(aware, timestamps="ms") == numbers("1709209815250")
    assert values_of(naive, timestamps="ns") == numbers("1709209815250000000", None)
    assert values_of(pa.array([-1], pa.timestamp("s")), timestamps="ns") == numbers("-1000000000")


@pytest.mark.parametrize("arrow_type", [pa.date32(), pa.date64()], ids=str)
def test_dates(arrow_type):
    """A date is ISO text, or a count of days, seconds or milliseconds."""
    array = pa.array([date(2024, 2, 29), None, date(1969, 12, 31)], arrow_type)
    assert values_of(array) == [{"S": "2024-02-29"}, None, {"S": "1969-12-31"}]
    assert values_of(array, dates="d") == numbers("19782", None, "-1")
    assert values_of(array, dates="s") == numbers("1709164800", None, "-86400")
    assert values_of(array, dates="ms") == numbers("1709164800000", None, "-86400000")


@pytest.mark.parametrize("arrow_type", [pa.time32("ms"), pa.time64("us"), pa.time64("ns")], ids=str)
def test_times_of_day(arrow_type):
    """A time of day is ISO text, or a count since midnight."""
    array = pa.array([time(1, 2, 3, 500_000), None], arrow_type)
    digits = {"ms": "500", "us": "500000", "ns": "500000000"}[arrow_type.unit]
    assert values_of(array) == [{"S": f"01:02:03.{digits}"}, None]
    assert values_of(array, times="s") == numbers("3723.5", None)


def test_durations():
    """A duration is ISO text, or a count."""
    array = pa.array([timedelta(seconds=90.5), None, timedelta(seconds=-0.5)], pa.duration("ms"))
    assert values_of(array) == [{"S": "PT90.500S"}, None, {"S": "PT-0.500S"}]
    assert values_of(array, durations="us") == numbers("90500000", None, "-500000")
    assert values_of(array.slice(1), durations="ms") == numbers(None, "-500")
    nanoseconds = pa.array([0, 1, -1, 1_500_000_000, -(2**63)], pa.int64()).cast(pa.duration("ns"))
    digits = ["0.000000000", "0.000000001", "-0.000000001", "1.500000000", "-9223372036.854775808"]
    assert values_of(nanoseconds) == [{"S": f"PT{text}S"} for text in digits]
    assert values_of(nanoseconds.slice(1, 2).cast(pa.int64()).cast(pa.duration("s"))) == [{"S": "PT1S"}, {"S": "PT-1S"}]


def test_times_of_all_ranges_are_counts():
    """Counts need no calendar: all values of Arrow are written."""
    array = pa.array([2**63 - 1, -(2**63)], pa.int64()).cast(pa.timestamp("us"))
    assert values_of(array, timestamps="us") == numbers(str(2**63 - 1), str(-(2**63)))
    assert values_of(pa.array([2**31 - 1], pa.int32()).view(pa.date32()), dates="d") == numbers(str(2**31 - 1))


def test_the_ends_of_the_nanoseconds():
    """Timestamps in nanoseconds are texts from the first to the last."""
    array = pa.array([2**63 - 1, -(2**63)], pa.int64()).cast(pa.timestamp("ns"))
    expected = ["2262-04-11T23:47:16.854775807", "1677-09-21T00:12:43.145224192"]
    assert values_of(array) == [{"S": text} for text in expected]


LISTS = [[1, None], [], None, [3]]


@pytest.mark.parametrize(
    "arrow_type", [pa.list_(pa.int64()), pa.large_list(pa.int32()), pa.list_view(pa.int64())], ids=str
)
def test_every_kind_of_list(arrow_type):
    """A list is L, and null in it is NULL."""
    expected = [{"L": [{"N": "1"}, {"NULL": True}]}, {"L": []}, None, {"L": [{"N": "3"}]}]
    assert values_of(pa.array(LISTS, arrow_type)) == expected
    assert values_of(pa.array(LISTS, arrow_type).slice(1)) == expected[1:]


def test_lists_of_fixed_length():
    """A list of fixed length is L."""
    array = pa.array([[1, 2], None, [3, 4]], pa.list_(pa.int64(), 2))
    expected = [{"L": numbers("1", "2")}, None, {"L": numbers("3", "4")}]
    assert values_of(array) == expected
    assert values_of(array.slice(1)) == expected[1:]
    assert values_of(array.slice(3)) == []


LONG_TEXTS = pa.array(
    [None, "a text of more than twelve bytes", "x", "another text of more than twelve"], pa.string_view()
)
JSON_TEXTS = pa.ExtensionArray.from_storage(pa.json_(pa.string_view()), LONG_TEXTS)


@pytest.mark.parametrize("texts", [LONG_TEXTS, JSON_TEXTS], ids=lambda texts: str(texts.type))
def test_lists_of_views(texts):
    """Texts that views store in other buffers are read from lists of every kind."""
    first, second, third, fourth = [{"NULL": True}, *({"S": text} for text in LONG_TEXTS.to_pylist()[1:])]
    fixed = pa.FixedSizeListArray.from_arrays(texts, 2, mask=pa.array([False, False]))
    assert values_of(fixed) == [{"L": [first, second]}, {"L": [third, fourth]}]
    views = pa.ListViewArray.from_arrays([2, 1, 0], [2, 3, 0], texts)
    assert values_of(views) == [{"L": [third, fourth]}, {"L": [second, third, fourth]}, {"L": []}]
    assert values_of(views.slice(2)) == [{"L": []}]


NESTED = {
    "struct of views": pa.array([{"a": "x" * 20}, None], pa.struct([("a", pa.string_view())])),
    "list of views": pa.array([["x" * 20, None], None], pa.list_(pa.binary_view())),
    "map of views": pa.array([[("k", "x" * 20)], None], pa.map_(pa.string(), pa.string_view())),
    "list of views of lists": pa.array([[[1]], None], pa.list_(pa.list_view(pa.int64()))),
    "struct of runs": pa.StructArray.from_arrays([pa.RunEndEncodedArray.from_arrays([1, 2], [True, False])], ["a"]),
    "struct of a dictionary with nulls": pa.StructArray.from_arrays(
        [pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.int8()), pa.array([{"b": "x"}, None]))], ["a"]
    ),
}


@pytest.mark.parametrize("values", NESTED.values(), ids=NESTED)
def test_dictionaries_of_what_arrow_takes_nothing_from(values):
    """Entries of a dictionary, and of runs, may contain views and runs."""
    one, other = values_of(values)
    repeated = pa.DictionaryArray.from_arrays(pa.array([1, 0, None, 0], pa.int8()), values)
    assert values_of(repeated) == [other, one, None, one]
    assert values_of(repeated.slice(1, 2)) == [one, None]
    assert values_of(pa.RunEndEncodedArray.from_arrays([2, 3], values)) == [one, one, other]


@pytest.mark.parametrize("kind", [pa.string_view(), pa.binary_view()])
@pytest.mark.parametrize("length", [-1, 13, 1 << 30, -(1 << 31)])
def test_views_under_nulls_are_not_read(kind, length):
    """The view of a null is not read, alone, in a list, and in a dictionary."""
    views = np.zeros((3, 4), np.int32)
    views[0] = 1, ord("a"), 0, 0
    views[2] = length, -1, 7, 1 << 30
    buffers = [pa.py_buffer(b"\x03"), pa.py_buffer(views.tobytes())]
    array = pa.Array.from_buffers(kind, 3, buffers)
    expected = values_of(pa.array([b"a", b"", None], pa.binary()).cast(array.type))
    assert values_of(array) == expected
    assert values_of(array.slice(1)) == expected[1:]
    assert values_of(pa.ListArray.from_arrays([0, 3], array))[0]["L"][0] == expected[0]
    entries = pa.DictionaryArray.from_arrays(pa.array([0, 2], pa.int8()), array)
    assert values_of(entries) == [expected[0], None]


@pytest.mark.parametrize("outer", [pa.list_, pa.large_list, pa.list_view], ids=lambda kind: kind.__name__)
def test_values_outside_all_lists_are_not_read(outer):
    """A view outside all lists may point anywhere: it is neither checked nor read."""
    offsets = pa.py_buffer(np.array([0, 1 << 30, 1], np.int32).tobytes())
    sizes = pa.py_buffer(np.array([1, 1 << 30, 1], np.int32).tobytes())
    inner = pa.Array.from_buffers(pa.list_view(pa.int64()), 3, [None, offsets, sizes], children=[pa.array([7, 8])])
    shown, kind = inner.slice(2), outer(inner.type)
    width = np.int64 if kind == pa.large_list(inner.type) else np.int32
    ends = [pa.py_buffer(np.array([2, 3], width).tobytes())]
    if kind == pa.list_view(inner.type):
        ends = [pa.py_buffer(np.array([2], width).tobytes()), pa.py_buffer(np.array([1], width).tobytes())]
    array = pa.Array.from_buffers(kind, 1, [None, *ends], children=[inner])
    assert values_of(array) == [{"L": [{"L": [{"N": "8"}]}]}]
    assert values_of(shown) == [{"L": [{"N": "8"}]}]
    plain = pa.array([[[8]]], pa.list_(pa.list_(pa.int64())))
    digests = [ddbio.digest(pa.RecordBatch.from_arrays([column], ["a"])) for column in (array, plain)]
    assert digests[0] == digests[1]


def test_values_under_a_null_are_not_read():
    """Values of a null struct or list are neither printed nor checked."""
    inner = pa.array([1.5, float("nan")])
    struct = pa.StructArray.from_arrays([inner], names=["x"], mask=pa.array([False, True]))
    assert values_of(struct) == [{"M": {"x": {"N": "1.5"}}}, None]
    lists = pa.ListArray.from_arrays(pa.array([0, 1, 2], pa.int32()), inner, mask=pa.array([False, True]))
    assert values_of(lists) == [{"L": [{"N": "1.5"}]}, None]


def test_maps_and_dictionaries_inside():
    """A map is M with its own names. Values in containers may also have any layout."""
    array = pa.array(
        [[("k", "x"), ('q"', None)], None, []], pa.map_(pa.string(), pa.dictionary(pa.int8(), pa.string()))
    )
    assert values_of(array) == [{"M": {"k": {"S": "x"}, 'q"': {"NULL": True}}}, None, {"M": {}}]
    stamps = pa.array([[{"at": MOMENT}]], pa.list_(pa.struct([("at", pa.timestamp("s"))])))
    assert values_of(stamps, timestamps="s") == [{"L": [{"M": {"at": {"N": "1709209815"}}}]}]


def test_null_columns():
    """A column of only nulls is missing, or NULL on request."""
    assert values_of(pa.nulls(2)) == [None, None]
    assert values_of(pa.nulls(1), nulls="null") == [{"NULL": True}]


def test_nulls_as_null():
    """On request null is NULL at the top and in structs, but not where the value is in the rescue column."""
    array = pa.array([{"x": None, "y": True}, None])
    assert values_of(array, nulls="null") == [{"M": {"x": {"NULL": True}, "y": {"BOOL": True}}}, {"NULL": True}]
    batch = pa.RecordBatch.from_pydict({"n": pa.array([None, None], pa.int64()), "_rescue": ['{"n":{"S":"x"}}', None]})
    lines = Encoder(batch.schema, options=EncodeOptions(nulls="null")).encode_lines(batch)
    assert lines == b'{"n":{"S":"x"}}\n{"n":{"NULL":true}}\n'


@pytest.mark.parametrize(
    ("values", "expected"),
    [(["b", "a"], {"SS": ["b", "a"]}), ([1.0, 2.5], {"NS": ["1", "2.5"]}), ([b"a"], {"BS": ["YQ=="]})],
)
def test_sets_by_option(values, expected):
    """A list column that the options name is a set."""
    assert values_of(pa.array([values]), sets=("a",)) == [expected]


def test_large_sets():
    """A set of a thousand elements is one set."""
    elements = [f"e{number}" for number in range(1000)]
    assert values_of(pa.array([elements]), sets=("a",)) == [{"SS": elements}]


def test_json_columns_are_parsed_and_printed():
    """JSON text becomes its attribute value, without white space and escapes."""
    field = pa.field("a", pa.string(), metadata={"ddb:type": "JSON"})
    batch = pa.RecordBatch.from_arrays([pa.array(['{ "L" : [{"S":"\\u00e9"}] }', None])], schema=pa.schema([field]))
    assert ddbio.to_dynamodb_json(batch) == '{"a":{"L":[{"S":"é"}]}}\n{}\n'.encode()


@pytest.mark.parametrize(
    ("schema", "options", "message"),
    [
        (pa.schema([("a", pa.month_day_nano_interval())]), {}, "^a: an Arrow month_day_nano_interval has months"),
        (pa.schema([("a", pa.string())]), {"sets": ("b",)}, "^b: named in sets, but there is no such column"),
        (pa.schema([("a", pa.string())]), {"sets": ("a",)}, "^a: named in sets, but it is an Arrow string"),
        (pa.schema([("a", pa.list_(pa.bool_()))]), {"sets": ("a",)}, "^a: named in sets, but DynamoDB has sets of"),
        (pa.schema([("a", pa.string()), ("a", pa.string())]), {}, "the name 'a' occurs twice"),
        (pa.schema([("", pa.string())]), {}, "an attribute's name has 1 to 65,535 bytes"),
        (pa.schema([("x" * 65_536, pa.string())]), {}, "an attribute's name has 1 to 65,535 bytes"),
    ],
)
def test_schemas_without_an_encoding_are_refused(schema, options, message):
    """A type that is wrong for every row is an error before encoding any row."""
    with pytest.raises(SchemaError, match=message):
        Encoder(schema, options=EncodeOptions(**options))


@pytest.mark.parametrize("rows", [[], [0, 1, 2], [2, 1, 0], [0, 2, 3], [3]], ids=str)
def test_rows_are_taken_from_every_layout(rows):
    """Rows of views and of run ends, which pyarrow cannot take, are taken in any order."""
    views = pa.array(["a", None, "a text of more than twelve", "b"], pa.string_view())
    columns = [
        views,
        pa.StructArray.from_arrays([views], ["a"]),
        pa.RunEndEncodedArray.from_arrays([2, 4], ["a", "b"]),
        pa.array([[1], None, [], [2, 3]], pa.list_view(pa.int64())),
    ]
    batch = pa.RecordBatch.from_arrays(columns, ["a", "b", "c", "d"])
    taken = take_rows(batch, np.array(rows, np.int64))
    assert taken.schema == batch.schema
    assert taken.to_pylist() == [batch.to_pylist()[row] for row in rows]
