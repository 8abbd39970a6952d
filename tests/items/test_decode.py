from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from item_strategies import ITEMS, tables

from ddbio.errors import DecodeError, OptionError, SchemaError
from ddbio.items import decode
from ddbio.items.decode import Decoder, from_dynamodb_json
from ddbio.items.encode import to_dynamodb_json
from ddbio.items.framing import framing_of
from ddbio.items.kernel.decode import decoder as kernel_decoder
from ddbio.items.reference import RowBuilder, items_of
from ddbio.items.rescue import Misfit, MisfitLog
from ddbio.items.schema.item_schema import ItemSchema

FRAMINGS = ["page", "export", "items"]
SCHEMA = pa.schema(
    [
        ("s", pa.string()),
        ("n", pa.int64()),
        ("d", pa.decimal128(38, 2)),
        ("b", pa.binary()),
        ("t", pa.bool_()),
        pa.field("ss", pa.list_(pa.string()), metadata={"ddb:type": "SS"}),
        pa.field("ns", pa.list_(pa.int64()), metadata={"ddb:type": "NS"}),
        ("l", pa.list_(pa.struct([("x", pa.int64())]))),
        ("m", pa.struct([("x", pa.string()), ("y", pa.struct([("z", pa.int64())]))])),
    ]
)
FITTING = {
    "s": {"S": "é\0\n"},
    "n": {"N": "-7"},
    "d": {"N": "1.25"},
    "b": {"B": "YQ=="},
    "t": {"BOOL": False},
    "ss": {"SS": ["b", "a"]},
    "ns": {"NS": ["2", "1"]},
    "l": {"L": [{"M": {"x": {"N": "1"}}}, {"NULL": True}, {"M": {}}]},
    "m": {"M": {"x": {"S": ""}, "y": {"M": {"z": {"N": "5"}}}}},
}


def framed(items, framing, **layout):
    """Return the items as JSON text."""
    layout = layout or {"separators": (",", ":")}
    if framing == "page":
        return json.dumps({"Items": items}, ensure_ascii=False, **layout).encode()
    wrapped = [{"Item": item} for item in items] if framing == "export" else items
    return b"".join(json.dumps(item, ensure_ascii=False, **layout).encode() + b"\n" for item in wrapped)


def reference(items, schema, **options):
    """Return the batch that the reference makes."""
    return RowBuilder(Decoder(schema).schema, keep_nulls=options.get("nulls") == "keep").batch(items, MisfitLog())


@given(st.sampled_from(FRAMINGS), st.sampled_from(["merge", "keep"]), tables())
def test_both_paths_give_one_batch(framing, nulls, items):
    """By either path the batch equals the reference's, is valid, and has exactly the decoder's schema."""
    schema = ItemSchema.of_items(items).to_arrow()
    decoder = Decoder(schema, nulls=nulls)
    batch = decoder.decode(framed(items, framing), framing)
    batch.validate(full=True)
    assert batch.schema.equals(decoder.schema, check_metadata=True)
    assert batch.equals(reference(items, schema, nulls=nulls))
    assert not decoder.misfits


@pytest.mark.parametrize("framing", FRAMINGS)
def test_fitting_items_take_the_fast_path(framing, monkeypatch):
    """Items that fit the schema, in DynamoDB's layout, are not passed to the reference, also with NULL and absence."""
    items = [FITTING, {}, {"s": {"NULL": True}, "m": {"M": {"x": {"NULL": True}}}}, FITTING]
    decoder = Decoder(SCHEMA)
    expected = reference(items, SCHEMA)
    monkeypatch.setattr(decoder, "_decode_in_python", None)
    for _ in range(2):
        batch = decoder.decode(framed(items, framing), framing)
        assert batch.equals(expected)
    assert batch.column("s").to_pylist() == ["é\0\n", None, None, "é\0\n"]
    assert batch.column("d")[0].as_py() == Decimal("1.25")
    assert batch.column("l")[0].as_py() == [{"x": 1}, None, {"x": None}]
    assert batch.column("_rescue").null_count == 4


@pytest.mark.parametrize("framing", FRAMINGS)
def test_kept_nulls_take_the_fast_path(framing, monkeypatch):
    """A kept NULL does not need the reference if it is alone in a column or a list."""
    items = [{"s": {"NULL": True}, "n": {"NULL": True}}, FITTING]
    decoder = Decoder(SCHEMA, nulls="keep")
    monkeypatch.setattr(decoder, "_decode_in_python", None)
    batch = decoder.decode(framed(items, framing), framing)
    assert batch.column("_rescue").to_pylist() == ['{"n":{"NULL":true},"s":{"NULL":true}}', None]
    assert list(items_of(batch)) == items


