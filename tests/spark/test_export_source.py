"""``spark.read.format("dynamodb-export")`` on exports in a folder, compared with reads without Spark."""

from __future__ import annotations

import gzip
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException

import ddbio
from ddbio.items.digest import Digest
from ddbio.items.digest_columns import digest_of_batches
from ddbio.items.schema.arrow import normalize_schema
from ddbio.items.schema.file import schema_to_json
from ddbio.spark import export_reading
from ddbio.spark.registration import register
from ddbio.testing.export import Change, ExportWriter

COUNT = 500
ODD = 7
"""The item after the sample whose ``n`` is text instead of a number."""


def item(number):
    """Return one item."""
    return {
        "pk": {"S": f"key-{number:04d}"},
        "n": {"N": str(number)} if number != ODD else {"S": "odd"},
        "price": {"N": f"{number}.25"},
        "raw": {"B": "AAEC"},
        "tags": {"SS": ["a", "b"]},
        "map": {"M": {"x": {"N": "1"}, "y": {"S": "z"}}},
    }


@pytest.fixture
def home(tmp_path):
    """Return the folder of a full export of few files, some of them empty."""
    return ExportWriter(tmp_path / "in", files=5, empty_files=2).full(item(number) for number in range(COUNT))


@pytest.fixture
def read(spark):
    """Return a function that returns the DataFrame reader of exports."""
    register(spark)
    return lambda: spark.read.format("dynamodb-export")


def test_every_item_is_there(home, read):
    """The frame has the columns and the rows of a read without Spark."""
    frame = read().load(str(home))
    table = ddbio.read_export(home)
    assert frame.columns == table.column_names
    assert sorted(frame.toArrow().to_pylist(), key=str) == sorted(table.to_pylist(), key=str)


def test_partitions_share_the_files(home, read):
    """There is at most one partition per core by default, and at most one per non-empty file on request."""
    assert read().load(str(home)).rdd.getNumPartitions() == 2
    assert read().option("tasks", "50").load(str(home)).rdd.getNumPartitions() <= 5


def test_options_select_items_and_attributes(home, read):
    """The frame has the rows and columns that the same options select without Spark, also with a schema."""
    options = {"where": "price >= 490 OR n = 'odd'", "columns": "pk,n"}
    frame, table = read().options(**options).load(str(home)), ddbio.read_export(home, **options)
    assert frame.columns == table.column_names == ["pk", "n", "_rescue"]
    assert sorted(frame.toArrow().to_pylist(), key=str) == sorted(table.to_pylist(), key=str)
    assert frame.count() == 11
    typed = read().schema("price double, pk string").option("where", options["where"]).load(str(home))
    assert typed.where("price = 495.25").first().pk == "key-0495"
    assert typed.count() == 11


def test_given_columns_leave_out_all_others(home, read):
    """A user's schema is read in its order and types. Other attributes of the items are ignored."""
    frame = read().schema("price double, pk string").load(str(home))
    assert frame.columns == ["price", "pk"]
    assert frame.where("price = 3.25").first().pk == "key-0003"
    assert frame.count() == COUNT


def test_misfit_of_a_given_column_is_rescued_or_fails(home, read):
    """A value that does not fit a user's column is in the rescue column if there is one, or else fails the read."""
    frame = read().schema("pk string, n long, _rescue string").load(str(home))
    (odd,) = frame.where("_rescue is not null").collect()
    assert (odd.pk, odd.n, json.loads(odd._rescue)) == (f"key-{ODD:04d}", None, {"n": {"S": "odd"}})
    with pytest.raises(PySparkException, match=r"SchemaError: n: a value does not fit its column"):
        read().schema("pk string, n long").load(str(home)).collect()


def test_changes_are_rows(tmp_path, read):
    """An incremental export has all of its columns, or the selected ones."""
    changes = [Change(10 + number, {"pk": {"S": f"{number}"}}, {"pk": {"S": f"{number}"}, "n": {"N": "1"}})
               for number in range(20)] + [Change(99, {"pk": {"S": "gone"}})]  # fmt: skip
    home = ExportWriter(tmp_path, files=3).incremental(changes)
    frame = read().load(str(home))
    assert frame.columns == ["write_time", "operation", "keys", "new_image", "old_image", "_rescue"]
    assert frame.where("operation = 'delete'").first().keys.pk == "gone"
    selected = read().schema("operation string, write_time long").load(str(home))
    assert min(selected.collect()) == ("delete", 99)
    with pytest.raises(PySparkException, match="SchemaError: price: no column of changes"):
        read().schema("price long").load(str(home)).collect()


def test_damaged_file_fails_the_read(home, read):
    """A file that differs from the exported one fails the job, and is named."""
    path = max((home / "data").iterdir(), key=lambda file: file.stat().st_size)
    path.write_bytes(gzip.compress(gzip.decompress(path.read_bytes()), 1, mtime=7))
    with pytest.raises(PySparkException, match=f"ExportIncompleteError: .*{path.name}: MD5 is"):
        read().load(str(home)).collect()


def test_missing_file_is_reported_before_any_task(home, read):
    """A file that the store does not list is named while the read is planned."""
    path = max((home / "data").iterdir(), key=lambda file: file.stat().st_size)
    described = export_reading.describe_export_read({"path": str(home)})
    path.unlink()
    reader = export_reading.ExportReader(described, described.spark_schema())
    with pytest.raises(ddbio.errors.ExportIncompleteError, match=f"{path.name} is missing"):
        reader.partitions()


def test_columns_given_twice(home, read):
    """A schema by the user and the option ``schema`` exclude each other."""
    with pytest.raises(PySparkException, match="OptionError: the columns are given twice"):
        read().schema("pk string").option(
            "schema", schema_to_json(normalize_schema(pa.schema([("pk", pa.string())])))
        ).load(str(home)).collect()


def test_direct_files_by_spark_equal_the_export(home, tmp_path, spark):
    """The verb's own files, written by Spark tasks, have every item."""
    register(spark)
    report = ddbio.read_export_to_files(home, tmp_path / "out", engine="spark")
    assert (report.engine, report.rows, report.tasks) == ("spark", COUNT, 2)
    wanted = Digest()
    wanted.add_items(item(number) for number in range(COUNT))
    assert digest_of_batches(pq.read_table(tmp_path / "out").to_batches()) == wanted


def test_export_without_items_is_an_empty_frame(tmp_path, read):
    """There is nothing to partition, and nothing to read."""
    home = ExportWriter(tmp_path / "none").full([])
    assert read().load(str(home)).collect() == []
    frame = read().schema("pk string").load(str(home))
    assert (frame.columns, frame.count()) == (["pk"], 0)
