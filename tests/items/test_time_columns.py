"""Exact conversion of time columns, in both directions."""

import datetime as dt
import json

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ddbio
from ddbio.errors import EncodeError, OptionError, SchemaError
from ddbio.items.decode import Decoder, RowDecoder
from ddbio.items.item_key import key_hashes
from ddbio.items.schema.item_schema import ItemSchema
from ddbio.items.schema.times import DDB_TIME, parse_format, with_format
from ddbio.items.time_columns import common_format

FORMS = [f"iso_{unit}{zone}" for unit in ("s", "ms", "us", "ns") for zone in ("", "+00:00", "_local")]
FORMS += ["epoch_s", "epoch_ms", "epoch_us", "epoch_ns", "date"]

_TEXTS = st.one_of(
    st.builds(
        lambda day, clock, fraction, ending: f"{day}T{clock}{fraction}{ending}",
        st.one_of(st.dates(), st.sampled_from(["0000-02-29", "1900-02-29", "2023-04-31", "9999-12-31"])),
        st.sampled_from(["00:00:00", "23:59:59", "24:00:00", "12:30:60", "1:2:3"]),
        st.sampled_from(["", ".1", ".123", ".123456", ".123456789", ".000"]),
        st.sampled_from(["Z", "z", "+00:00", "+02:00", ""]),
    ),
    st.dates().map(str),
    st.sampled_from(
        ["", "now", "2024-5-1", "12024-05-01T00:00:00Z", "2024-05-01 00:00:00Z", "\n2024-05-01", "\uff12024-05-01"]
    ),
)
_NUMBERS = st.one_of(
    st.integers(-(2**70), 2**70).map(str),
    st.sampled_from(["0", "-1", "1.5", "1e3", "1700000000", str(2**63), "-0.001"]),
)
_VALUES = st.one_of(
    _TEXTS.map(lambda text: {"S": text}), _NUMBERS.map(lambda text: {"N": text}), st.just({"NULL": True})
)


def _lines(values):
    items = [{"id": {"N": str(row)}} | ({} if value is None else {"at": value}) for row, value in enumerate(values)]
    return "".join(json.dumps(item) + "\n" for item in items).encode()


@settings(max_examples=200, deadline=None)
@given(form=st.sampled_from(FORMS), values=st.lists(st.one_of(_VALUES, st.none()), max_size=6))
def test_any_value_comes_back(form, values):
    """For any attributes and declared formats, writing the decoded rows gives the same items."""
    data = _lines(values)
    batch = ddbio.from_dynamodb_json(data, timestamps={"at": form})
    assert ddbio.digest(batch) == ddbio.digest(data)
    assert ddbio.digest(ddbio.to_dynamodb_json(batch)) == ddbio.digest(data)


@pytest.mark.parametrize(
    ("form", "text", "expected"),
    [
        ("iso_s", "2024-05-01T12:00:00Z", dt.datetime(2024, 5, 1, 12, tzinfo=dt.UTC)),
        ("iso_ms", "2024-05-01T12:00:00.250Z", dt.datetime(2024, 5, 1, 12, 0, 0, 250_000, dt.UTC)),
        ("iso_us+00:00", "1969-12-31T23:59:59.999999+00:00", dt.datetime(1969, 12, 31, 23, 59, 59, 999_999, dt.UTC)),
        ("iso_us_local", "2024-05-01T12:00:00.000001", dt.datetime(2024, 5, 1, 12, 0, 0, 1)),  # noqa: DTZ001 - of no zone
        ("date", "2024-02-29", dt.date(2024, 2, 29)),
    ],
)
def test_text_becomes_a_time(form, text, expected):
    """A text in the declared format is a time in its column, and nothing is rescued."""
    batch = ddbio.from_dynamodb_json(_lines([{"S": text}]), timestamps={"at": form})
    assert batch.column("at").to_pylist() == [expected]
    assert batch.column("_rescue").to_pylist() == [None]