@pytest.mark.parametrize(
    ("value", "misfit"),
    [
        ({"q": {"N": "1.50"}}, Misfit("q", "not in the schema", 1, '{"N":"1.50"}')),
        ({"_rescue": {"S": "x"}}, Misfit("_rescue", "not in the schema", 1, '{"S":"x"}')),
        ({"s": {"N": "1e3"}}, Misfit("s", "another type", 1, '{"N":"1e3"}')),
        ({"n": {"S": "1"}}, Misfit("n", "another type", 1, '{"S":"1"}')),
        ({"n": {"N": "1.5"}}, Misfit("n", "does not fit the column", 1, '{"N":"1.5"}')),
        ({"n": {"N": "9223372036854775808"}}, Misfit("n", "does not fit the column", 1, '{"N":"9223372036854775808"}')),
        ({"d": {"N": "0.001"}}, Misfit("d", "does not fit the column", 1, '{"N":"0.001"}')),
        ({"d": {"N": "1" * 37}}, Misfit("d", "does not fit the column", 1, f'{{"N":"{"1" * 37}"}}')),
        ({"ss": {"L": [{"S": "a"}]}}, Misfit("ss", "another type", 1, '{"L":[{"S":"a"}]}')),
        ({"ns": {"NS": ["1", "1.5"]}}, Misfit("ns", "does not fit the column", 1, '{"NS":["1","1.5"]}')),
        ({"l": {"L": [{"S": "a"}]}}, Misfit("l[]", "another type", 1, '{"S":"a"}')),
        ({"l": {"L": [{"M": {"x": {"N": "0.5"}}}]}}, Misfit("l[].x", "does not fit the column", 1, '{"N":"0.5"}')),
        ({"m": {"M": {"new": {"S": "a"}}}}, Misfit("m.*", "not in the schema", 1, '{"new":{"S":"a"}}')),
        ({"m": {"M": {"y": {"M": {"z": {"S": "a"}}}}}}, Misfit("m.y.z", "another type", 1, '{"S":"a"}')),
        ({"m": {"M": {"x": {"M": {}}, "y": {"NULL": True}}}}, Misfit("m.x", "another type", 1, '{"M":{}}')),
    ],
)
@pytest.mark.parametrize("framing", FRAMINGS)
def test_a_misfit_is_rescued_unchanged_and_counted(framing, value, misfit):
    """A value that fits no column is null there, is in the rescue column unchanged, and is counted once."""
    items = [FITTING, {**FITTING, **value}, FITTING]
    decoder = Decoder(SCHEMA)
    batch = decoder.decode(framed(items, framing), framing)
    assert decoder.misfits == [misfit]
    assert batch.column("_rescue").to_pylist() == [None, json.dumps(value, separators=(",", ":")), None]
    assert batch.slice(0, 1).equals(batch.slice(2, 1))
    ((name, _),) = value.items()
    assert name == "_rescue" or name not in batch.schema.names or batch.column(name)[1].as_py() is None

    strict = Decoder(SCHEMA, on_misfit="fail")
    with pytest.raises(SchemaError) as caught:
        strict.decode(framed(items, framing), framing)
    assert str(caught.value).startswith(
        f"{misfit.path}: {misfit.kind}: {misfit.example}: change the schema, or pass on"
    )


@pytest.mark.parametrize("width", [pa.decimal128, pa.decimal256])
@pytest.mark.parametrize("scale", [-2, 5])
def test_decimals_of_odd_scales_are_not_read(width, scale):
    """A column with a negative scale, or a scale above its precision, is refused, not filled with wrong values."""
    with pytest.raises(SchemaError, match=rf"^d: no column is read as decimal...\(4, {scale}\): declare a scale"):
        from_dynamodb_json(b'{"d":{"N":"300"}}', pa.schema([("d", width(4, scale))]))


