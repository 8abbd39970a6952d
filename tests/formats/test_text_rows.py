"""Rows of text files: every value is read as it is written, unlike by Arrow's readers."""

import json
import random
from decimal import Decimal

import pytest
from boto3.dynamodb.types import TypeDeserializer

from ddbio.errors import DecodeError
from ddbio.formats import csv_rows
from ddbio.formats.csv_rows import read_csv
from ddbio.formats.file_format import ReadOptions
from ddbio.formats.json_rows import read_json, read_json_in_python
from ddbio.items.encode import Encoder


def items(table):
    """Return the items of the rows of a table."""
    converted, plain = [], TypeDeserializer().deserialize
    for batch in table.to_batches():
        encoded = Encoder(batch.schema).encode(batch)
        assert not encoded.refusals
        texts = encoded.buffer.tobytes()
        spans = zip(encoded.offsets[:-1], encoded.offsets[1:], strict=True)
        converted += [{name: plain(value) for name, value in json.loads(texts[a:b]).items()} for a, b in spans]
    return converted


def without_nulls(value):
    """Return a JSON value without null members."""
    if isinstance(value, dict):
        return {name: without_nulls(member) for name, member in value.items() if member is not None}
    return [without_nulls(element) for element in value] if isinstance(value, list) else value


@pytest.mark.parametrize(
    "lines",
    [
        '{"n": 0.1234567890123456789}',
        '{"n": 12345678901234567890}\n{"n": 12345678901234567891}',
        '{"n": 9007199254740993}\n{"n": 1.5}',
        '{"s": {"l": [9007199254740993.5]}}',
        '{"d": "2026-11-21", "t": "2026-11-21 10:00:00", "z": "2026-11-21T10:00:00Z", "l": ["2026-11-21"]}',
        '{"l": [null, 1]}',
        '{"l": [null, null]}\n{"l": [1]}',
        '{"l": [null, "x", [null]]}',
        '{"m": {}}',
        '{"v": 1}\n{"v": "x"}\n{"v": [true]}',
    ],
)
def test_json_is_taken_as_it_is_written(lines):
    """Digits, times, nulls in lists, empty objects and columns of mixed types arrive unchanged."""
    expected = [json.loads(line, parse_float=Decimal, parse_int=Decimal) for line in lines.splitlines()]
    assert items(read_json(lines.encode())) == expected


def value_of(draw, depth=0):
    """Return any value of JSON."""
    kind = draw.randrange(9 if depth < 3 else 7)
    if kind == 7:
        return [value_of(draw, depth + 1) for _ in range(draw.randrange(3))]
    if kind == 8:
        return {f"m{n}": value_of(draw, depth + 1) for n in range(draw.randrange(3))}
    return draw.choice([None, True, 7, 10**20 + 1, 1.5, 0.1, "2026-11-21", "text", "ü", "01234567890123456.7"])


def test_any_json_is_taken_as_it_is_written(seeds):
    """For any rows, regular or not, the items are those of the text."""
    for seed in seeds(300, 3_000):
        draw = random.Random(seed)
        columns = [value_of(draw) for _ in range(3)]
        rows = [
            {f"c{n}": columns[n] if draw.random() < 0.7 else value_of(draw) for n in range(3)}
            for _ in range(draw.randrange(1, 5))
        ]
        text = "\n".join(map(json.dumps, rows))
        expected = [json.loads(line, parse_float=Decimal, parse_int=Decimal) for line in text.splitlines()]
        assert items(read_json(text.encode())) == [without_nulls(row) for row in expected], seed


def test_a_column_of_nulls_stays_one():
    """An update removes a column that is null in every row, also if the rows are read one by one."""
    table = read_json(b'{"id": "a", "gone": null, "n": 0.1234567890123456789}')
    assert table.column("gone").null_count == 1


def test_an_invalid_object_is_an_error_with_its_line():
    """A list around the rows, and a duplicate name, are errors with an advice."""
    with pytest.raises(DecodeError, match="line 1: this is no object: write one for each row, and no list around"):
        read_json(b'[{"id": "a"}]')
    with pytest.raises(DecodeError, match="line 2: the name 'v' occurs twice"):
        read_json(b'{"v": 1}\n{"v": 1, "v": 2}')


@pytest.mark.parametrize(
    ("cells", "values"),
    [
        (["0.1234567890123456789", "5"], [Decimal("0.1234567890123456789"), 5]),
        (["12345678901234567890", "12345678901234567891"], [12345678901234567890, 12345678901234567891]),
        (["1.10", "1e5", "-3"], [Decimal("1.1"), 100000, -3]),
        (["00701", "12"], ["00701", "12"]),
        (["+4912345", "+1"], ["+4912345", "+1"]),
        (["0x10", "0x1F"], ["0x10", "0x1F"]),
        (["0", "-0.5"], [0, Decimal("-0.5")]),
        (["10:00", "23:59:59"], ["10:00", "23:59:59"]),
        (["2026-11-21 10:00:00", "2026-11-21T10:00"], ["2026-11-21 10:00:00", "2026-11-21T10:00"]),
        (["2026-11-21T10:00:00Z"], ["2026-11-21T10:00:00Z"]),
        (["2026-11-21"], ["2026-11-21"]),
        (["true", "false"], [True, False]),
    ],
)
def test_csv_keeps_digits_and_spellings(cells, values):
    """Numbers keep their digits; times, and numbers that are written like codes, stay texts."""
    text = "id,v,w\n" + "".join(f"a{n},{cell},0\n" for n, cell in enumerate(cells)) + "z,,0\n"
    rows = items(read_csv(text.encode(), ReadOptions({"id": "S"})))
    assert [row.get("v") for row in rows] == [*values, None]


