from __future__ import annotations

import json
import random

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from item_strategies import ITEMS, VALUES

from ddbio.errors import DecodeError
from ddbio.items.digest_columns import digest_of_batches
from ddbio.items.encode import EncodeOptions, Encoder
from ddbio.items.json_text import compact_json
from ddbio.items.kernel.encode.rules import RefusedValueError, key_rules, read_members, read_value
from ddbio.items.reference import items_of

KEYS = {"pk": "S", "n": "N"}
RULES = key_rules(KEYS, ())


@st.composite
def json_texts(draw, values):
    """Draw JSON of a value as any writer might write it, sometimes damaged."""
    text = json.dumps(
        draw(values), ensure_ascii=draw(st.booleans()), separators=draw(st.sampled_from([(",", ":"), (", ", ": ")]))
    )
    if draw(st.integers(0, 3)):
        return text
    position = draw(st.integers(0, len(text)))
    return text[:position] + draw(st.sampled_from(["", " ", '"', "\\", "}", "\n", "1", "é"])) + text[position + 1 :]


def encode_by_reference(read, text, *arguments):
    """Return text, size and keys by the reference, or its refusal."""
    try:
        parsed = read(text.encode(), *arguments)
    except RefusedValueError as refused:
        return refused.rule, refused.message
    except DecodeError as error:
        return "json", str(error)
    return parsed.text, parsed.size, parsed.keys


def assert_rescues(texts, keys=None):
    """Check each row of a rescue column against the reference."""
    schema = pa.schema([pa.field("_rescue", pa.string())])
    encoded = Encoder(schema, keys=keys).encode(pa.record_batch([pa.array(texts, pa.string())], schema=schema))
    refused = {refusal.row: (refusal.rule, refusal.message) for refusal in encoded.refusals}
    body = encoded.buffer.tobytes()
    for row, text in enumerate(texts):
        wanted = encode_by_reference(read_members, text, RULES if keys else {})
        if len(wanted) == 2:
            assert refused[row] == (wanted[0], f"row {row}: _rescue: {wanted[1]}")
        elif keys and wanted[2] != 3:
            assert refused[row][0] == "key_missing"
        else:
            assert row not in refused
            assert body[encoded.offsets[row] : encoded.offsets[row + 1]] == b"{" + wanted[0] + b"}"
            assert encoded.sizes[row] == wanted[1]


@given(st.lists(json_texts(ITEMS), max_size=6), st.booleans())
def test_rescued_text_is_encoded_as_by_the_reference(texts, has_keys):
    """Any text of rescued attributes has the same encoded text, size, keys or refusal as by the reference."""
    assert_rescues(texts, KEYS if has_keys else None)


@given(st.lists(json_texts(VALUES), max_size=6), st.booleans())
def test_json_text_is_encoded_as_by_the_reference(texts, has_keys):
    """Any text in a JSON column, alone or in a list, has the same encoded text, size or refusal as by the reference."""
    field = pa.field("pk", pa.string(), metadata={"ddb:type": "JSON"})
    for nested in (False, True):
        arrow_type = pa.list_(field.with_name("element")) if nested else field.type
        schema = pa.schema([pa.field("pk", arrow_type) if nested else field])
        column = pa.array([[text] for text in texts] if nested else texts, arrow_type)
        rule = RULES["pk"] if has_keys and not nested else None
        encoder = Encoder(schema, keys={"pk": "S"} if rule else None)
        encoded = encoder.encode(pa.record_batch([column], schema=schema))
        refused = {refusal.row: (refusal.rule, refusal.message) for refusal in encoded.refusals}
        body = encoded.buffer.tobytes()
        for row, text in enumerate(texts):
            wanted = encode_by_reference(read_value, text, 1 + nested, rule)
            if len(wanted) == 2:
                assert refused[row] == (wanted[0], f"row {row}: pk{'[]' if nested else ''}: {wanted[1]}")
                continue
            around = (b'{"L":[', b"]}") if nested else (b"", b"")
            assert body[encoded.offsets[row] : encoded.offsets[row + 1]] == b'{"pk":' + wanted[0].join(around) + b"}"
            assert encoded.sizes[row] == 2 + wanted[1] + (4 if nested else 0)


