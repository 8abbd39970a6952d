"""Loads of the folder of a native export: every item of its verified files, and no other items."""

import gzip
import json

import boto3
import pytest

import ddbio
from ddbio.errors import ExportIncompleteError, OptionError
from ddbio.load.load import load_plan_of
from ddbio.load.options import LoadOptions
from ddbio.testing import FakeDynamoDB
from ddbio.testing.export import Change, ExportWriter

ITEMS = [
    {"pk": {"S": f"k{n % 9}"}, "sk": {"N": str(n)}, "n": {"N": "9" * 38}, "s": {"NS": ["1", "2"]}, "z": {"NULL": True}}
    for n in range(200)
]


@pytest.fixture
def server():
    """Serve one empty table ``rows`` with the key pk, sk."""
    with FakeDynamoDB() as running:
        running.load("rows", b"", "pk:S,sk:N")
        yield running


def stored(server):
    """Return the table's items in the order of their sort keys."""
    client = boto3.client("dynamodb", endpoint_url=server.endpoint_url, region_name="us-east-1")
    return sorted(client.scan(TableName="rows")["Items"], key=lambda item: int(item["sk"]["N"]))


def load(server, home, **options):
    """Load a folder and return the report."""
    return ddbio.load_files(str(home), "rows", endpoint_url=server.endpoint_url, state=str(home / "state"), **options)


@pytest.mark.parametrize("mode", ["upsert", "update"])
def test_every_item_of_an_export_is_written(server, tmp_path, mode):
    """The folder that the service writes is loaded unchanged, and other files in it are not items."""
    home = ExportWriter(tmp_path, files=3, empty_files=2).full(ITEMS)
    (home / "data" / "stray.json.gz").write_bytes(gzip.compress(b'{"Item":{"pk":{"S":"x"},"sk":{"N":"-1"}}}\n'))
    report = load(server, home, mode=mode)
    assert (report.rows, report.written) == (200, 200)
    actual = stored(server)
    assert len(actual) == 200
    assert mode == "update" or [dict(item, s={"NS": sorted(item["s"]["NS"])}) for item in actual] == ITEMS


def test_the_plan_knows_the_rows(server, tmp_path):
    """The manifest has the number of rows before any row is read."""
    home = ExportWriter(tmp_path, files=3).full(ITEMS)
    plan = load_plan_of(LoadOptions(source=str(home), table="rows", endpoint_url=server.endpoint_url))
    assert (plan.rows, plan.rows_exact) == (200, True)


def damaged(home):
    """Replace an item of one file by another one of the same length."""
    path = next(path for path in sorted((home / "data").glob("*.gz")) if b'"pk"' in gzip.decompress(path.read_bytes()))
    path.write_bytes(gzip.compress(gzip.decompress(path.read_bytes()).replace(b'"k', b'"q', 1)))


def lacking(home):
    """Delete a file that has items."""
    next(path for path in sorted((home / "data").glob("*.gz")) if gzip.decompress(path.read_bytes())).unlink()


def unfinished(home):
    """Change the manifest of the files."""
    path = home / "manifest-files.json"
    path.write_bytes(path.read_bytes() + b"\n")


@pytest.mark.parametrize("spoil", [damaged, lacking, unfinished])
def test_a_damaged_export_is_refused(server, tmp_path, spoil):
    """A file that was not exported, a missing one and a broken manifest end the load with their names."""
    home = ExportWriter(tmp_path, files=3).full(ITEMS)
    spoil(home)
    with pytest.raises(ExportIncompleteError):
        load(server, home)


def test_json_without_items_is_refused(server, tmp_path):
    """For incremental exports and Ion the error has the command that reads them."""
    change = Change(1, {"pk": {"S": "a"}, "sk": {"N": "1"}}, {"pk": {"S": "a"}, "sk": {"N": "1"}})
    with pytest.raises(OptionError, match="incremental export"):
        load(server, ExportWriter(tmp_path / "changes").incremental([change]))
    with pytest.raises(OptionError, match="export in Ion"):
        load(server, ExportWriter(tmp_path / "ion", encoding="ION").full(ITEMS[:5]))
    assert json.dumps(stored(server)) == "[]"
