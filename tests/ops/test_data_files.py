"""Which files of a folder hold items."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ddbio
from ddbio.core.schema.item_schema import ItemSchema
from ddbio.errors import DecodeError, NotFoundError, OptionError
from ddbio.files.local_store import LocalStore
from ddbio.files.row_files import read_batches, read_schema
from ddbio.ops.data_files import find_data, is_data, read_lines
from ddbio.options import ConnectionOptions

METADATA = ["_ddbio/20260101T000000Z_0.json", "_SUCCESS.json", ".a.json.crc.json", "manifest-summary.json"]


@pytest.fixture
def folder(tmp_path):
    """Return a folder of the metadata that Spark, AWS and ddbio's own jobs leave."""
    (tmp_path / "_ddbio").mkdir()
    for name in METADATA:
        (tmp_path / name).write_text('{"rows": 1}')
    return tmp_path


def test_metadata_is_no_data(folder):
    """Manifests and hidden files are passed over."""
    with pytest.raises(NotFoundError, match="holds no file"):
        find_data(str(folder), ConnectionOptions())
    (folder / "data").mkdir()
    (folder / "data" / "b.json").write_text("{}")
    (folder / "a.json.gz").write_bytes(b"x")
    (folder / "empty.json").touch()
    assert find_data(str(folder), ConnectionOptions())[1] == ["a.json.gz", "data/b.json"]


def test_the_schema_of_a_job_s_target_is_that_of_its_files(folder):
    """Where a job wrote Parquet beside its manifest, the manifest is not taken for items."""
    pq.write_table(pa.table({"pk": ["x"]}), folder / "part.zstd.parquet")
    assert ddbio.infer_schema(folder).to_arrow().names == ["pk", "_rescue"]


class Counting(LocalStore):
    """Count the bytes that are read, and read no file whole."""

    n_bytes = 0

    def read(self, path):
        """Refuse to."""
        raise AssertionError(path)

    def read_chunks(self, path):
        """Yield pieces, and count them."""
        for chunk in super().read_chunks(path):
            self.n_bytes += len(chunk)
            yield chunk

    def read_range(self, entry, start, length):
        """Return a range, and count it."""
        self.n_bytes += length
        return super().read_range(entry, start, length)


@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gzip"])
def test_first_lines_cost_no_whole_file(tmp_path, pack):
    """The first lines of a long file are read with little more than they take; of a short one all lines are."""
    noise = np.random.default_rng(1).bytes(12 << 20).hex().encode()
    (tmp_path / "long.json").write_bytes(
        pack(b"1\n2\n3\n" + b"\n".join(noise[at : at + 99] for at in range(0, len(noise), 99)))
    )
    (tmp_path / "short.json").write_bytes(pack(b"1\n2"))
    store = Counting(str(tmp_path))
    assert read_lines(store, "long.json", 3) == b"1\n2\n3\n"
    assert store.n_bytes <= 4 << 20
    assert read_lines(store, "short.json", 3) == b"1\n2\n"


def test_a_parquet_schema_costs_no_whole_file(tmp_path):
    """Of a Parquet file its footer is read; rows are read when they are asked for."""
    table = pa.table({"n": np.random.default_rng(1).integers(0, 1 << 60, 1 << 20)})
    pq.write_table(table, tmp_path / "a.parquet")
    store = Counting(str(tmp_path))
    assert read_schema(store, "a.parquet").names == ["n"]
    assert store.n_bytes <= 1 << 17
    assert pa.Table.from_batches(read_batches(store, next(store.list("a.parquet")))).equals(table)
    with pytest.raises(NotFoundError, match=r"b\.parquet: there is no such file"):
        read_schema(store, "b.parquet")


@pytest.mark.parametrize("indent", [None, 1])
@pytest.mark.parametrize("wrap", [lambda item: item, lambda item: {"Item": item}, lambda item: {"Items": [item] * 9}])
def test_a_sample_of_files_is_their_first_items(tmp_path, wrap, indent):
    """Items are those of the first lines, or of the whole file where a document goes on behind them."""
    item = {"a": {"S": "x"}, "m": {"M": {"b": {"N": "1"}}}}
    later = item if "Items" in wrap(item) else {"later": {"S": "x"}}
    for name in ("a.json", "b.json"):
        documents = [wrap(item)] if "Items" in wrap(item) else [wrap(item)] * 3 + [wrap(later)]
        (tmp_path / name).write_text("\n".join(json.dumps(each, indent=indent) for each in documents))
    assert ddbio.infer_schema(tmp_path, sample_items=6).to_arrow() == ItemSchema.of_items([item]).to_arrow()
    (tmp_path / "b.json").write_text('{"a":{"S":"x"}}\n{"a":{"S":5}}\n')
    with pytest.raises(DecodeError, match=r"b\.json: line 2: a: expected a JSON string, found 5"):
        ddbio.infer_schema(tmp_path, sample_items=6)


def test_a_name_that_may_be_a_table_is_no_folder(folder, monkeypatch):
    """A bare name is a table's; where a folder is called so too, neither is taken."""
    monkeypatch.chdir(folder)
    (folder / "orders").mkdir()
    pq.write_table(pa.table({"pk": ["x"]}), folder / "orders" / "part.parquet")
    (folder / "one.jsonl").write_text("{}")
    for take in (is_data, ddbio.digest, ddbio.infer_schema):
        with pytest.raises(OptionError, match=r"'orders' is a folder here, and may be a table too: say \./orders"):
            take("orders")
    for name in ("./orders", "orders/", str(folder / "orders"), ".", "one.jsonl", "s3://bucket", "./one.jsonl"):
        assert is_data(name)
    assert not is_data("other")
    assert not is_data("arn:aws:dynamodb:eu-west-1:1:table/orders")
    assert ddbio.digest("./orders") == ddbio.digest(Path("orders")) == ddbio.digest(pa.table({"pk": ["x"]}))