def test_numbers_become_times():
    """Counts of every unit are times. A fraction, or a count beyond the column, is a number in the rescue column."""
    values = [{"N": "1700000000"}, {"N": "-1"}, {"N": "1.5"}, {"N": "9300000000000"}]
    batch = ddbio.from_dynamodb_json(_lines(values), timestamps={"at": "epoch_s"})
    times = batch.column("at").to_pylist()
    assert times[:3] == [dt.datetime(2023, 11, 14, 22, 13, 20, tzinfo=dt.UTC), dt.datetime(1969, 12, 31, 23, 59, 59, tzinfo=dt.UTC), None]  # fmt: skip # noqa: E501
    assert batch.column("_rescue").to_pylist() == [None, None, '{"at":{"N":"1.5"}}', '{"at":{"N":"9300000000000"}}']


def test_iso_is_the_most_frequent_format():
    """``iso`` is the format found in the data. A text of another format is rescued, not reinterpreted."""
    texts = ["2024-05-01T12:00:00.5Z", "2024-05-01T12:00:00.250+00:00", "2024-05-02T12:00:00.000+00:00"]
    batch = ddbio.from_dynamodb_json(_lines([{"S": text} for text in texts]), timestamps={"at": "iso"})
    assert batch.schema.field("at").metadata[DDB_TIME] == b"iso_ms+00:00"
    assert batch.column("_rescue").to_pylist()[0] == '{"at":{"S":"2024-05-01T12:00:00.5Z"}}'
    assert str(common_format(["2024-05-01", "2024-05-02", "x"])) == "date"
    assert str(common_format([])) == "iso_us"


@pytest.mark.parametrize("layout", [{"indent": 1}, {"separators": (" ,", ": ")}])
def test_iso_is_sampled_however_items_are_laid_out(layout):
    """Items over several lines, or all in one, are sampled like those with one line each, in a body of any size."""
    item = {"at": {"S": "2024-05-01T12:00:00Z"}, "filler": {"S": "é" * 600}}
    text = json.dumps(item, ensure_ascii=False, **layout)
    for body in (text, ("\n" if "indent" in layout else " ").join([text] * 1_000)):
        batch = ddbio.from_dynamodb_json(body.encode(), timestamps={"at": "iso"})
        assert batch.schema.field("at").metadata[DDB_TIME] == b"iso_s"
        assert batch.column("_rescue").null_count == batch.num_rows


def _change(at):
    images = {"Keys": {"id": {"S": "a"}}, "NewImage": {"id": {"S": "a"}, "at": at}}
    return json.dumps({"Metadata": {"WriteTimestampMicros": {"N": "1"}}, **images}).encode()


def test_iso_is_sampled_from_changes():
    """The images of changes determine the format, like items."""
    change = _change({"S": "2024-05-01T12:00:00Z"})
    schema = ddbio.infer_schema(change, timestamps={"at": "iso"}).to_arrow()
    assert schema.field("at").metadata[DDB_TIME] == b"iso_s"


@pytest.mark.parametrize(
    ("form", "value", "expected"),
    [
        ("iso_s", {"S": "yesterday"}, "yesterday"),
        ("iso_s", {"S": "2024-05-01T12:00:00.5Z"}, "2024-05-01T12:00:00.5Z"),
        ("date", {"S": "2024-05-01"}, "2024-05-01"),
        ("epoch_s", {"N": "5"}, 5),
    ],
)
def test_times_of_changes_stay_what_they_are(form, value, expected):
    """Images of changes have the text or number itself in every format of the schema, and nothing is rescued."""
    change = _change(value)
    schema = ddbio.infer_schema(change, timestamps={"at": form}).to_arrow()
    decoder = ddbio.ChangeDecoder(schema, ["id"])
    batch = decoder.decode(change)
    assert batch.column("new_image").to_pylist() == [{"id": "a", "at": expected}]
    assert batch.column("_rescue").null_count == 1
    assert batch.schema == decoder.schema


