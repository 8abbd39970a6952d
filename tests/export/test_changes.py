"""Reads of incremental exports: every change, from the shared folder of data."""

import base64
import gzip
import hashlib
import json
import shutil

import pyarrow.parquet as pq
import pytest

import ddbio
from ddbio.errors import ExportIncompleteError
from ddbio.testing.export import Change, ExportWriter, put_manifest

# With a running Spark session, Spark reads the exports; PySpark leaves its sockets to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

AT = 1793491200123456


def key(number):
    """Return an item's key."""
    return {"pk": {"S": f"user#{number}"}, "sk": {"N": str(number)}}


def item(number, total):
    """Return an item."""
    return {**key(number), "total": {"N": str(total)}}


CHANGES = [
    Change(AT, key(1), new=item(1, 7)),
    Change(AT + 1, key(2), new=item(2, 13), old=item(2, 12)),
    Change(AT + 2, key(3), old=item(3, 3)),
]


@pytest.fixture
def writer(tmp_path):
    """Return a writer of exports."""
    return ExportWriter(tmp_path / "in", files=2)


def rows(table):
    """Return a table's rows, ordered by time."""
    return table.sort_by("write_time").to_pylist()


def test_insert_update_and_delete_are_rows(writer):
    """Each change has its time in microseconds, its operation, the key and both images."""
    read = rows(ddbio.read_export(writer.incremental(CHANGES)))
    assert [(row["write_time"], row["operation"]) for row in read] == [(AT, "put"), (AT + 1, "put"), (AT + 2, "delete")]
    assert [row["keys"] for row in read] == [{"pk": f"user#{n}", "sk": n} for n in (1, 2, 3)]
    assert [row["new_image"] and row["new_image"]["total"] for row in read] == [7, 13, None]
    assert [row["old_image"] and row["old_image"]["total"] for row in read] == [None, 12, 3]


def test_view_without_old_images(writer):
    """If only new images were exported, the old ones are null."""
    read = rows(ddbio.read_export(writer.incremental(CHANGES, view="NEW_IMAGE")))
    assert [row["old_image"] for row in read] == [None] * 3
    assert [row["operation"] for row in read] == ["put", "put", "delete"]


def test_shared_data_is_distinguished_by_the_manifest(writer, tmp_path):
    """Two exports share one folder of data; each reads its own files, also after both were moved."""
    first, second = writer.incremental(CHANGES[:1]), writer.incremental(CHANGES[1:])
    assert [ddbio.read_export(folder).num_rows for folder in (first, second)] == [1, 2]
    moved = shutil.copytree(tmp_path / "in", tmp_path / "moved") / "AWSDynamoDB" / second.name
    shutil.rmtree(tmp_path / "in")
    assert ddbio.read_export(moved).num_rows == 2


def test_missing_file_of_shared_data_is_named(writer):
    """A missing file of the shared folder is an error."""
    home = writer.incremental(CHANGES)
    shutil.rmtree(home.parent / "data")
    with pytest.raises(ExportIncompleteError, match=r"/AWSDynamoDB/data/.* is missing"):
        ddbio.read_export(home)


def test_files_hold_the_changes(writer, tmp_path):
    """The Parquet files have the changes of the table, and the report has the kind of the export."""
    home = writer.incremental(CHANGES)
    report = ddbio.read_export_to_files(home, tmp_path / "out", tasks=1)
    assert (report.kind, report.items, report.rows, report.rescued) == ("incremental", 3, 3, 0)
    assert rows(pq.read_table(report.files[0].path)) == rows(ddbio.read_export(home))


def test_export_without_changes_is_an_empty_file(writer, tmp_path):
    """A window without changes is not an error."""
    report = ddbio.read_export_to_files(writer.incremental([]), tmp_path / "out")
    assert (report.rows, pq.read_schema(report.files[0].path).names[:2]) == (0, ["write_time", "operation"])


def test_ion_has_the_same_changes(writer, tmp_path):
    """The same changes exported in Ion become the same rows, including the write time."""
    ion = ExportWriter(tmp_path / "ion", encoding="ION").incremental(CHANGES)
    assert rows(ddbio.read_export(ion)) == rows(ddbio.read_export(writer.incremental(CHANGES)))


@pytest.mark.parametrize(
    ("encoding", "written", "other"),
    [
        ("DYNAMODB_JSON", f'{{"N":"{AT}"}}', f'"{AT}"'),
        ("DYNAMODB_JSON", f'{{"N":"{AT}"}}', f"{AT}"),
        ("DYNAMODB_JSON", f'{{"N":"{AT}"}}', f'{{"S":"{AT}"}}'),
        ("ION", f"{AT}.", f'"{AT}"'),
        ("ION", f"{AT}.", f"{AT}"),
    ],
)
def test_write_time_is_read_in_every_spelling(tmp_path, encoding, written, other):
    """A write time as number, text or typed value becomes the same time in the row."""
    home = ExportWriter(tmp_path, encoding=encoding, files=1, empty_files=0).incremental([Change(AT, key(1))])
    (file,) = (home.parent / "data").iterdir()
    text = gzip.decompress(file.read_bytes()).decode()
    assert written in text
    file.write_bytes(gzip.compress(text.replace(written, other).encode()))
    (entry,) = map(json.loads, (home / "manifest-files.json").read_bytes().splitlines())
    entry["md5Checksum"] = base64.b64encode(hashlib.md5(file.read_bytes()).digest()).decode()
    put_manifest(home, "manifest-files", json.dumps(entry).encode())
    assert ddbio.read_export(home)["write_time"].to_pylist() == [AT]
