"""Files of other programs, written by ``make.py``: each is loaded, digested, described and compacted.

``expected.json`` describes their contents. ``attributes`` has the values of the columns of that name in the first two
rows; the third row has none. ``files`` has, for each file, its columns, or:

- ``rows``: the ids of its rows, if it does not have all;
- ``c``: the values of the third row;
- ``format``: the format to state, if it cannot be detected;
- ``ending``: the suffix to add to the name, if the name does not show the format;
- ``error``: a part of the message if the file cannot be read;
- ``left``: a part of the report if a compaction does not change the file.
"""

from __future__ import annotations

import base64
import io
import json
import re
import shutil
from pathlib import Path

import boto3
import duckdb
import fastavro
import pyarrow.parquet as pq
import pyorc
import pytest

import ddbio
from ddbio.errors import DdbioError, OptionError
from ddbio.items.schema.arrow import name_of_field, tag_of_field
from ddbio.testing import FakeDynamoDB

PLACE = Path(__file__).parent
KNOWN = json.loads((PLACE / "expected.json").read_text("utf-8"))
FILES = KNOWN["files"]
READ, REFUSED = (sorted(name for name in FILES if ("error" in FILES[name]) is refused) for refused in (False, True))
COMPACTED = sorted(name for name in READ if not name.endswith((".csv", ".json", ".ndjson")) and "_text/" not in name)


@pytest.fixture(scope="module")
def fake():
    """Serve tables for all files."""
    with FakeDynamoDB() as server:
        boto3.client("dynamodb", endpoint_url=server.endpoint_url).create_table(
            TableName="orders",
            BillingMode="PAY_PER_REQUEST",
            KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
            AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
        )
        yield server


def items_of(name):
    """Return the items of a file, in the order of their ids."""
    expected = FILES[name]
    names = expected["attributes"].split()
    rows = [{attribute: KNOWN["attributes"][attribute][row] for attribute in names} for row in range(2)]
    attributes_by_id = dict(zip("abc", [*rows, expected.get("c", {})], strict=True))
    return [{"id": {"S": item_id}, **attributes_by_id[item_id]} for item_id in expected.get("rows", "abc")]


def copied(name, folder, *, times=1):
    """Copy a file ``times`` times, and return the path of the first copy."""
    target = folder / (name + FILES[name].get("ending", ""))
    target.parent.mkdir(parents=True)
    for number in range(times):
        shutil.copy(PLACE / "data" / name, target.with_name(f"{'again-' * number}{target.name}"))
    return target


def lines_of(items):
    """Return items as lines of DynamoDB JSON."""
    return "\n".join(json.dumps(item, default=lambda blob: base64.b64encode(blob).decode()) for item in items)


def contents(folder):
    """Return the bytes of the data files of a folder."""
    files = sorted(file for file in folder.rglob("*") if file.is_file() and "_ddbio" not in file.parts)
    return {str(file.relative_to(folder)): file.read_bytes() for file in files}


def stored(path):
    """Return the physical types of a Parquet file's columns. Signedness is omitted for 32 and 64 bits, the default."""
    schema = pq.ParquetFile(path).schema
    leaves = (schema.column(index) for index in range(len(schema)))
    return [
        (
            *(leaf.path.split(".")[0], leaf.physical_type, leaf.max_definition_level, leaf.max_repetition_level),
            "None" if leaf.converted_type in {"INT_32", "INT_64"} else str(leaf.logical_type).split(", is_from")[0],
        )
        for leaf in leaves
    ]


def rows_of(paths):
    """Return the rows of some files as read by another reader than Arrow."""
    if paths[0].endswith(".orc"):
        rows = [row for path in paths for row in pyorc.Reader(io.BytesIO(Path(path).read_bytes()))]
    elif paths[0].endswith(".avro"):
        rows = [row for path in paths for row in fastavro.reader(io.BytesIO(Path(path).read_bytes()))]
    else:
        rows = duckdb.sql(f"SELECT * FROM read_parquet({list(paths)}, hive_partitioning = false)").fetchall()
    return sorted(map(repr, rows))


