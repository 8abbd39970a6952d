"""Key attributes with any name that DynamoDB accepts, in every verb."""

import base64

import boto3
import pyarrow.dataset as ds
import pytest

import ddbio
from ddbio.items.reference import items_of
from ddbio.testing import FakeDynamoDB
from ddbio.testing.export import Change, ExportWriter

# Sockets that PySpark left to the garbage collector in an earlier test may appear here.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

NAMES = (
    "place",
    "place_max",
    "key 0",
    "_rescue",
    "a\0b",
    "\0",
    "PK",
    "pk",
    "Name__0a1b2c3d",
    "a.b",
    "keys",
    "é",
    "write_time",
)
BINARY = base64.b64encode(b"\1").decode()


def key_of(names, tag, number):
    """Return the key attributes of an item."""
    value = {"S": f"k{number}", "N": str(number), "B": base64.b64encode(bytes([number])).decode()}[tag]
    return {names[0]: {tag: value}, **{name: {"N": str(number)} for name in names[1:]}}


def items(names, tag, count=6):
    """Return items whose other attributes have similar names."""
    other_attributes = {"Pk": {"S": "x"}, "PLACE": {"N": "1"}, "_RESCUE": {"B": BINARY}, "n": {"S": "y"}}
    return [
        {**{k: v for k, v in other_attributes.items() if k not in names}, **key_of(names, tag, n)} for n in range(count)
    ]


def in_order(rows):
    """Return items in a canonical order."""
    return sorted(rows, key=repr)


def of_batches(batches):
    """Return the items of batches."""
    return in_order([item for batch in batches for item in items_of(batch)])


def sorted_items(items):
    """Return items with sorted members."""
    return in_order([dict(sorted(item.items())) for item in items])


KEYS = [(name,) for name in NAMES] + [("PK", "pk"), ("pk", "PK"), ("_rescue", "_RESCUE"), ("place", "place_max")]


def cases_of(*tags):
    """Return each key with one type in turn. The nightly tier also tries the other types."""
    return [
        pytest.param(names, tag, id=f"{names}-{tag}", marks=() if number % len(tags) == turn else pytest.mark.nightly)
        for number, names in enumerate(KEYS)
        for turn, tag in enumerate(tags)
    ]


@pytest.mark.parametrize(("names", "tag"), cases_of("S", "N", "B"))
def test_an_export_is_read_and_folded(tmp_path, names, tag):
    """A full export and a later window give the current items, in memory and as files."""
    exported = items(names, tag)
    writer = ExportWriter(tmp_path / "in")
    full = writer.full(exported)
    changed = {**exported[1], "n": {"S": "z"}}
    window = writer.incremental([
        Change(1, key_of(names, tag, 1), new=changed, old=exported[1]),
        Change(2, key_of(names, tag, 2), old=exported[2]),
        Change(3, key_of(names, tag, 9), new=key_of(names, tag, 9)),
    ])  # fmt: skip
    after = sorted_items([exported[0], changed, *exported[3:], key_of(names, tag, 9)])
    assert sorted_items(of_batches([*ddbio.read_export(full).to_batches()])) == sorted_items(exported)
    assert sorted_items(of_batches(ddbio.fold_exports(full, [window]).to_batches())) == after
    ddbio.fold_exports_to_files(full, [window], tmp_path / "out", engine="local")
    folded = ds.dataset(tmp_path / "out", format="parquet", exclude_invalid_files=True).to_table()
    assert sorted_items(of_batches(folded.to_batches())) == after


@pytest.fixture(scope="module")
def server():
    """Serve tables."""
    with FakeDynamoDB() as running:
        yield running


@pytest.mark.parametrize(("names", "tag"), cases_of("S", "B"))
def test_a_table_is_scanned_loaded_copied_and_digested(server, tmp_path, names, tag):
    """The items of a table equal those in the files of its scan, in the table loaded from them, and in its copy."""
    client = boto3.client("dynamodb", endpoint_url=server.endpoint_url, region_name="us-east-1")
    connection, stored = {"endpoint_url": server.endpoint_url}, items(names, tag)
    for table in ("source", "loaded"):
        client.create_table(
            TableName=table,
            KeySchema=[
                {"AttributeName": name, "KeyType": kind} for name, kind in zip(names, ("HASH", "RANGE"), strict=False)
            ],
            AttributeDefinitions=[
                {"AttributeName": name, "AttributeType": kind} for name, kind in zip(names, (tag, "N"), strict=False)
            ],
            BillingMode="PAY_PER_REQUEST",
        )
    for item in stored:
        client.put_item(TableName="source", Item={name: attribute(value) for name, value in item.items()})
    ddbio.scan_to_files("source", tmp_path / "out", engine="local", **connection)
    ddbio.load_files(tmp_path / "out", "loaded", **connection)
    ddbio.copy_table("source", "copied", create_target=True, verify=True, **connection)
    digest = ddbio.digest("source", **connection)
    assert sorted_items(of_batches(ddbio.read_table("source", **connection).to_batches())) == sorted_items(stored)
    assert [ddbio.digest(name, **connection) for name in ("loaded", "copied", tmp_path / "out")] == [digest] * 3
    for table in ("source", "loaded", "copied"):
        client.delete_table(TableName=table)


def attribute(value):
    """Return an attribute value in boto3's format."""
    return {tag: base64.b64decode(content) if tag == "B" else content for tag, content in value.items()}
