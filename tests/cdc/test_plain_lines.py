from __future__ import annotations

import json
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from item_strategies import ITEMS, VALUES

from ddbio.cdc.plain_lines import plain_lines, split_records, text_parts
from ddbio.cdc.transform import change_line
from ddbio.items.plain_changes import ChangePrinter

MICROS = st.integers(0, (1 << 32) * 1_000_000 - 1)
OWN_NAMES = {"_op", "_sequence", "_event_id", "_event_time", "_expired"}


@st.composite
def records(draw, number, *, with_id=True, with_number=True):
    """Draw a record of a stream. Its new image has the key, as the service writes it, or another one."""
    keys = draw(st.dictionaries(st.sampled_from(["pk", "sk", "naïve"]), VALUES, min_size=1, max_size=2))
    inside = {
        "ApproximateCreationDateTime": draw(MICROS),
        "ApproximateCreationDateTimePrecision": "MICROSECOND",
        "Keys": keys,
    }
    new = draw(st.none() | ITEMS.filter(bool))
    if new is not None:
        inside["NewImage"] = draw(st.sampled_from([new, {**new, **keys}, {**keys, **new}]))
    if draw(st.booleans()):
        inside["OldImage"] = draw(ITEMS.filter(bool))
    if with_number:
        inside["SequenceNumber"] = f"{number}00{number}"
    record = {"eventName": draw(st.sampled_from(["INSERT", "MODIFY", "REMOVE"])), "awsRegion": "eu-west-1"}
    if with_id:
        record["eventID"] = f"id-{number}"
    if draw(st.booleans()):
        record["userIdentity"] = draw(
            st.sampled_from([None, {"type": "Service", "principalId": "dynamodb.amazonaws.com"}, {"PrincipalId": "me"}])
        )
    return {**record, "dynamodb": inside}


@st.composite
def streams(draw):
    """Draw the records of a text, all with the same members."""
    members = {"with_id": draw(st.booleans()), "with_number": draw(st.booleans())}
    return [draw(records(number, **members)) for number in range(draw(st.integers(1, 4)))]


def text_of(records, *, ascii_only=False, between=""):
    """Return records as text."""
    return between.join(json.dumps(value, ensure_ascii=ascii_only, separators=(",", ":")) for value in records).encode()


def read(text):
    """Return the lines that the loops print, or None."""
    actual = plain_lines(text)
    return None if actual is None else b"".join(value.data.tobytes() for value in actual)


@given(streams(), st.booleans(), st.sampled_from(["", "\n"]))
def test_lines_are_those_of_the_reference(drawn, ascii_only, between):
    """For any item, with its key and all digits of numbers, lines are equal byte by byte, or the text is refused."""
    lines = read(text_of(drawn, ascii_only=ascii_only, between=between))
    wanted = b"".join(f"{change_line(text_of([record]))[0]}\n".encode() for record in drawn)
    if lines is None:
        # An escaped letter might hide a name, and the line has the members of ddbio.
        assert ascii_only or b"\\u00" in text_of(drawn) or any(f'"{name}"' in str(drawn) for name in OWN_NAMES)
    else:
        assert lines == wanted


def test_many_records_have_their_offsets_and_hours():
    """Several megabytes, growing numbers, sets, and nesting give lines that end at their offsets."""
    tall = {"L": [{"M": {"x": {"NS": ["1e125", "-1.50"]}, "y": {"L": []}, "z": {"M": {}}}}, {"SS": ["]", '"}']}]}
    actual = [
        {"eventName": "INSERT", "eventID": str(number),
         "dynamodb": {"ApproximateCreationDateTime": 1793491203 + number, "SequenceNumber": str(number),
                      "Keys": {"pk": {"N": str(number)}},
                      "NewImage": {"a": tall, "pk": {"N": str(number)}, "b": {"BOOL": False}, "c": {"NULL": True},
                                   "d": {"BOOL": True}, "e": {"BS": ["AA=="]}, "f": {"S": "x" * 300}}}}
        for number in range(15_000)
    ]  # fmt: skip
    lines = plain_lines(text_of(actual, between="\n"))
    assert lines is not None
    assert len(lines) > 1
    got = [bytes(line.data[first:end]) for line in lines for first, end in zip(line.offsets, line.offsets[1:], strict=False)]  # fmt: skip # noqa: E501
    assert got == [f"{change_line(text_of([record]))[0]}\n".encode() for record in actual]
    assert [hour for line in lines for hour in line.hours.tolist()] == [
        (1793491203 + number) // 3600 for number in range(15_000)
    ]


def test_items_and_maps_with_many_names_are_printed():
    """An image may have any number of attributes. The names of a map after the first are not stored."""
    many = {f"n{number}": {"N": str(number)} for number in range(200)}
    actual = [
        {**RECORD, "eventID": str(number), "dynamodb": {**RECORD["dynamodb"], "NewImage": {**many, "m": {"M": many}}}}
        for number in range(2)
    ]
    assert read(text_of(actual)) == b"".join(f"{change_line(text_of([record]))[0]}\n".encode() for record in actual)


