"""The digest is the same for all containers of the items."""

from __future__ import annotations

import codecs
import gzip
import json

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ddbio
from ddbio.aws.client import ClientSpec
from ddbio.budget import LocalBudget
from ddbio.errors import DecodeError, NotFoundError
from ddbio.items.decode import Decoder
from ddbio.items.digest import Digest
from ddbio.items.digest_columns import digest_of_batches
from ddbio.items.page import Page
from ddbio.items.reference import RowBuilder
from ddbio.items.rescue import MisfitLog
from ddbio.items.schema.arrow import normalize_schema
from ddbio.items.schema.item_schema import ItemSchema
from ddbio.scan.pages import ReadRequest
from ddbio.scan.stream import PageStream, ScanTask
from ddbio.testing import FakeDynamoDB

ITEMS = [
    {"pk": {"S": f"key-{n}"}, "n": {"N": str(n)}, "m": {"M": {"x": {"SS": ["b", "a"]}}}, "gone": {"NULL": True}}
    for n in range(20)
]
LINES = [json.dumps(item).encode() for item in ITEMS]


@pytest.fixture(scope="module")
def expected():
    """Return the digest of the items by the plain reference implementation."""
    digest = Digest()
    digest.add_items(ITEMS)
    return digest.hexdigest()


@pytest.fixture(scope="module")
def batch():
    """Return the items as a record batch."""
    return RowBuilder(normalize_schema(ItemSchema.of_items(ITEMS).to_arrow()), keep_nulls=True).batch(
        ITEMS, MisfitLog()
    )


def test_bytes_and_arrow(expected, batch):
    """Lines, export lines, a page, a batch and a table of the same items have the same digest."""
    export = b"".join(b'{"Item":%b}\n' % line for line in LINES)
    page = json.dumps({"Items": ITEMS[::-1]}).encode()
    answer = json.dumps({"Count": len(ITEMS), "Items": ITEMS, "ScannedCount": 99, "LastEvaluatedKey": {}}).encode()
    sources = [b"\n".join(LINES), export, bytearray(page), answer, batch, pa.Table.from_batches([batch[:7], batch[7:]])]
    assert {ddbio.digest(source) for source in sources} == {expected}


def test_readers_and_data_frames(expected, batch):
    """A reader and a data frame of another library have the digest of their rows."""
    table = pa.Table.from_batches([batch])
    assert ddbio.digest(pa.RecordBatchReader.from_batches(batch.schema, table.to_batches(3))) == expected
    assert ddbio.digest(pd.DataFrame({"a": ["x", None]})) == ddbio.digest(b'{"a":{"S":"x"}}\n{}')


def test_files(expected, batch, tmp_path):
    """A Parquet file, a folder of several and files of lines, compressed or not, have the digest of their items."""
    table = pa.Table.from_batches([batch])
    (tmp_path / "parquet/_ddbio").mkdir(parents=True)
    (tmp_path / "parquet/_ddbio/job.json").write_text("{}")
    pq.write_table(table[:5], tmp_path / "parquet/a.parquet")
    pq.write_table(table[5:], tmp_path / "parquet/b.parquet")
    pq.write_table(table, tmp_path / "all.parquet")
    (tmp_path / "lines").mkdir()
    (tmp_path / "lines/a.json").write_bytes(b"\n".join(LINES[:3]))
    (tmp_path / "lines/b.json.gz").write_bytes(gzip.compress(b"\n".join(LINES[3:])))
    sources = [tmp_path / "parquet", str(tmp_path / "all.parquet"), tmp_path / "lines"]
    assert {ddbio.digest(source) for source in sources} == {expected}