def test_misfits_add_up_over_calls():
    """Counts grow from call to call, the first example is kept, and long examples are cut."""
    decoder = Decoder(SCHEMA)
    for text in ("x" * 300, "y"):
        decoder.decode(framed([{"q": {"S": text}}], "items"), "items")
    (misfit,) = decoder.misfits
    assert (misfit.count, len(misfit.example), misfit.example[:8]) == (2, 200, '{"S":"xx')


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"s":{}}', "s: expected one type"),
        ('{"s":null}', "s: expected one type"),
        ('{"s":{"S":null}}', "s: expected a JSON string, found None"),
        ('{"s":{"NULL":false}}', "s: NULL must be true"),
        ('{"s":{"NULL":true,"S":"x"}}', "s: expected one type"),
        ('{"s":{"S":5}}', "s: expected a JSON string, found 5"),
        ('{"t":{"BOOL":"true"}}', "t: BOOL must be true or false"),
        ('{"n":{"N":""}}', "n: '' is not a DynamoDB number"),
        ('{"n":{"N":"0x1f"}}', "n: '0x1f' is not a DynamoDB number"),
        ('{"n":{"N":"1_0"}}', "n: '1_0' is not a DynamoDB number"),
        ('{"n":{"N":" 1"}}', "n: ' 1' is not a DynamoDB number"),
        ('{"ns":{"NS":["1",null]}}', r"ns\[1\]: expected a JSON string, found None"),
        ('{"b":{"B":"YQ"}}', "b: 'YQ' is not base64"),
        ('{"l":{"L":[{}]}}', r"l\[0\]: expected one type"),
        ('{"l":{"L":[null]}}', r"l\[0\]: expected one type"),
        ('{"m":{"M":{"x":{}}}}', "m.x: expected one type"),
        ('{"m":{"M":{"x":null}}}', "m.x: expected one type"),
        ('{"s":{"X":"x"}}', "s: 'X' is not a DynamoDB type"),
        ('{"s":{"S":"x"},"s":{"S":"x"}}', "the name 's' occurs twice"),
        ('{"s":{"S":"x","S":"x"}}', "the name 'S' occurs twice"),
        ('{"s":{"S":"\\ud800"}}', "half of a surrogate pair"),
        ('{"s":{"S":"\\udc00"}}', "half of a surrogate pair"),
        ('{"s":{"S":"a\tb"}}', "this is not JSON"),
        ('{"s":{"S":"x"}', "this is not JSON"),
        ("[]", "expected"),
        ("5", "expected"),
        ("null", "expected"),
    ],
)
@pytest.mark.parametrize("framing", ["export", "items"])
def test_broken_lines_are_refused_with_their_line(framing, text, message):
    """Text that is not DynamoDB JSON is refused, never read as a missing value. The message has line and path."""
    line = f'{{"Item":{text}}}' if framing == "export" else text
    good = framed([FITTING, FITTING], framing).decode()
    with pytest.raises(DecodeError, match=message) as caught:
        Decoder(SCHEMA).decode(f"{good}{line}\n{good if text.endswith('}}') else ''}".encode(), framing)
    assert caught.value.line in {3, 4}
    assert f"line {caught.value.line}" in str(caught.value)


@pytest.mark.parametrize("text", ["null", " \n null", "{}null", '{"s":{"S":"x"}}\nnull\n', "\ufeffnull"])
@pytest.mark.parametrize("framing", FRAMINGS)
def test_a_null_for_a_document_is_refused(framing, text):
    """A null instead of an item, which crashes Arrow's parser, is refused."""
    with pytest.raises(DecodeError, match="expected"):
        Decoder(SCHEMA).decode(text.encode(), framing)


@pytest.mark.parametrize(
    ("data", "framing", "message"),
    [
        (b'{"Item":{},"x":1}', "export", "expected"),
        (b"{}", "export", "expected"),
        (b'{"Item":null}', "export", "expected"),
        (b'{"Items":null}', "page", "expected"),
        (b'{"Items":[null]}', "page", "expected"),
        (b'{"Items":[{}],"Count":1}', "page", "expected"),
        (b"[]", "items", "expected"),
        (b'{"Items":[{"s":{"S":"x"}},{"s":{}}]}', "page", "^item 1 of the page: s: expected one type"),
        (b'{"s":{"S":"x"}}\n{"s":{"S":"\xff"}}', "items", "^line 2: byte .* is not UTF-8"),
    ],
)
def test_another_framing_or_a_broken_item_is_refused(data, framing, message):
    """Data in another framing than the given one is refused. The message names the line, or the item of a page."""
    with pytest.raises(DecodeError, match=message):
        Decoder(SCHEMA).decode(data, framing)