def test_a_name_of_an_earlier_text_does_not_matter():
    """A text with an attribute named like a member of the line is refused. The next one is not."""
    printer = ChangePrinter()
    own = {**RECORD, "dynamodb": {**RECORD["dynamodb"], "NewImage": {"_sequence": {"S": "a"}}}}
    assert plain_lines(text_of([own]), images=printer) is None
    assert plain_lines(text_of([RECORD]), images=printer) is not None


RECORD = {"eventName": "MODIFY", "eventID": "1", "dynamodb": {"ApproximateCreationDateTime": 1, "SequenceNumber": "1",
          "Keys": {"pk": {"S": "a"}}}}  # fmt: skip


@pytest.mark.parametrize(
    "text",
    [
        text_of([RECORD, RECORD]),
        text_of([RECORD]) + b"no change",
        text_of([RECORD, {**RECORD, "eventID": "2", "eventName": "TRUNCATE"}]),
        text_of([{**RECORD, "_op": "x", "_event_time": "2026-11-24T00:00:00+00:00"}]),
        text_of([{**RECORD, "dynamodb": {**RECORD["dynamodb"], "ApproximateCreationDateTime": 253402300800000000}}]),
        text_of([{**RECORD, "dynamodb": {**RECORD["dynamodb"], "Keys": {"_sequence": {"S": "a"}}}}]),
        text_of([RECORD, {value: RECORD[value] for value in ("eventName", "dynamodb")}]),
        text_of([RECORD]).replace(b'"eventID":"1"', b'"eventID" : "1"'),
        text_of([RECORD]).replace(b'"pk"', b'"\\u005fop"'),
        b'{"Metadata":{"WriteTimestampMicros":"1"},"Keys":{"a":{"S":"x"}}}',
        b'{"Records":[' + text_of([RECORD]) + b"]}",
        b"",
    ],
    ids=[
        "twice",
        "broken",
        "event",
        "line",
        "late",
        "own_name",
        "no_id",
        "blank",
        "escaped",
        "export",
        "reply",
        "empty",
    ],
)
def test_unusual_texts_are_left_to_the_reference(text):
    """Each of these needs another reader, or is not a change. The loops refuse them all."""
    assert plain_lines(text) is None
    assert split_records(text) is None


@given(streams(), st.booleans(), st.sampled_from(["", "\n", " ,\r\n"]), st.none() | st.integers(1, 4))
def test_records_are_split_as_the_reference_splits_them(drawn, ascii_only, between, most):
    """Each text is that of its record, with any separator. A sample has the first records."""
    texts = [text_of([record], ascii_only=ascii_only) for record in drawn]
    split = split_records(between.join(text.decode() for text in texts).encode(), most)
    if split is not None:
        assert [value.encode() for value in split] == texts[:most]
    assert split is not None or read(text_of(drawn[:most], ascii_only=ascii_only)) is None


@given(streams(), st.integers(0, 300), st.sampled_from(["", "\n", " \r\n"]))
def test_parts_of_a_text_end_where_a_record_ends(drawn, part_bytes, between):
    """It holds for any items, and nothing is lost."""
    text = text_of(drawn, between=between)
    parts = list(text_parts(text, part_bytes))
    assert b"".join(parts) == text
    records = iter(text_of([record]) for record in drawn)
    for part in parts:
        while part.strip():
            record = next(records)
            assert part.strip().startswith(record)
            part = part.strip()[len(record) :]  # noqa: PLW2901 - the remaining part
    assert next(records, None) is None


def test_a_text_is_split_only_after_records():
    """Braces within strings and lists are not borders."""
    image = {"a": {"S": '} {"x}{'}, '}{"b': {"L": [{"M": {}}, {"M": {}}]}}
    one = text_of([{**RECORD, "dynamodb": {**RECORD["dynamodb"], "NewImage": image}}])
    assert list(text_parts(b"\n".join([one, one, one]), 1)) == [one + b"\n", one + b"\n", one]


def test_an_event_that_came_in_an_earlier_text_is_refused():
    """The reference leaves it out. A refused text adds no ids."""
    other, seen = {**RECORD, "eventID": "2"}, set()
    assert plain_lines(text_of([RECORD]), seen) is not None
    assert plain_lines(text_of([other, RECORD]), seen) is None
    assert seen == {"1"}
    assert split_records(text_of([other]), None, seen) is not None
    assert seen == {"1", "2"}
    assert plain_lines(text_of([other]), seen) is None


def test_lines_are_printed_without_pandas():
    """Importing pandas takes longer than printing the lines of a small file."""
    script = """
import sys
import numpy as np
from ddbio.cdc.plain_lines import plain_lines
from ddbio.items.decode import Decoder, infer_schema_of_body
from ddbio.items.row_lines import JsonLinePrinter
image = b'{"pk":{"S":"a"}}'
record = b'{"eventName":"INSERT","dynamodb":{"ApproximateCreationDateTime":1,"Keys":%s,"NewImage":%s}}' % (image, image)
assert b'"pk":"a"' in plain_lines(record)[0].data.tobytes()
items = b'{"Item":{"pk":{"S":"a"},"n":{"N":"1"}}}'
for batch in Decoder(infer_schema_of_body(items).to_arrow()).decode_batches(items, "export"):
    ((_, text),) = JsonLinePrinter(batch.schema).print_pieces(batch)
    assert b'"pk":"a"' in text
print("pandas" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("False\n", "")