EDGES = {
    "nothing": "{}",
    "an empty text": "",
    "one NULL": '{"a":{"NULL":true}}',
    "NULL that is false": '{"a":{"NULL":false}}',
    "both truths": '{"a":{"BOOL":true},"b":{"BOOL":false}}',
    "a name that comes again": '{"a":{"S":"x"},"a":{"S":"x"}}',
    "a name that comes again inside": '{"a":{"M":{"b":{"S":"x"},"b":{"S":"x"}}}}',
    "a name in two maps": '{"a":{"L":[{"M":{"b":{"S":"x"}}},{"M":{"b":{"S":"x"}}}]},"b":{"S":"x"}}',
    "a name with an escape": '{"a\\"":{"S":"x"}}',
    "no name": '{"":{"S":"x"}}',
    "a long name": '{"%s":{"S":"x"}}' % ("x" * 65_535),
    "a name that is too long": '{"%s":{"S":"x"}}' % ("x" * 65_536),
    "escapes as they are written": '{"a":{"S":"\\"\\\\\\b\\f\\n\\r\\t\\u0000\\u001f\\u000b"}}',
    "escapes as others write them": '{"a":{"S":"\\/"},"b":{"S":"\\u0041"},"c":{"S":"\\u001F"},"d":{"S":"\\u000a"}}',
    "a pair of escapes": '{"a":{"S":"\\ud83d\\ude00"}}',
    "half a pair of escapes": '{"a":{"S":"\\ud83d"}}',
    "the last of ASCII": '{"a":{"S":"\x7f"}}',
    "a control character": '{"a":{"S":"\x01"}}',
    "numbers in many forms": '{"a":{"N":"1e3"},"b":{"N":"-0"},"c":{"N":"007.50"},"d":{"N":"-1.25"}}',
    "one number twice in a set": '{"a":{"NS":["1","1.0"]}}',
    "numbers in a set": '{"a":{"NS":["1","-2.5"]}}',
    "a text twice in a set": '{"a":{"SS":["x","y","x"]}}',
    "a text twice in a large set": json.dumps({"a": {"SS": [str(number % 99) for number in range(100)]}}),
    "a very large set": compact_json({"a": {"SS": [str(number) for number in range(5_000)]}}),
    "no base64": '{"a":{"B":"a"}}',
    "base64": '{"a":{"B":""},"b":{"B":"YQ=="},"c":{"BS":["YQ==","YWI="]}}',
    "an empty set": '{"a":{"SS":[]}}',
    "empty containers": '{"a":{"L":[]},"b":{"M":{}}}',
    "many names": compact_json({f"a{number}": {"N": "1"} for number in range(2_000)}),
    "31 lists": '{"a":' + '{"L":[' * 31 + "]}" * 31 + "}",
    "32 lists": '{"a":' + '{"L":[' * 32 + "]}" * 32 + "}",
    "a comma too many": '{"a":{"S":"x"},}',
    "two types": '{"a":{"S":"x","N":"1"}}',
    "no type": '{"a":{}}',
    "another type": '{"a":{"X":"x"}}',
    "more than an item": '{"a":{"S":"x"}}{}',
    "less than an item": '{"a":{"S":"x"}',
    "no item": '[{"a":{"S":"x"}}]',
    "a byte order mark": '\ufeff{"a":{"S":"x"}}',
    "keys": '{"n":{"N":"1.0"},"pk":{"S":"x"}}',
    "keys of other types": '{"n":{"NULL":true},"pk":{"L":[]}}',
    "a set for a key": '{"n":{"NS":["1"]},"pk":{"S":"x"}}',
    "an empty key": '{"n":{"N":"1"},"pk":{"S":""}}',
    "a long key": '{"n":{"N":"1"},"pk":{"S":"%s"}}' % ("x" * 2_048),
    "a key that is too long": '{"n":{"N":"1"},"pk":{"S":"%s"}}' % ("x" * 2_049),
    "a key of escapes": '{"n":{"N":"1"},"pk":{"S":"%s"}}' % ("\\n" * 2_048),
}