def test_deep_nesting_is_refused():
    """Nesting deeper than any item's is a clear error."""
    deep = '{"L":[' * 3000 + "]}" * 3000
    with pytest.raises(DecodeError, match="nested deeper"):
        from_dynamodb_json(f'{{"a":{deep}}}'.encode())


# Python itself nests calls a thousand times.
MOST_NESTED = 400


@pytest.mark.parametrize("opening", ['{"L":[', '{"M":{"a":'])
@pytest.mark.parametrize("depth", [31, 32, 33, 63, 64, 65, 100, 300, *range(440, 520, 3)])
def test_nesting_that_no_schema_has_is_json_or_refused(opening, depth):
    """Below the levels of an item, a column is JSON with complete values. Nesting beyond Python's limit is refused."""
    closing = "".join({"[": "]", "{": "}"}.get(sign, "") for sign in opening[::-1])
    text = f'{{"a":{opening * depth}{{"S":"x"}}{closing * depth}}}'
    if depth > MOST_NESTED:
        with suppress(DecodeError):
            from_dynamodb_json(text.encode())
        return
    batch = from_dynamodb_json(text.encode())
    value, levels = batch.column("a")[0].as_py(), 0
    while not isinstance(value, str):
        [value] = value.values() if isinstance(value, dict) else value
        levels += 1
    assert levels == min(depth, 33)
    assert value == "x" if depth <= 32 else value.count(opening[:4]) == depth - 33


@pytest.mark.parametrize("framing", FRAMINGS)
@pytest.mark.parametrize("layout", [{"indent": 1}, {"separators": (" ,\t", " : ")}], ids=str)
def test_white_space_is_legal(framing, layout):
    """White space of other writers changes nothing, even line ends inside an item."""
    data = b" \r\n" + framed([FITTING, {}], framing, **layout) + b"\n\n"
    batch = Decoder(SCHEMA).decode(data, framing)
    assert batch.equals(reference([FITTING, {}], SCHEMA))


@pytest.mark.parametrize("framing", ["export", "items"])
@pytest.mark.parametrize("slice_bytes", [1, 40, 700])
@pytest.mark.parametrize("indent", [None, 1])
def test_long_inputs_are_cut_at_lines(framing, slice_bytes, indent, monkeypatch):
    """Rows, misfits and their counts do not depend on how long inputs are cut."""
    monkeypatch.setattr(kernel_decoder, "SLICE_BYTES", slice_bytes)
    items = [FITTING, {"q": {"S": "a\nb"}}, {}, {"n": {"N": "1e2"}}] * 3
    decoder = Decoder(SCHEMA)
    batch = decoder.decode(framed(items, framing, indent=indent), framing)
    assert batch.equals(reference(items, SCHEMA))
    assert decoder.misfits == [Misfit("q", "not in the schema", 3, '{"S":"a\\nb"}')]


def test_a_line_number_counts_from_the_start(monkeypatch):
    """The line of an error counts from the start of the input, not of the slice."""
    monkeypatch.setattr(kernel_decoder, "SLICE_BYTES", 40)
    with pytest.raises(DecodeError, match=r"^line 9: s: expected one type") as caught:
        Decoder(SCHEMA).decode(b'{"s":{"S":"x"}}\n' * 8 + b'{"s":{}}\n', "items")
    assert caught.value.line == 9


@pytest.mark.parametrize(
    "wrap", [bytes, bytearray, memoryview, pa.py_buffer], ids=["bytes", "bytearray", "view", "arrow"]
)
def test_any_bytes_like_is_taken(wrap):
    """Data can be in any object that contains bytes."""
    assert from_dynamodb_json(wrap(b'{"s":{"S":"x"}}')).column("s").to_pylist() == ["x"]