def test_csv_of_another_encoding_is_refused():
    """Text that is not UTF-8 is an error, not binary."""
    with pytest.raises(DecodeError, match="column 'v' holds bytes that are not UTF-8: write the file in UTF-8"):
        read_csv("id,v\na,é\n".encode("latin-1"), ReadOptions({"id": "S"}))


def test_a_cell_that_is_no_number_spoils_its_row_alone():
    """A numeric key of CSV is a number in every row: the encoder refuses the other rows separately."""
    table = read_csv(b"n,v\n 007,1\nabc,2\n1.50,3\n", ReadOptions({"n": "N"}))
    (batch,) = table.to_batches()
    encoded = Encoder(batch.schema, keys={"n": "N"}).encode(batch)
    assert [(refusal.row, refusal.rule) for refusal in encoded.refusals] == [(1, "number")]
    assert items(table.take([0, 2])) == [{"n": 7, "v": 1}, {"n": Decimal("1.5"), "v": 3}]


def test_cells_of_csv_may_have_line_ends_anywhere(monkeypatch):
    """A quoted cell of two lines is one cell, also in a file of several of the reader's blocks."""
    monkeypatch.setattr(csv_rows, "_BLOCK_BYTES", 2**20)
    row = 'k{0},"one\ntwo{1}"\n'
    text = "id,v\n" + "".join(row.format(n, "x" * (n % 40)) for n in range(50_000))
    table = read_csv(text.encode(), ReadOptions({"id": "S"}))
    assert len(text) > 1_500_000
    assert table.column("v").to_pylist() == [f"one\ntwo{'x' * (n % 40)}" for n in range(50_000)]


@pytest.mark.parametrize("read", [read_csv, read_json])
def test_a_row_that_is_too_large_for_an_item_is_read(read):
    """Only the row is refused, by the encoder's rule, not the file."""
    large = "x" * 3_000_000
    text = f"id,v\na,{large}\nb,y\n" if read is read_csv else f'{{"id":"a","v":"{large}"}}\n{{"id":"b","v":"y"}}\n'
    assert read(text.encode()).column("v").to_pylist() == [large, "y"]


@pytest.mark.parametrize(
    "text",
    [
        b"null",
        b"null\n",
        b'null{"pk":"k"}',
        b'null\n{"pk":"k"}',
        b'{"pk":"k"}\nnull',
        b"[[]]",
        b"1 2 3",
        b'"text"',
        b'{"a":1}}',
        b'{"a":',
        b'{"a":nul}',
        b"\0",
        b'{"a":01}',
        b'{"a":NaN}',
        b'{"a":null,"a":1}',
        b'{"m":{"a":1,"a":null}}',
        b'{"a":"\xff"}',
        b"{" * 100_000,
        b'{"a":' * 100_000,
        b'{"a":[' * 2_000 + b"1" + b"]}" * 2_000,
        *(b'{"a":' + b"[" * depth + b"1" + b"]" * depth + b"}" for depth in (600, 700, 800, 990)),
        b'{"a":' * 500 + b"1" + b"}" * 500,
        b"[" * 300_000 + b"]" * 300_000,
    ],
    ids=lambda text: repr(text[:20]),
)
@pytest.mark.parametrize("size", [0, 2_000_000], ids=["small", "beyond the first calls"])
def test_hostile_json_is_one_error(text, size):
    """Text that would end the process within Arrow's reader, and deep nesting, are errors with a line."""
    rows = b'{"pk":"%s"}\n' % (b"x" * size) if size else b""
    with pytest.raises(DecodeError):
        read_json(rows + text)


KINDS = {"text": "text", "list": ["a", 1], "map": {"a": 1}, "truth": True, "number": 1, "fraction": 0.5, "null": None}


@pytest.mark.parametrize("later", KINDS)
@pytest.mark.parametrize("first", KINDS)
def test_an_attribute_of_two_types_is_read_anywhere(first, later):
    """A rare attribute of another type far away ended the process within Arrow's reader; both values are read."""
    rows = [{"pk": f"k{number:05}", "v": "x" * 60} for number in range(3_000)]
    rows[1]["note"], rows[-1]["note"] = KINDS[first], KINDS[later]
    converted = items(read_json("\n".join(map(json.dumps, rows)).encode()))
    exact = [json.loads(json.dumps(row), parse_float=Decimal) for row in rows]
    assert converted == [without_nulls(row) for row in exact]
    assert len(converted) == 3_000


@pytest.mark.parametrize(
    "text", [b"", b"  \n\n", b"{}", b"{}\n{}{} {}", b'{"a":null}', b'{"a":[null,{"b":null}]}', b'\r\n{"a":1}\r\n']
)
def test_loops_and_plain_way_give_the_same_rows(text):
    """Blank lines, rows without members and null members are the same for both readers."""
    fast, plain = read_json(text, ReadOptions()), read_json_in_python(text, ReadOptions())
    assert items(fast) == items(plain)
    assert set(fast.schema.names) == set(plain.schema.names) - {"_rescue"}
