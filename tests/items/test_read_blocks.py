"""The compiled conversion of Ion to DynamoDB JSON, compared with the reference."""

import json

import pytest
from hypothesis import given
from item_strategies import ITEMS

from ddbio.errors import DecodeError
from ddbio.items.ion import PIECE_BYTES, IonReader
from ddbio.items.ion_values import ion_line, ion_to_json_lines
from ddbio.items.kernel import ion

LINES = IonReader(1 << 20)


def documents(lines):
    """Return the documents of JSON lines."""
    return [json.loads(line) for line in lines.splitlines()]


@given(ITEMS)
def test_items_come_out_as_by_the_reference(item):
    """Both print the same values, with the same number texts."""
    lines = ion_line({"Item": item}) + ion_line({"Keys": item, "NewImage": item})
    assert documents(b"".join(LINES.pieces(lines))) == documents(ion_to_json_lines(lines))


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("103.", "103"), ("12.50", "12.5"), ("6d2", "600"), ("-1.5d-3", "-0.0015"), ("0.", "0"), ("-0.", "0"),
        ("0d0", "0"), ("1D+2", "100"), ("9.99d125", "999" + "0" * 123), ("-1d-130", "-0." + "0" * 129 + "1"),
        ("9" * 38 + ".", "9" * 38), ("5", "5"), ("0.10", "0.1"), ("100.0", "100"),
    ],
)  # fmt: skip
def test_numbers_are_printed_without_the_reference(text, printed):
    """Every text of a decimal becomes canonical within the compiled loop."""
    document = document_by_the_loop(f"{{Item:{{n:{text}}}}}".encode())
    assert document == {"Item": {"n": {"N": printed}}}


def document_by_the_loop(line):
    """Return the document of a line that the loop printed without the reference."""
    lines = IonReader(1 << 16)
    lines._data[: len(line)] = memoryview(line)
    lines._data[len(line) :] = 0
    status, _, printed = ion.print_ion(lines._data, 0, len(line), lines._out, lines._levels, lines._digits)
    assert status == ion.DONE
    return json.loads(lines._out[:printed].tobytes())


@pytest.mark.parametrize(
    "line",
    [
        b"{Item:{'a \"b':[{x:1.}]}}", b'{Item:{"q":"\\"\\u00e9\\n"}}', b"{Item:{a:{{aGVsbG8=}}}}", b"{}", b"{Item:{}}",
        b"{Record:{Keys:{a:1.},Metadata:{}}}", b"{ Record : { Keys : { } } } ", b"{Record:{}}", b"{Records:{a:1.}}",
        b"{Item:{a:{},b:[],c:$dynamodb_SS::[]}}", b" $ion_1_0 $ion_1_0 { Item : { a : [ 1. , null , true ] } } \r",
    ],
)  # fmt: skip
def test_usual_lines_need_no_reference(line):
    """The loop prints lines as the service writes them, and white space."""
    assert document_by_the_loop(line) == json.loads(ion_to_json_lines(line))


@pytest.mark.parametrize(
    "line",
    [b'{Item:{a:"\\x41\\U0001F600"}}', b"{Item:{a:1_0.,}}", b"{Item:{'a\\'b':1.}}", b"{Item:{a:{{ aGk= }}}}",
     b"$ion_1_0", b'{Item:{a:"\t"}}', b"{Item:{" + b"a" * 9 + b":1.}}\x0b",
     b"{'Record':{Keys:{}}}", b"{Record:{},Keys:{}}"],
)  # fmt: skip
def test_unusual_lines_go_to_the_reference(line):
    """Texts that the loop does not know are read by the reference, between lines that it knows."""
    lines = b"\n".join([b"{Item:{a:1.}}", line, b"", b"{Item:{a:2.}}", b""])
    assert documents(b"".join(LINES.pieces(lines))) == documents(ion_to_json_lines(lines))


def test_a_broken_line_is_counted_from_what_was_yielded():
    """The lines before an invalid one come first. Its number counts from the end of these lines."""
    pieces = LINES.pieces(b"{Item:{a:1.}}\n{Item:{a:2.}}\n{Item:5.}\n")
    assert len(documents(next(pieces))) == 2
    with pytest.raises(DecodeError, match="line 1: ") as caught:
        next(pieces)
    assert caught.value.line == 1


def test_symbol_numbers_are_no_names():
    """A name that is a symbol's number refers to a symbol table, which exports do not have."""
    with pytest.raises(DecodeError):
        list(LINES.pieces(b"{Item:{$10:1.}}"))


@pytest.mark.parametrize("text", ["-.5", "-.", "-", "-d5", "-.5d1", ".5", "+1.", "--1."])
def test_numbers_without_an_integer_part_are_refused(text):
    """Ion has no such numbers, also in the compiled loop."""
    with pytest.raises(DecodeError):
        list(LINES.pieces(f"{{Item:{{a:{text}}}}}\n".encode()))


def test_large_lines_grow_the_buffer():
    """A line that is printed as more than a piece is complete."""
    text = "x" * (PIECE_BYTES + 1000)
    lines = IonReader(4 * PIECE_BYTES)
    printed = b"".join(lines.pieces(ion_line({"Item": {"a": {"S": text}}})))
    assert documents(printed) == [{"Item": {"a": {"S": text}}}]


def test_lines_that_stand_for_too_much_are_refused():
    """The length of a printed line is limited, although a short exponent can stand for many digits."""
    with pytest.raises(DecodeError, match="stands for more than 1000000 bytes"):
        list(IonReader(10**6).pieces(b"{Item:{a:[" + b"1d125," * 10_000 + b"1.]}}"))