@pytest.mark.parametrize(
    ("data", "column"),
    [
        (b'{"Count":1,"Items":[{"a":{"S":"x"}}],"ScannedCount":1}', ["x"]),
        (b'{"Count":0,"Items":[],"ScannedCount":1}', None),
        (b'{"Count":3,"ScannedCount":3}', None),
        (b'{"Items":[{"a":{"S":"x"}}]}', ["x"]),
        (b'\xef\xbb\xbf{\r\n "Items": [{"a": {"S": "x"}}]\r\n}\r\n', ["x"]),
        (b'{"Items":[{"a":{"S":"x"}}],"LastEvaluatedKey":{"a":{"S":"x"}}}', ["x"]),
        (b'{"NextToken":"n","Items":[{"a":{"S":"x"}}],"Count":1}', ["x"]),
        (b'{"Item":{"a":{"S":"x"}}}\n{"Item":{"a":{"S":"y"}}}', ["x", "y"]),
        (b'{"Item":{}}\n{"Item":{"a":{"S":"y"}}}', [None, "y"]),
        (b'{"a":{"S":"x"}}\n{}\n', ["x", None]),
        (b'{"Items":{"S":"x"},"a":{"S":"y"}}', ["y"]),
        (b'{"Count":{"N":"1"},"a":{"S":"y"}}', ["y"]),
        (b"", None),
        (b" \n", None),
    ],
)
def test_the_framing_is_found(data, column):
    """Pages, export lines, item lines and empty data are distinguished."""
    batch = from_dynamodb_json(data)
    assert batch.schema.names[-1] == "_rescue"
    if column is None:
        assert batch.num_rows == 0
    else:
        assert batch.column("a").to_pylist() == column


def test_only_the_first_document_determines_the_framing():
    """Text after the first document is not read to detect the framing, even if that document is long."""
    line = b'{"Item":{"a":{"S":"' + b"x" * 100_000 + b'"}}}'
    assert framing_of(b"\n" * 5_000 + line + b"\n" * 1_000_000 + b"\xff") == "export"
    with pytest.raises(DecodeError, match=r"^line 5002: byte 105023 is not UTF-8"):
        framing_of(b"\n" * 5_000 + line[:-1] + b"\n\xff")


@pytest.mark.parametrize(
    "document",
    [
        '{"a":{"S":"x"}}',
        '{"a":{"S":"}{"},"b":{"M":{}}}',
        '{"a":{"S":"x"},"Count":1}',
        '{"a":{"S":"x"},"Items":[]}',
        '{"a":{"M":{}}\n,"Items":[]}',
        '{"\\u0049tems":[]}',
        '{"a":{"S":"x"},"Item":{"S":"x"}}',
        '{"Item":{}}',
        '{"Item":{"S":"x"}}',
        '{"Records":[]}',
        '{"dynamodb":{"Keys":{}}}',
        '{"Metadata":{"WriteTimestampMicros":{"N":"1"}}}',
        '{"eventID":"1","dynamodb":{"Keys":{}}}',
        "{}",
    ],
)
def test_a_document_that_others_follow_is_framed_as_it_is_alone(document):
    """Where the first of many documents need not be parsed, its framing equals that of parsing it."""
    alone = framing_of(document.encode())
    assert framing_of(f"{document}\n{{}}\n".encode()) == alone
    assert framing_of(memoryview(f"{document}\n{document}".encode())) == alone


@pytest.mark.parametrize("slice_bytes", [40, 1 << 16])
def test_views_are_cut_at_lines(slice_bytes, monkeypatch):
    """Views and arrays of bytes are decoded like bytes, regardless of the distance of line ends."""
    monkeypatch.setattr(kernel_decoder, "SLICE_BYTES", slice_bytes)
    items = [{"s": {"S": "x" * length}} for length in (1, 50_000, 0, 10, 70_000, 3)] * 2
    data = framed(items, "items")
    batches = [from_dynamodb_json(wrap(data), SCHEMA) for wrap in (bytes, bytearray, memoryview)]
    assert all(batch.equals(reference(items, SCHEMA)) for batch in batches)
    apart = memoryview(bytes(pair_byte for byte in data for pair_byte in (byte, 0)))[::2]
    assert from_dynamodb_json(apart, SCHEMA).equals(batches[0])


def test_a_schema_that_was_used_before_is_used_again():
    """A later call does not report earlier misfits, and distinguishes schemas with other metadata."""
    texts = pa.schema([pa.field("s", pa.list_(pa.string()))])
    sets = pa.schema([pa.field("s", pa.list_(pa.string()), metadata={"ddb:type": "SS"})])
    data = b'{"s":{"SS":["x"]}}'
    for _ in range(2):
        assert from_dynamodb_json(data, texts).column("_rescue").to_pylist() == ['{"s":{"SS":["x"]}}']
        assert from_dynamodb_json(data, sets).column("s").to_pylist() == [["x"]]
    names = [f"a{number}" for number in range(40)]
    for name in names + names[::-1]:
        batch = from_dynamodb_json(f'{{"{name}":{{"S":"x"}}}}'.encode(), pa.schema([(name, pa.string())]))
        assert batch.column(name).to_pylist() == ["x"]