@pytest.mark.parametrize("text", EDGES.values(), ids=EDGES)
@pytest.mark.parametrize("keys", [None, KEYS], ids=["no keys", "keys"])
def test_rescued_text_at_the_edges(text, keys):
    """Texts that barely are, or are not, as the encoder prints them are encoded as by the reference."""
    others = list(EDGES.values())
    random.Random(1).shuffle(others)
    assert_rescues([others[0], text, *others[1:9]], keys)


def test_rescued_null_and_a_null_column():
    """An attribute in the rescue column is written once if its column is null, also where null means NULL."""
    texts = ['{"a":{"NULL":true}}', '{"a":{"S":"x"},"c":{"N":"1"}}', None, '{ "a":{"NULL":true}}']
    batch = pa.record_batch([pa.array([None] * 4, pa.int64()), pa.array(texts)], names=["a", "_rescue"])
    lines = Encoder(batch.schema, options=EncodeOptions(nulls="null")).encode_lines(batch).splitlines()
    assert [json.loads(line) for line in lines] == [json.loads(text or texts[0]) for text in texts]
    assert Encoder(batch.schema).encode_lines(batch).splitlines()[:2] == [text.encode() for text in texts[:2]]


@pytest.mark.parametrize("text", ['{"a":{"S":"x"}}', '{"a":{"S":"x"} }'], ids=["compact", "white space"])
def test_an_attribute_in_two_columns(text):
    """An attribute in its column and in the rescue column refuses the row, also if the column refuses its value."""
    columns = [pa.array([1, 2**62]).cast(pa.timestamp("s")), pa.array([text, text])]
    batch = pa.record_batch(columns, names=["a", "_rescue"])
    assert [refusal.row for refusal in Encoder(batch.schema).encode(batch).refusals] == [0, 1]


def test_rows_between_rescued_rows_keep_their_items():
    """Rows of which the reference encodes some are in order, also in a slice."""
    texts = [None, '{"b":{"N":"1"}}', '{"b" :{"N":"1"}}', "{}", '{"b":{"S":"é"}}'] * 50
    batch = pa.record_batch([pa.array(range(250)), pa.array(texts, pa.large_string())], names=["a", "_rescue"])
    for rows in (batch, batch.slice(3, 99)):
        lines = Encoder(batch.schema).encode_lines(rows).splitlines()
        assert lines == [compact_json(item).encode() for item in items_of(rows)]


KINDS = {
    "dictionary": lambda texts: texts.dictionary_encode(),
    "view": lambda texts: texts.cast(pa.string_view()),
    "large": lambda texts: texts.cast(pa.large_string()),
    "runs": lambda texts: pa.RunEndEncodedArray.from_arrays(range(1, len(texts) + 1), texts),
}


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_rescued_text_is_the_same_in_every_arrow_layout(kind):
    """Dictionaries, views and runs of rescue texts are written and digested like plain texts."""
    texts = pa.array(['{"a":{"S":"x"}}', None, '{"b":{"N":"1"}}', '{"a":{"S":"x"}}'])
    plain, other = (pa.record_batch([array], names=["_rescue"]) for array in (texts, kind(texts)))
    assert Encoder(other.schema).encode_lines(other) == Encoder(plain.schema).encode_lines(plain)
    assert digest_of_batches([other]) == digest_of_batches([plain])


def test_rescued_text_that_is_not_utf8_spoils_its_row_alone():
    """Bytes that are not UTF-8 are reported with their row, also if the next row begins with the missing byte."""
    texts = pa.array([b'{"a":{"S":"x"}}', b'{"a":{"S":"\xc3', b'\xa9"}}'], pa.binary()).view(pa.string())
    batch = pa.record_batch([texts], names=["_rescue"])
    assert [(refusal.row, refusal.rule) for refusal in Encoder(batch.schema).encode(batch).refusals] == [
        (1, "json"),
        (2, "json"),
    ]
