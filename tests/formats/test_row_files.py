"""Files of text: items of DynamoDB are detected, and errors have the file and the line."""

import os
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ddbio.errors import DecodeError
from ddbio.formats.file_format import ReadOptions
from ddbio.formats.row_files import RowFiles
from ddbio.storage.local_store import LocalStore

MARK = b"\xef\xbb\xbf"
PAGE = b'{"Items":[{"a":{"S":"x"}},{"a":{"S":"y"}}],"Count":2,"ScannedCount":2}'


def rows(name, text, keys=()):
    """Return the rows of a file's text."""
    with TemporaryDirectory() as folder:
        Path(folder, name).write_bytes(text)
        store = LocalStore(folder)
        (entry,) = store.list()
        return [row for batch in RowFiles(store, ReadOptions(dict(keys))).read(entry, 0) for row in batch.to_pylist()]


def values(name, text):
    """Return the column ``a`` of a file's text."""
    return [row["a"] for row in rows(name, text)]


@pytest.mark.parametrize("mark", [b"", MARK], ids=["plain", "with a byte order mark"])
@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("x.jsonl", b'{"a":{"S":"x"}}\n{"a":{"S":"y"}}\n', ["x", "y"]),
        ("x.jsonl", b'{"Item":{"a":{"S":"x"}}}\n', ["x"]),
        ("x.jsonl", b'{"a":"x"}\n', ["x"]),
        ("x.jsonl", b'{"a":["y"]}\n', [["y"]]),
        ("x.csv", b"a,b\nx,1\n", ["x"]),
        ("x.json", b"", []),
        ("x.json", PAGE, ["x", "y"]),
        ("x.json", PAGE.replace(b":", b" : ").replace(b"{", b"{\n "), ["x", "y"]),
        ("x.json", b'{"Count":1,"Items":[{"a":{"S":"x"}}],"ConsumedCapacity":null}', ["x"]),
        ("x.json", b'{"Items":[],"Count":0,"ScannedCount":7,"ConsumedCapacity":null}\n', []),
    ],
)  # fmt: skip
def test_items_are_recognised(mark, name, text, expected):
    """Items, export lines and saved responses of Scan are read as items, with or without a byte order mark."""
    assert values(name, mark + text) == expected


@pytest.mark.parametrize(
    "text",
    [
        b'{"Count":1,"Items":[{"sku":"a"}]}\n{"Count":2,"Items":[]}\n',
        b'{"Items":["x"]}\n',
        b'{"Count":3}\n',
        b'{"Items":[],"a":[1]}\n',
    ],
)
def test_rows_that_look_like_an_answer_are_rows(text):
    """Plain rows with the member names of a response stay rows."""
    assert len(rows("x.jsonl", text)) == text.count(b"\n")
    assert "_rescue" not in rows("x.jsonl", text)[0]


def test_a_large_answer_is_not_sampled(tmp_path):
    """A response whose head alone would be read has no sample; it is read completely."""
    text = b'{"Items":[{"a":{"S":"' + b"x" * (1 << 20) + b'"}},\n{"a":{"S":"y"}}]}\n'
    (tmp_path / "page.json").write_bytes(text)
    store = LocalStore(tmp_path)
    (entry,) = store.list()
    assert RowFiles(store).sample(entry, 10) is None
    assert sum(batch.num_rows for batch in RowFiles(store).read(entry, 0)) == 2


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("x.jsonl", b'{"a":"\\ud800"}\n', r"x\.jsonl: line 1: .* is half of a surrogate pair"),
        ("x.jsonl", b'{"a":"x"}\n{"a":"\\udc00x"}\n', r"x\.jsonl: line 2: .* is half of a surrogate pair"),
        ("x.jsonl", b'{"a":1,"\\ud83d":null}\n', r"x\.jsonl: line 1: .* is half of a surrogate pair"),
        ("x.jsonl", b'{"a":0.1}\n{"\\udc00x":null,"a":"b"}', r"x\.jsonl: line 2: .* is half of a surrogate pair"),
        ("x.jsonl", b'{"a":{"S":"\\ud800"}}\n', r"x\.jsonl: line 1: a: .* half of a surrogate pair"),
        ("x.jsonl", b'{"na\xe9":1}\n', r"x\.jsonl: line 1: byte 4 is not UTF-8"),
        ("x.csv", b"na\xe9,b\n1,2\n", r"x\.csv: the name of a column is not UTF-8"),
        ("x.csv", b"a,b\nna\xe9,2\n", r"x\.csv: line 2: column 'a' holds bytes that are not UTF-8"),
        ("x.jsonl", b'{"a":1e-400}\n', r"x\.jsonl: line 1: a: '1E-400' is outside"),
        ("x.jsonl", b'{"b":0.5}\n{"a":[-12.5E-0401]}\n', r"x\.jsonl: line 2: .* is outside"),
    ],
)
def test_invalid_rows_are_clear_errors(name, text, message):
    """Invalid text, and numbers that no double stores, are one error with the file and the line."""
    with pytest.raises(DecodeError, match=f"^{message}"):
        rows(name, text)


@pytest.mark.parametrize("cell", ["1e-400", " 007", "\t+49", "007", "1e999"])
def test_cells_that_arrow_would_change_stay_as_they_are(cell):
    """A cell that is too small for a double, or has needless zeros after a blank, is not rounded."""
    assert [value.strip() for value in values("x.csv", f"a,b\n{cell},1\n2.5,2\n".encode())] == [cell.strip(), "2.5"]


class WatchedStore(LocalStore):
    """Store that records the reads of files."""

    def __init__(self, target):
        super().__init__(target)
        self.reads = []

    def read_range(self, entry, start, length):
        """Return a range, and record its length."""
        self.reads.append(length)
        return super().read_range(entry, start, length)


@pytest.fixture
def large_group(tmp_path):
    """Return a store with a file of one row group of 40 MB, and its rows."""
    rows = pa.table({"a": range(40_000), "b": [os.urandom(1024) for _ in range(40_000)]})
    pq.write_table(rows, tmp_path / "x.parquet", compression="none", use_dictionary=False)
    return WatchedStore(tmp_path), rows


def test_a_sample_does_not_read_the_row_group(large_group):
    """The first rows of a large row group cost a fraction of it."""
    store, rows = large_group
    (entry,) = store.list()
    sample = RowFiles(store).sample(entry, 2)
    assert sample is not None
    assert sample.batch.to_pylist() == rows.slice(0, 2).to_pylist()
    assert sum(store.reads) < entry.size_bytes / 4


def test_a_large_row_group_of_a_disk_is_read_in_pieces(large_group):
    """A large row group in a folder is never completely in memory."""
    store, rows = large_group
    (entry,) = store.list()
    assert pa.Table.from_batches(RowFiles(store).read(entry, 0)) == rows
    assert max(store.reads) < entry.size_bytes / 4