@settings(deadline=None)
@given(tables(), tables())
def test_columns_that_were_inferred_before_are_those_of_the_items(one, other):
    """The columns are inferred from the given items, regardless of earlier calls."""
    for items in (one, other, one * 2 + other, other * 3 + one):
        if items:
            wanted = ItemSchema.of_items(items).to_arrow()
            assert from_dynamodb_json(framed(items, "items")).schema.equals(wanted, check_metadata=True)


@given(
    st.one_of(tables(), st.lists(ITEMS, max_size=6)), st.sampled_from(["keep", "merge"]), st.booleans(), st.booleans()
)
def test_items_without_a_schema_take_one_walk_to_the_same_rows(items, nulls, escaped, is_page):
    """The walk that infers the columns fills them, with the same rows and misfits as a second walk."""
    framing = "page" if is_page else "items"
    lines = [json.dumps(item, ensure_ascii=escaped, indent=1 if escaped else None) for item in items]
    body = (f'{{"Items":[{",".join(lines)}]}}' if is_page else "\n".join(lines)).encode()
    batch, columns = decode._decode_in_one_walk(body, framing, nulls)
    wanted = Decoder(decode._columns_of(body, framing), nulls=nulls).decode(body, framing)
    assert columns.equals(decode._columns_of(body, framing), check_metadata=True)
    assert batch is None or batch.equals(wanted, check_metadata=True)
    # Columns of maps have several paths, and the JSON of a column may need more memory than available.
    has_json = b"JSON" in wanted.schema.serialize().to_pybytes()
    has_maps = any(pa.types.is_map(inner) for field in wanted.schema for inner in types_in(field.type))
    assert batch is not None or has_json or has_maps


def types_in(arrow_type):
    """Yield a type and all nested types."""
    yield arrow_type
    for index in range(arrow_type.num_fields):
        yield from types_in(arrow_type.field(index).type)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"S": "x"}, {"N": "1"}),
        ({"L": [{"S": "x"}]}, {"SS": ["x"]}),
        ({"M": {"a": {"S": "x"}}}, {"M": {"a": {"N": "1"}}}),
        ({"M": {f"{day}": {"M": {"a": {"S": "x"}}} for day in range(3)}}, {"M": {"3": {"M": {"a": {"N": "1"}}}}}),
        ({"N": "1e30"}, {"N": "1e-30"}),
        ({"N": "1"}, {"N": "1.5"}),
    ],
)
def test_columns_follow_the_more_frequent_type(one, other):
    """Bodies with the same names and types but other counts of each type get different columns."""
    both = [{"a": one}, {"a": other}]
    for more in (both, [both[0]] * 3 + both, [both[0], *[both[1]] * 3]):
        batch = from_dynamodb_json(framed(more, "items"))
        assert batch.schema.equals(ItemSchema.of_items(more).to_arrow(), check_metadata=True)


def test_threads_share_no_decoder():
    """Concurrent calls with one schema return their own rows."""
    bodies = [framed([{"s": {"S": f"{number}"}}] * 2_000, "items") for number in range(8)]
    with ThreadPoolExecutor(4) as threads:
        batches = list(threads.map(lambda body: from_dynamodb_json(body, SCHEMA), bodies * 4))
    assert [set(batch.column("s").to_pylist()) for batch in batches] == [{f"{number}"} for number in range(8)] * 4


@pytest.mark.parametrize("data", ['{"s":{"S":"x"}}', None, 5, [b"{}"]])
def test_what_holds_no_bytes_is_refused(data):
    """Text and other objects that are not bytes are refused."""
    with pytest.raises(DecodeError, match="is not bytes"):
        from_dynamodb_json(data)


def test_nulls_are_kept_unless_a_schema_or_the_caller_overrides():
    """Without a schema NULL differs from a missing attribute. With a schema it does on request."""
    data = b'{"a":{"NULL":true},"m":{"M":{"x":{"NULL":true}}}}\n{}\n'
    kept = ['{"a":{"NULL":true},"m":{"M":{"x":{"NULL":true}}}}', None]
    assert from_dynamodb_json(data).column("_rescue").to_pylist() == kept
    assert from_dynamodb_json(data, nulls="merge").column("_rescue").null_count == 2
    schema = from_dynamodb_json(data).schema
    assert from_dynamodb_json(data, schema).column("_rescue").null_count == 2
    assert from_dynamodb_json(data, schema, nulls="keep").column("_rescue").to_pylist() == kept
    with pytest.raises(OptionError, match="nulls: 'drop' is neither"):
        from_dynamodb_json(data, nulls="drop")


