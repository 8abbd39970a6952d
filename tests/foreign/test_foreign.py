"""Files of other programs, which ``make.py`` has made: each is loaded, digested, described and compacted.

``expected.json`` says what they hold. ``attributes`` has the values of the columns of that name in the first two rows;
the third has none. ``files`` has, for each file, its columns, or:

- ``rows``: the ids of its rows, if it has not all;
- ``c``: what the third row has;
- ``format``: the format to state, since nothing tells it;
- ``ending``: what is added to the name, if it tells no format;
- ``error``: what the message says if the file cannot be read;
- ``left``: what the report says if a compaction leaves the file as it is.
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
    """Return the items that a file holds, in the order of their ids."""
    told = FILES[name]
    names = told["attributes"].split()
    rows = [{each: KNOWN["attributes"][each][place] for each in names} for place in range(2)]
    found = dict(zip("abc", [*rows, told.get("c", {})], strict=True))
    return [{"id": {"S": each}, **found[each]} for each in told.get("rows", "abc")]


def copied(name, folder, *, times=1):
    """Copy a file as often, and return the path of the first copy."""
    target = folder / (name + FILES[name].get("ending", ""))
    target.parent.mkdir(parents=True)
    for number in range(times):
        shutil.copy(PLACE / "data" / name, target.with_name(f"{'again-' * number}{target.name}"))
    return target


def lines_of(items):
    """Return items as lines of DynamoDB JSON."""
    return "\n".join(json.dumps(each, default=lambda blob: base64.b64encode(blob).decode()) for each in items)


def contents(folder):
    """Return the bytes of the data files of a folder."""
    found = sorted(each for each in folder.rglob("*") if each.is_file() and "_ddbio" not in each.parts)
    return {str(each.relative_to(folder)): each.read_bytes() for each in found}


def stored(path):
    """Return how Parquet stores the columns of a file; a signed number of 32 or 64 bits need not say so."""
    schema = pq.ParquetFile(path).schema
    leaves = (schema.column(place) for place in range(len(schema)))
    return [
        (
            *(leaf.path.split(".")[0], leaf.physical_type, leaf.max_definition_level, leaf.max_repetition_level),
            "None" if leaf.converted_type in {"INT_32", "INT_64"} else str(leaf.logical_type).split(", is_from")[0],
        )
        for leaf in leaves
    ]


def rows_of(paths):
    """Return the rows of some files as another reader than Arrow sees them."""
    if paths[0].endswith(".orc"):
        rows = [row for path in paths for row in pyorc.Reader(io.BytesIO(Path(path).read_bytes()))]
    elif paths[0].endswith(".avro"):
        rows = [row for path in paths for row in fastavro.reader(io.BytesIO(Path(path).read_bytes()))]
    else:
        rows = duckdb.sql(f"SELECT * FROM read_parquet({list(paths)}, hive_partitioning = false)").fetchall()
    return sorted(map(repr, rows))


def test_every_file_is_known():
    """No file is there that nothing is expected of, and all are small."""
    found = [each for each in (PLACE / "data").rglob("*") if each.is_file()]
    assert {each.relative_to(PLACE / "data").as_posix() for each in found} == FILES.keys()
    assert sum(each.stat().st_size for each in found) < 1_000_000


@pytest.mark.parametrize("name", READ)
def test_a_file_is_read(tmp_path, fake, name):
    """Loaded items are the expected ones, and the digest and the types of the schema are theirs."""
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
    wanted = items_of(name)
    found = sorted(client.scan(TableName=table)["Items"], key=lambda item: item["id"]["S"])
    assert [json.loads(line) for line in lines_of(found).splitlines()] == wanted
    if path.suffix not in {".json", ".ndjson"} and not stated:
        assert ddbio.digest(source) == ddbio.digest(lines_of(wanted).encode())
        types = {name_of_field(each): tag_of_field(each) for each in ddbio.infer_schema(source).to_arrow()}
        attributes = {name for item in wanted for name in item}
        assert types == {each: next(iter(wanted[0][each])) for each in attributes} | {"_rescue": "RESCUE"}


@pytest.mark.parametrize("name", COMPACTED)
def test_a_file_is_compacted(tmp_path, name):
    """Another reader finds the same rows in the new file, and Parquet's own types; or the files stay as they are."""
    first = copied(name, tmp_path, times=2)
    before, whole, types = contents(tmp_path), ddbio.digest(tmp_path), first.suffix == ".parquet" and stored(first)
    rows = rows_of([str(tmp_path / each) for each in before])
    report = ddbio.compact(tmp_path, compression="gzip")
    after = contents(tmp_path)
    assert ddbio.digest(tmp_path) == whole
    if "left" in FILES[name]:
        assert after == before
        assert all(FILES[name]["left"] in reason for reason in report.files_left.values())
        assert len(report.files_left) == 2
        return
    assert (len(after), report.files_left) == (1, {})
    assert report.digest_before == report.digest_after == whole
    (new,) = (str(tmp_path / each) for each in after)
    assert rows_of([new]) == rows
    assert types == (first.suffix == ".parquet" and stored(new))


@pytest.mark.parametrize("name", REFUSED)
def test_a_file_is_refused(tmp_path, fake, name):
    """What has no form in DynamoDB is a clear error of every command, and no file is changed."""
    path, told = copied(name, tmp_path, times=2), FILES[name]
    before = contents(tmp_path)
    with pytest.raises(DdbioError, match=re.escape(told["error"])):
        ddbio.load_files(str(path), "orders", endpoint_url=fake.endpoint_url)
    with pytest.raises(DdbioError, match=re.escape(told["error"])):
        ddbio.digest(path)
    if "left" in told:
        report = ddbio.compact(tmp_path)
        assert all(told["left"] in reason for reason in report.files_left.values())
        assert len(report.files_left) == 2
    else:
        with pytest.raises(DdbioError, match=re.escape(told["error"])):
            ddbio.compact(tmp_path)
    assert contents(tmp_path) == before