def test_misfits_are_counted_failed_or_dropped():
    """A value that is not a time is a misfit: it is counted, fails a strict job, or is dropped."""
    schema = pa.schema([("id", pa.int64()), ("at", pa.date32())])
    lines = _lines([{"S": "2024-02-30"}, {"S": "2024-02-29"}])
    decoder = Decoder(schema)
    decoder.decode(lines, "items")
    assert [(misfit.path, misfit.count, misfit.example) for misfit in decoder.misfits] == [
        ("at", 1, '{"S":"2024-02-30"}')
    ]
    with pytest.raises(SchemaError, match=r"at: does not fit the column"):
        Decoder(schema, on_misfit="fail").decode(lines, "items")
    dropped = Decoder(schema, on_misfit="drop", drop=["at"])
    (batch,) = dropped.decode_batches(lines, "items")
    assert batch.column("_rescue").null_count == 2
    assert dropped.misfits[0].dropped == 1


def test_rows_decode_one_by_one():
    """A column of texts also has its times, even next to a refused row."""
    decoder = RowDecoder(pa.schema([("at", pa.date32())]))
    texts = pa.array(['{"at":{"S":"2024-02-29"}}', "[]", None, '{"at":{"S":"x"}}'])
    batch = decoder.decode(texts, strict=False)
    assert batch.to_pydict() == {
        "at": [dt.date(2024, 2, 29), None, None, None],
        "_rescue": [None, None, None, '{"at":{"S":"x"}}'],
    }


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("form", ["iso_s", "iso_ms", "iso_ns", "iso_us+00:00", "epoch_s", "epoch_ms", "epoch_ns"])
def test_columns_are_written_in_any_format(unit, form):
    """A column of any unit is written in any format, and reads back as the same times. Nothing is rounded."""
    times = [dt.datetime(2024, 5, 1, 12, 0, 0, 120_000, dt.UTC), None, dt.datetime(1969, 12, 31, tzinfo=dt.UTC)]
    column = pa.array(times, pa.timestamp("us", "UTC")).cast(pa.timestamp(unit, "UTC"), safe=False)
    table = pa.table({"id": [1, 2, 3], "at": column})
    text = ddbio.to_dynamodb_json(table, timestamps={"at": form})
    (first, _, last) = [json.loads(line).get("at") for line in text.splitlines()]
    if form.startswith("epoch"):
        stored = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}[form.removeprefix("epoch_")]
        expected = column.cast(pa.timestamp("ns", "UTC")).cast(pa.int64()).to_pylist()
        assert [float(first["N"]) * stored, float(last["N"]) * stored] == [expected[0], expected[2]]
    else:
        assert dt.datetime.fromisoformat(first["S"]) == column.cast(pa.timestamp("us", "UTC")).to_pylist()[0]
        assert last["S"].startswith("1969-12-31T00:00:00")


@pytest.mark.parametrize("form", ["iso", "iso_us"])
def test_a_renamed_column_is_written_as_its_attribute(form):
    """Another format changes the text of a time, not its attribute."""
    data = b'{"createdAt":{"N":"1700000000"}}\n'
    renamed = pa.field("created_at", pa.timestamp("us", "UTC"), metadata={"ddb:name": "createdAt"})
    batch = ddbio.from_dynamodb_json(data, pa.schema([with_format(renamed, parse_format("epoch_s"))]))
    assert ddbio.to_dynamodb_json(batch) == data
    written = ddbio.to_dynamodb_json(batch, timestamps={"created_at": form})
    assert written == b'{"createdAt":{"S":"2023-11-14T22:13:20.000000Z"}}\n'