def test_names_that_hold_a_nul_have_columns_of_other_names():
    """Columns of names with a NUL have names without it, since other programs cut names at a NUL."""
    item = {"\0": {"S": "1"}, "a": {"S": "2"}, "a\0b": {"S": "3"}, "m": {"M": {"\0": {"N": "4"}, "\0x": {"N": "5"}}}}
    batch = from_dynamodb_json(json.dumps(item).encode())
    assert batch.schema.names == ["__6e340b9c", "a", "ab__59b271ae", "m", "_rescue"]
    assert pa.schema(batch.schema).equals(batch.schema, check_metadata=True)
    assert list(items_of(batch)) == [item]
    assert json.loads(to_dynamodb_json(batch)) == item
    passed_on = pa.RecordBatch._import_from_c_capsule(*batch.__arrow_c_array__())
    assert json.loads(to_dynamodb_json(passed_on)) == item


def test_an_attribute_named_item_is_no_frame():
    """A bare item whose only attribute is named Item is not an export line."""
    assert list(items_of(from_dynamodb_json(b'{"Item":{"M":{"x":{"S":"1"}}}}'))) == [{"Item": {"M": {"x": {"S": "1"}}}}]
    assert list(items_of(from_dynamodb_json(b'{"Item":{"M":{"S":"1"}}}'))) == [{"M": {"S": "1"}}]


@pytest.mark.parametrize("data", [b"[]", b'"x"', b"{", b'{"Item":{"a":{"S":"x"}},"ConsumedCapacity":{}}', b"\xff"])
def test_other_data_is_refused(data):
    """Data in none of the framings is refused."""
    with pytest.raises(DecodeError):
        from_dynamodb_json(data)


def test_a_given_schema_is_kept():
    """With a schema, the columns are exactly those of the schema, regardless of the data."""
    schema = pa.schema([("n", pa.float64()), ("m", pa.map_(pa.string(), pa.int64())), ("absent", pa.large_string())])
    batch = from_dynamodb_json(b'{"n":{"N":"0.1"},"m":{"M":{"k":{"N":"1"},"o":{"NULL":true}}},"x":{"S":"y"}}', schema)
    assert batch.schema.types[:3] == schema.types
    assert batch.to_pylist() == [{"n": 0.1, "m": [("k", 1), ("o", None)], "absent": None, "_rescue": '{"x":{"S":"y"}}'}]


def test_json_columns_hold_any_value_exactly():
    """A JSON column has the attribute value as compact text, with numbers as they were written."""
    schema = pa.schema([pa.field("j", pa.string(), metadata={"ddb:type": "JSON"})])
    values = [{"M": {"k": {"N": "1.50"}}}, {"S": "é"}, {"NULL": True}, {"L": []}]
    batch = from_dynamodb_json(framed([{"j": value} for value in values], "items", indent=None), schema)
    assert batch.column("j").to_pylist() == ['{"M":{"k":{"N":"1.50"}}}', '{"S":"é"}', '{"NULL":true}', '{"L":[]}']
    assert [item["j"] for item in items_of(batch)] == values


TOKENS = [b"null", b"true", b'{"NULL":true}', b"{}", b"[]", b'"s":', b'"Item":', b"0x", b"1e5", b"\xc3", b"\\u0000"]
TOKENS += [b"\\ud800"]


@given(
    st.sampled_from(FRAMINGS),
    st.lists(
        st.tuples(st.integers(0), st.integers(0, 12), st.sampled_from(TOKENS) | st.binary(max_size=2)),
        min_size=1,
        max_size=3,
    ),
)
def test_mutated_bytes_are_read_as_the_reference_reads_them(framing, mutations):
    """For any mutation of the bytes, the fast path gives the reference's batch or its refusal."""
    data = framed([FITTING, {"s": {"NULL": True}}], framing)
    for position, length, token in mutations:
        start = position % len(data)
        data = data[:start] + token + data[start + length :]
    decoder = Decoder(SCHEMA)
    try:
        expected = decoder._decode_in_python(data, framing, MisfitLog())
    except DecodeError:
        with pytest.raises(DecodeError):
            decoder.decode(data, framing)
    else:
        assert decoder.decode(data, framing).equals(expected)
