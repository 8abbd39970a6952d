"""Ranges of bytes of a text file: together they have all rows exactly once, for any bounds."""

import csv
import io
import itertools
import json
import tempfile
from pathlib import Path

from hypothesis import example, given
from hypothesis import strategies as st

from ddbio.formats.csv_records import record_starts
from ddbio.formats.text_ranges import LineCounts, byte_ranges, count_csv, csv_starts, document_blocks, read_documents
from ddbio.storage.local_store import LocalStore
from ddbio.storage.staged import StoredObject


class Text:
    """Store of one file, which counts the bytes that are read."""

    uri = "memory"

    def __init__(self, text):
        self.text, self.entry, self.read_bytes = text, StoredObject("a", len(text)), 0

    def read_range(self, entry, start, length):
        """Return a range, which is not empty."""
        assert entry is self.entry
        assert length > 0
        data = self.text[start : start + length]
        self.read_bytes += len(data)
        return data


def ranges(size, cuts):
    """Return the ranges between some offsets of a file."""
    bounds = sorted({0, size, *(cut % size for cut in cuts)})
    return list(itertools.pairwise(bounds))


CUTS = st.lists(st.integers(0, 10_000), max_size=8)
VALUES = st.recursive(
    st.one_of(st.text(alphabet='{}\\"\n\r, aé', max_size=6), st.integers(), st.none()),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
    max_leaves=4,
)


@given(
    rows=st.lists(st.dictionaries(st.sampled_from("pn"), VALUES, max_size=2), min_size=1, max_size=8),
    between=st.sampled_from(["\n", "\r\n", "\n\n", "\n \n"]),
    indent=st.sampled_from([None, 0, 1]),
    cuts=CUTS,
)
@example(rows=[{}, {}], between="\n", indent=None, cuts=[2, 3])
def test_documents_are_read_once_wherever_a_file_is_cut(rows, between, indent, cuts):
    """A document belongs to the range in which it starts; nothing within a document looks like a start."""
    text = between.join(json.dumps(row, indent=indent) for row in rows).encode()
    store = Text(text)
    parts = [read_documents(store, store.entry, begin, end) for begin, end in ranges(len(text), cuts)]
    assert b"".join(part for _, part in parts) == text
    counts = LineCounts(store)
    for begin, part in parts:
        assert text.startswith(bytes(part), begin)
        assert counts.before(store.entry, begin) == text[:begin].count(b"\n")


@given(
    rows=st.lists(st.dictionaries(st.sampled_from("pn"), VALUES, max_size=2), min_size=1, max_size=8),
    between=st.sampled_from(["\n", "\r\n", "\n\n", "\n \n"]),
    indent=st.sampled_from([None, 0, 1]),
    cuts=CUTS,
    block_bytes=st.integers(1, 40),
)
@example(rows=[{}, {}], between="\n", indent=None, cuts=[2, 3], block_bytes=1)
def test_blocks_of_a_local_file_are_the_same_documents(rows, between, indent, cuts, block_bytes):
    """Ranges of a local file have the same documents, in blocks that end at a line end."""
    text = between.join(json.dumps(row, indent=indent) for row in rows).encode()
    with tempfile.TemporaryDirectory() as home:
        Path(home, "rows.json").write_bytes(text)
        store, entry = LocalStore(home), StoredObject("rows.json", len(text))
        for begin, end in ranges(len(text), cuts):
            first_byte, part = read_documents(store, entry, begin, end)
            first, blocks = document_blocks(store, entry, begin, end)
            assert b"".join(map(bytes, blocks)) == part
            assert not part or first == first_byte
            blocks = [bytes(block) for block in store.line_blocks(entry, begin, end, block_bytes)]
            assert b"".join(blocks) == text[begin:end]
            assert all(block.endswith(b"\n") for block in blocks[:-1])


@given(
    rows=st.lists(
        st.lists(st.text(alphabet='", \n\r\nxé', max_size=5), min_size=2, max_size=2), min_size=1, max_size=8
    ),
    end=st.sampled_from(["\n", "\r\n"]),
    cuts=CUTS,
)
@example(rows=[["\n", '"'], ["a\n", "\n"]], end="\n", cuts=[1, 2, 3])
def test_records_are_read_once_wherever_a_file_is_cut(rows, end, cuts):
    """Each range of CSV starts with a record, whose line is known, for any quoting of cells."""
    out = io.StringIO()
    csv.writer(out, lineterminator=end).writerows(rows)
    text = out.getvalue().encode()
    store = Text(text)
    starts = csv_starts(
        [count_csv(store, store.entry, *bounds) for bounds in ranges(len(text), cuts)], store.entry.size_bytes
    )
    assert len(starts) == len(ranges(len(text), cuts)) + 1
    assert (starts[0].byte, starts[-1].byte) == (0, len(text))
    legal = {
        *record_starts(text).tolist(),
        len(text),
        *(index for index in range(len(text)) if text[index:][:1] in b"\r\n"),
    }
    for one, other in itertools.pairwise(starts):
        assert one.byte <= other.byte
        assert one.byte in legal
        assert one.lines == text[: one.byte].count(b"\n")


def test_quotes_that_open_no_cell_forbid_ranges():
    """If a quote is a plain character, only the preceding text shows the ends of cells: there is one range."""
    store = Text(b'size,n\n5" pipe,1\n"a\nb",2\n6" pipe,3\n')
    starts = csv_starts([count_csv(store, store.entry, *bounds) for bounds in ranges(len(store.text), [9, 20])], 39)
    assert [start.byte for start in starts] == [0, 39, 39, 39]


def test_a_range_reads_little_more_than_its_bytes():
    """No range reads the previous ones."""
    store = Text(b"\n".join(json.dumps({"pk": "x" * 100}).encode() for _ in range(30_000)))
    for begin, end in byte_ranges(len(store.text), 1_000_000):
        read_documents(store, store.entry, begin, end)
    assert store.read_bytes <= 1.1 * len(store.text)
