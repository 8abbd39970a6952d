"""Ion of exports, compared with the reference library of Ion and the documented samples."""

import json

import pytest
from amazon.ion import simpleion
from amazon.ion.core import IonType
from amazon.ion.simple_types import IonPyNull
from hypothesis import given
from hypothesis import strategies as st
from item_strategies import ITEMS

from ddbio.errors import DecodeError
from ddbio.items.digest import item_hash
from ddbio.items.ion_values import ion_line, ion_to_json_lines

SAMPLE = (
    b'$ion_1_0 {Item:{pk:"user#7",total:12.50,qty:6d2,small:-1.5d-3,tags:$dynamodb_SS::["new","vip"],'
    b"nums:$dynamodb_NS::[103.,6.],img:{{aGVsbG8=}},note:null,paid:true,'a b':[{x:1.}]}}\n"
)


def only(line):
    """Return the one document of a line."""
    return json.loads(ion_to_json_lines(line))


def test_sample_of_an_export():
    """Every documented type is converted to its DynamoDB JSON, with canonical numbers."""
    assert only(SAMPLE) == {
        "Item": {
            "pk": {"S": "user#7"}, "total": {"N": "12.5"}, "qty": {"N": "600"}, "small": {"N": "-0.0015"},
            "tags": {"SS": ["new", "vip"]}, "nums": {"NS": ["103", "6"]}, "img": {"B": "aGVsbG8="},
            "note": {"NULL": True}, "paid": {"BOOL": True}, "a b": {"L": [{"M": {"x": {"N": "1"}}}]},
        }
    }  # fmt: skip


def test_write_time_is_a_decimal():
    """The time of a change, a decimal in Ion, is a number."""
    line = b'{Metadata:{WriteTimestampMicros:1793491200123456.},Keys:{pk:"a"}}'
    assert only(line)["Metadata"] == {"WriteTimestampMicros": {"N": "1793491200123456"}}


@given(ITEMS)
def test_any_item_comes_back(item):
    """Any item survives a round trip through Ion."""
    assert item_hash(only(ion_line({"Item": item}))["Item"]) == item_hash(item)


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=20))
def test_texts_as_the_reference_library_writes_them(text):
    """A text that the reference library escaped is read unchanged."""
    dumped = simpleion.dumps({"Item": {"s": text}}, binary=False).encode()
    assert only(dumped.replace(b"\n", b"\\n")) == {"Item": {"s": {"S": text}}}


def test_reference_library_reads_what_the_testing_part_writes():
    """The reference library reads the exports of ``ddbio.testing``."""
    line = ion_line({"Item": {"n": {"N": "600"}, "no": {"NULL": True}, "s": {"S": 'a"\\\n\u0001é'}}})
    item = simpleion.loads(line)["Item"]
    assert (int(item["n"]), item["n"].ion_type, item["s"]) == (600, IonType.DECIMAL, 'a"\\\n\u0001é')
    assert item["no"] is None or isinstance(item["no"], IonPyNull)


@pytest.mark.parametrize(
    "line",
    [
        b"{", b"}", b"[]", b"{Item:5.}", b"{Item:{a:1e5}}", b"{Item:{a:}}", b"{Item:{a:b}}",
        b'{Item:{a:"}}', b"{Item:{a:2026T}}",
        b"{Item:{a:$dynamodb_SS::[1.]}}", b"{Item:{a:x::[]}}", b"{Item:{a:1.,a:2.}}", b"{Item:{}} {}",
        b'{Item:{a:"\\q"}}',
        b"\xff", b'{Item:{a:"\\ud800"}}', b"{Item:{a:[1. 2.]}}", b"{Item:{a:{{a}}}}", b"{Item:{a:" + b"[" * 100_000,
    ],
)  # fmt: skip
def test_other_ion_is_refused(line):
    """Ion that no export contains is refused. The message names the line."""
    with pytest.raises(DecodeError, match="line 2: "):
        ion_to_json_lines(b"$ion_1_0\n" + line)
