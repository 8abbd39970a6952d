from __future__ import annotations

import gzip
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddbio.errors import DecodeError, OptionError
from ddbio.testing.calls.reads import scan
from ddbio.testing.loading import file_lines, load, parse_key
from ddbio.testing.request import Request, stored_item, to_json
from ddbio.testing.tables.database import Database

NUMBERS = st.sampled_from(["0", "-0", "1", "1.0", "1e3", "-12.5", "001", "1" * 38])
VALUES = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=5).map(lambda text: {"S": text}),
    NUMBERS.map(lambda text: {"N": text}),
    st.just({"BOOL": True}),
    st.just({"L": [{"N": "1.0"}]}),
)
ITEMS = st.dictionaries(st.sampled_from(["a", "b", "\u00e9", "S", "Item"]), VALUES, max_size=4)


def loaded(items, key="pk", name="tab"):
    """Return a database with loaded items."""
    database = Database()
    load(database, name, items, key)
    return database


def rows(database, name="tab"):
    """Return the stored items of a table and their sizes."""
    return [(stored.json, stored.size_bytes) for _, stored in database.tables[name].store.snapshot().entries()]


@given(item=ITEMS, compact=st.booleans(), escapes=st.booleans(), wrapped=st.booleans())
def test_line_is_stored_as_if_it_was_put(item, compact, escapes, wrapped):
    """The stored item and its size are those of the parsed item, in any notation of the line."""
    item = {"pk": {"S": "key"}, **item}
    separators = (",", ":") if compact else None
    line = json.dumps({"Item": item} if wrapped else item, ensure_ascii=escapes, separators=separators).encode()
    canonical, size_bytes = stored_item(item)
    assert rows(loaded(line)) == [(to_json(canonical), size_bytes)]


@pytest.mark.parametrize(
    "line",
    [
        b'{"pk":{"S":"a"},"n":{"N":"1"},"n":{"N":"2"}}',
        b'{"pk":{"S":"a"},"n":{"N":"1","N":"2"}}',
        b'{"pk":{"S":"a"}, "n":{"N":"2"}}',
        b'{"pk":{"S":"a"},"n":{"N":"02"}}',
        b'{"pk":{"S":"\\u0061"},"n":{"N":"2"}}',
    ],
)
def test_odd_spellings_are_brought_into_shape(line):
    """Duplicate names, blanks, escapes and other notations of numbers do not reach a page."""
    assert [text for text, _ in rows(loaded(line))] == [b'{"pk":{"S":"a"},"n":{"N":"2"}}']


def test_items_and_lines_of_any_kind_are_loaded():
    """Bytes with blank lines, lines of text, lines of bytes and mappings make the same table. The last key wins."""
    lines = b'{"pk":{"S":"a"},"n":{"N":"0"}}\n\n{"Item":{"pk":{"S":"b"}}}\r\n{"pk":{"S":"a"}}\n'
    expected = sorted([b'{"pk":{"S":"a"}}', b'{"pk":{"S":"b"}}'])
    for items in (
        lines,
        bytearray(lines),
        lines.splitlines(),
        lines.decode().splitlines(),
        iter([{"pk": {"S": "a"}}, {"Item": {"pk": {"S": "b"}}}]),
    ):
        assert sorted(text for text, _ in rows(loaded(items))) == expected


def test_partition_key_may_be_called_item():
    """An item whose key is the attribute Item is bare, not wrapped."""
    assert [text for text, _ in rows(loaded(b'{"Item":{"S":"x"}}', "Item"))] == [b'{"Item":{"S":"x"}}']


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b"{", "Line 2 is not JSON"),
        (b"[]", "Item 2 cannot be loaded"),
        (b'{"n":{"N":"1"}}', "Missing the key pk"),
        (b'{"pk":{"N":"1"}}', "Type mismatch"),
        (b'{"pk":{"S":"a"},"n":{"N":"x"}}', "numeric"),
        (b'{"pk":{"S":""}}', "empty"),
    ],
)
def test_bad_lines_are_named(line, problem):
    """The error of a line that is no item of the table has its number and the reason."""
    with pytest.raises(DecodeError, match=problem) as caught:
        loaded(b'{"pk":{"S":"a"}}\n' + line)
    assert caught.value.line == 2


@pytest.mark.parametrize("key", ["", "pk:X", "a,b,c", ":S", "pk,"])
def test_bad_keys_are_option_errors(key):
    """A key is one or two names, each with an optional type."""
    with pytest.raises(OptionError, match="no key"):
        parse_key(key)


def test_table_keeps_its_own_key():
    """Loading into an existing table needs the same key. An invalid table name is refused."""
    database = loaded([{"pk": {"S": "a"}}])
    assert load(database, "tab", [{"pk": {"S": "b"}}], "pk:S") == 1
    assert len(rows(database)) == 2
    with pytest.raises(OptionError, match="exists with the key pk"):
        load(database, "tab", [], "pk:N")
    with pytest.raises(OptionError, match="regular expression pattern"):
        load(database, "a?", [], "pk:N")


def test_loading_costs_no_capacity_and_leaves_no_limit():
    """A loaded table without throughput is read without limit, and its loading is not logged as consumption."""
    database = Database(clock=lambda: 0.0)
    load(database, "tab", ({"pk": {"S": str(at)}, "x": {"S": "x" * 9000}} for at in range(500)), "pk")
    assert database.consumption.consumed() == []
    for _ in range(20):
        scan(database, Request({"TableName": "tab"}))
    assert database.consumption.consumed()[0][1] > 20 * 128


def test_files_may_be_compressed(tmp_path):
    """A file is read plain, or through gzip depending on its name."""
    plain, packed = tmp_path / "items.jsonl", tmp_path / "items.jsonl.gz"
    plain.write_bytes(b"one\ntwo\n")
    packed.write_bytes(gzip.compress(b"one\ntwo\n"))
    assert list(file_lines(plain)) == list(file_lines(packed)) == [b"one\n", b"two\n"]