def test_files_of_other_shapes(expected, tmp_path):
    """Export lines after a byte order mark, documents of several lines, a page and zstd have the items' digest."""
    bodies = {
        "bom.json": codecs.BOM_UTF8 + b"".join(b'{"Item":%b}\n' % line for line in LINES),
        "indented.json": "\n".join(json.dumps(item, indent=2) for item in ITEMS).encode(),
        "page.json": json.dumps({"Items": ITEMS, "Count": 20}, indent=2).encode(),
        "lines.json.zst": pa.compress(b"\n".join(LINES), "zstd", asbytes=True),
    }
    for name, body in bodies.items():
        (tmp_path / name).write_bytes(body)
    assert {name: ddbio.digest(tmp_path / name) for name in bodies} == dict.fromkeys(bodies, expected)


def test_a_broken_file_is_named(tmp_path):
    """An error in a file has its name and its line."""
    (tmp_path / "lines.json").write_bytes(b"\n".join([*LINES, b'{"a":{"N":"x"}}']))
    with pytest.raises(DecodeError, match=r"lines\.json: line 21: a: 'x' is not a DynamoDB number"):
        ddbio.digest(tmp_path / "lines.json")


def test_a_large_file_is_digested_by_its_ranges(tmp_path):
    """Threads digest ranges of DynamoDB JSON, whose documents may have several lines. The sum is the file's digest."""
    items = [*LINES, json.dumps(ITEMS[0], indent=1).encode()]
    body = b"\n".join(items * (34 * 1024 * 1024 // sum(map(len, items)))) + b"\n"
    (tmp_path / "large.json").write_bytes(body)
    assert ddbio.digest(str(tmp_path / "large.json")) == ddbio.digest(body)


def test_an_empty_folder_is_refused(tmp_path):
    """A folder without data is an error, not the digest of nothing."""
    with pytest.raises(NotFoundError, match="holds no file"):
        ddbio.digest(tmp_path)


def test_a_table(expected):
    """A table has the digest of its items."""
    with FakeDynamoDB() as fake:
        fake.load("things", LINES, "pk:S")
        assert ddbio.digest("things", endpoint_url=fake.endpoint_url) == expected


class OnePage:
    """A table of one page."""

    endpoint_url = "http://127.0.0.1:1"

    def read(self, _, __):
        """Return the page."""
        body = json.dumps({"Items": ITEMS}).encode()
        return Page(body, len(ITEMS), len(ITEMS), None, 1.0, len(body))

    def close(self):
        """Do nothing."""


class WrongDecoder(Decoder):
    """Decoder of pages with a mistake in one row."""

    def __init__(self, schema, mistake):
        super().__init__(schema, nulls="keep")
        self._mistake = mistake

    def decode_batches(self, data, framing):
        """Return the batches with the mistake."""
        (batch,) = super().decode_batches(data, framing)
        rows = batch.to_pylist()
        self._mistake(rows)
        return [pa.RecordBatch.from_pylist(rows, schema=batch.schema)]


@pytest.mark.parametrize(
    ("mistake", "is_found"),
    [
        (lambda rows: rows[3].update(n=33), True),
        (lambda rows: rows[3].update(pk="key-03"), True),
        (lambda rows: rows[3].update(m=None), True),
        (lambda rows: rows[3]["m"].update(x=["b"]), True),
        (lambda rows: rows.pop(3), True),
        (lambda rows: rows.append(rows[3]), True),
        (lambda rows: rows.reverse(), False),
    ],
    ids=["number", "text", "lost attribute", "set", "lost row", "row twice", "none"],
)
def test_a_decoder_s_mistake_is_found(expected, batch, mistake, is_found):
    """The digest of a scan is computed from the bytes of its pages, and differs if columns differ."""
    task = ScanTask(0, ClientSpec(), (ReadRequest("t"),), 1, batch.schema, nulls="keep", digest=True)
    stream = PageStream(task, LocalBudget(None), lambda: WrongDecoder(batch.schema, mistake), pages=OnePage())
    columns = digest_of_batches(list(stream))
    assert stream.counts.digest.hexdigest() == expected
    assert (columns.hexdigest() != expected) == is_found
