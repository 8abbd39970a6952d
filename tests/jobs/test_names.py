"""Attributes of any name that DynamoDB takes, as keys, through every verb."""

import base64

import boto3
import pyarrow.dataset as ds
import pytest

import ddbio
from ddbio.items.reference import items_of
from ddbio.testing import FakeDynamoDB
from ddbio.testing.export import Change, ExportWriter

# Sockets that PySpark left to the garbage collector in an earlier test may be found here.
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
    """Return items whose other attributes are called alike."""
    rest = {"Pk": {"S": "x"}, "PLACE": {"N": "1"}, "_RESCUE": {"B": BINARY}, "n": {"S": "y"}}
    return [{**{k: v for k, v in rest.items() if k not in names}, **key_of(names, tag, n)} for n in range(count)]


def in_order(rows):
    """Return items in one order."""
    return sorted(rows, key=repr)


def of_batches(batches):
    """Return the items of batches."""
    return in_order([item for batch in batches for item in items_of(batch)])


def sorted_items(found):
    """Return items, their members in one order."""
    return in_order([dict(sorted(item.items())) for item in found])


KEYS = [(name,) for name in NAMES] + [("PK", "pk"), ("pk", "PK"), ("_rescue", "_RESCUE"), ("place", "place_max")]


def cases_of(*tags):
    """Return each key with one type in turn; the nightly tier tries it with the other types, too."""
    return [
        pytest.param(names, tag, id=f"{names}-{tag}", marks=() if number % len(tags) == turn else pytest.mark.nightly)
        for number, names in enumerate(KEYS)
        for turn, tag in enumerate(tags)
    ]


@pytest.mark.parametrize(("names", "tag"), cases_of("S", "N", "B"))
def test_an_export_is_read_and_folded(tmp_path, names, tag):
    """A full export and a window after it give the items that are there, in memory and as files."""
    whole = items(names, tag)
    writer = ExportWriter(tmp_path / "in")
    full = writer.full(whole)
    changed = {**whole[1], "n": {"S": "z"}}
    window = writer.incremental([
        Change(1, key_of(names, tag, 1), new=changed, old=whole[1]),
        Change(2, key_of(names, tag, 2), old=whole[2]),
        Change(3, key_of(names, tag, 9), new=key_of(names, tag, 9)),
    ])  # fmt: skip
    after = sorted_items([whole[0], changed, *whole[3:], key_of(names, tag, 9)])
    assert sorted_items(of_batches([*ddbio.read_export(full).to_batches()])) == sorted_items(whole)
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
    """What a table holds is in the files of its scan, in the table they are loaded into, and in a copy of it."""
    client = boto3.client("dynamodb", endpoint_url=server.endpoint_url, region_name="us-east-1")
    told, whole = {"endpoint_url": server.endpoint_url}, items(names, tag)
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
    for item in whole:
        client.put_item(TableName="source", Item={name: attribute(value) for name, value in item.items()})
    ddbio.scan_to_files("source", tmp_path / "out", engine="local", **told)
    ddbio.load_files(tmp_path / "out", "loaded", **told)
    ddbio.copy_table("source", "copied", create_target=True, verify=True, **told)
    digest = ddbio.digest("source", **told)
    assert sorted_items(of_batches(ddbio.read_table("source", **told).to_batches())) == sorted_items(whole)
    assert [ddbio.digest(name, **told) for name in ("loaded", "copied", tmp_path / "out")] == [digest] * 3
    for table in ("source", "loaded", "copied"):
        client.delete_table(TableName=table)


def attribute(value):
    """Return an attribute value as boto3 takes it."""
    return {tag: base64.b64decode(content) if tag == "B" else content for tag, content in value.items()}