def test_keys_digest_and_encoder_agree():
    """The key's hash, the digest and the encoded item are those of the stored item."""
    form = with_format(pa.field("at", pa.timestamp("us", "UTC")), parse_format("epoch_s"))
    times = pa.RecordBatch.from_arrays([pa.array([1_700_000_000_000_000], form.type)], schema=pa.schema([form]))
    plain = pa.RecordBatch.from_pydict({"at": [1_700_000_000]})
    assert key_hashes(times, ["at"]).tolist() == key_hashes(plain, ["at"]).tolist()
    assert ddbio.digest(times) == ddbio.digest(plain)
    assert ddbio.to_dynamodb_json(times) == ddbio.to_dynamodb_json(plain) == b'{"at":{"N":"1700000000"}}\n'


def test_schemas_keep_the_format():
    """A schema's file and an Arrow schema's JSON have the format. Declaring has the same effect as editing the file."""
    schema = ddbio.infer_schema(_lines([{"S": "2024-05-01"}]), timestamps={"at": "iso"}, types={"id": "decimal(38, 2)"})
    again = ItemSchema.from_json(schema.to_json())
    assert again.to_arrow().equals(schema.to_arrow(), check_metadata=True)
    assert schema.to_arrow().field("at").type == pa.date32()
    assert schema.to_arrow().field("id").type == pa.decimal128(38, 2)
    assert '"S date32[day] date"' in schema.to_json()


def test_rules_for_numbers_and_types():
    """Numbers become doubles or text by one rule, also nested ones. A type by name has priority."""
    data = b'{"k":{"N":"1"},"p":{"N":"1.5"},"m":{"M":{"x":{"N":"0.1"}}},"l":{"L":[{"N":"2.5"}]},"j":{"N":"7.5"}}'
    doubles = ddbio.from_dynamodb_json(data, numbers="float64", types={"j": "decimal(38, 9)"}).schema
    assert [doubles.field(name).type for name in ("k", "p", "j")] == [pa.int64(), pa.float64(), pa.decimal128(38, 9)]
    assert doubles.field("m").type.field("x").type == doubles.field("l").type.value_type == pa.float64()
    texts = ddbio.from_dynamodb_json(data, numbers="text", types={"m": "json", "x": "N string"})
    assert texts.schema.field("k").type == pa.string()
    assert texts.column("m").to_pylist() == ['{"M":{"x":{"N":"0.1"}}}']
    assert ddbio.to_dynamodb_json(texts) == data + b"\n"
    assert ddbio.digest(texts) == ddbio.digest(data)


@pytest.mark.parametrize(
    ("rules", "error", "message"),
    [
        ({"numbers": "double"}, OptionError, "numbers: 'double' is none of 'exact', 'float64' and 'text'"),
        ({"timestamps": {"at": "unix"}}, OptionError, "is no format of a time: known are iso, "),
        ({"types": {"at": "varchar"}}, SchemaError, "is no type of a column"),
        ({"types": {"at": "timestamp[us]"}}, SchemaError, "declare a time by timestamps"),
    ],
)
def test_wrong_rules_are_errors(rules, error, message):
    """A rule without a meaning is an error. The message has the remedy."""
    with pytest.raises(error, match=message):
        ddbio.from_dynamodb_json(_lines([]), **rules)


def test_what_cannot_be_written_is_an_error():
    """A column without times, a format without its zone, and a year without four digits are errors."""
    with pytest.raises(SchemaError, match="holds no times to write as epoch_s"):
        ddbio.to_dynamodb_json(pa.table({"at": [1.5]}), timestamps={"at": "epoch_s"})
    naive = pa.table({"at": pa.array([0], pa.timestamp("us"))})
    with pytest.raises(SchemaError, match="declare iso_us_local"):
        ddbio.to_dynamodb_json(naive, timestamps={"at": "iso_ms"})
    late = pa.table({"at": pa.array([10**17], pa.timestamp("ms"))})
    with pytest.raises(EncodeError, match="years 0000 to 9999"):
        ddbio.to_dynamodb_json(late, timestamps={"at": "iso_s_local"})
    assert ddbio.to_dynamodb_json(pa.table({"at": [5]}), timestamps={"at": "epoch_s"}) == b'{"at":{"N":"5"}}\n'