def test_every_file_is_expected():
    """Each file has expectations, and all files are small."""
    files = [file for file in (PLACE / "data").rglob("*") if file.is_file()]
    assert {file.relative_to(PLACE / "data").as_posix() for file in files} == FILES.keys()
    assert sum(file.stat().st_size for file in files) < 1_000_000


@pytest.mark.parametrize("name", READ)
def test_a_file_is_read(tmp_path, fake, name):
    """Loaded items are the expected ones, and so are the digest and the types of the schema."""
    path = copied(name, tmp_path)
    source = str(tmp_path / name.split("/")[0] if "=" in name else path)
    table = f"rows-{READ.index(name)}"
    client = boto3.client("dynamodb", endpoint_url=fake.endpoint_url)
    client.create_table(
        TableName=table,
        BillingMode="PAY_PER_REQUEST",
        KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
    )
    if stated := FILES[name].get("format"):
        with pytest.raises(OptionError, match="give input_format"):
            ddbio.load_files(source, table, endpoint_url=fake.endpoint_url)
    ddbio.load_files(source, table, endpoint_url=fake.endpoint_url, input_format=stated)
    expected_items = items_of(name)
    items = sorted(client.scan(TableName=table)["Items"], key=lambda item: item["id"]["S"])
    assert [json.loads(line) for line in lines_of(items).splitlines()] == expected_items
    if path.suffix not in {".json", ".ndjson"} and not stated:
        assert ddbio.digest(source) == ddbio.digest(lines_of(expected_items).encode())
        types = {name_of_field(field): tag_of_field(field) for field in ddbio.infer_schema(source).to_arrow()}
        attributes = {name for item in expected_items for name in item}
        assert types == {attribute: next(iter(expected_items[0][attribute])) for attribute in attributes} | {
            "_rescue": "RESCUE"
        }


@pytest.mark.parametrize("name", COMPACTED)
def test_a_file_is_compacted(tmp_path, name):
    """Another reader finds the same rows in the new file, and Parquet's own types, or the files are unchanged."""
    first = copied(name, tmp_path, times=2)
    before, digest, types = contents(tmp_path), ddbio.digest(tmp_path), first.suffix == ".parquet" and stored(first)
    rows = rows_of([str(tmp_path / name) for name in before])
    report = ddbio.compact(tmp_path, compression="gzip")
    after = contents(tmp_path)
    assert ddbio.digest(tmp_path) == digest
    if "left" in FILES[name]:
        assert after == before
        assert all(FILES[name]["left"] in reason for reason in report.files_left.values())
        assert len(report.files_left) == 2
        return
    assert (len(after), report.files_left) == (1, {})
    assert report.digest_before == report.digest_after == digest
    (new,) = (str(tmp_path / name) for name in after)
    assert rows_of([new]) == rows
    assert types == (first.suffix == ".parquet" and stored(new))


@pytest.mark.parametrize("name", REFUSED)
def test_a_file_is_refused(tmp_path, fake, name):
    """A value without an encoding in DynamoDB is a clear error of every command, and no file is changed."""
    path, expected = copied(name, tmp_path, times=2), FILES[name]
    before = contents(tmp_path)
    with pytest.raises(DdbioError, match=re.escape(expected["error"])):
        ddbio.load_files(str(path), "orders", endpoint_url=fake.endpoint_url)
    with pytest.raises(DdbioError, match=re.escape(expected["error"])):
        ddbio.digest(path)
    if "left" in expected:
        report = ddbio.compact(tmp_path)
        assert all(expected["left"] in reason for reason in report.files_left.values())
        assert len(report.files_left) == 2
    else:
        with pytest.raises(DdbioError, match=re.escape(expected["error"])):
            ddbio.compact(tmp_path)
    assert contents(tmp_path) == before
