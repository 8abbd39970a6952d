"""Spark's own writer makes files of one size, and reads our partitioned folders."""

from __future__ import annotations

import json
import math
from collections import Counter
from itertools import groupby

import pyarrow as pa
import pytest

import ddbio
from ddbio.errors import OptionError
from ddbio.formats.partitioned_writer import PartitionedWriter
from ddbio.formats.partitions import PartitionBy, partitioning_of
from ddbio.formats.rolling_writer import FileOptions
from ddbio.spark import sized_files
from ddbio.storage.local_store import LocalStore
from ddbio.storage.staged import FileNaming

KIB = 1024
VALUES = [
    None, "a/b", "a b", " x ", "é日本 ☃", "100%", "%2F", "a=b", "x:y", "..", "'\"#*?\\{}[]^", "\t\n\x7f", "007", "1.50",
    "2024-01-01", "true",
]  # fmt: skip


def sizes(folder):
    """Return the sizes of the Parquet files of a folder, by subfolder."""
    files = sorted((path.parent.name, path.stat().st_size) for path in folder.rglob("*.parquet"))
    return {name: [size for _, size in group] for name, group in groupby(files, lambda file: file[0])}


@pytest.fixture
def frame(spark):
    """Return rows of three partitions of very different sizes, in many small parts."""
    return spark.range(0, 40_000, 1, 8).selectExpr(
        "id",
        "sha2(cast(id as string), 256) as payload",
        "case when id % 20 = 0 then 'b' when id = 7 then null else 'a' end as p",
    )


def test_files_of_sparks_writer_have_their_size(frame, tmp_path):
    """At least 95 % of the bytes are in files within 15 % of the target. One file per partition may be small."""
    target = 250 * KIB
    flat = sized_files(frame, target_file_bytes=target)
    flat.write.parquet(str(tmp_path / "flat"))
    [sizes_read] = sizes(tmp_path / "flat").values()
    assert len(sizes_read) == flat.files == round(sum(sizes_read) / target)
    assert all(abs(size - target) <= 0.15 * target for size in sizes_read)
    parted = sized_files(frame, target_file_bytes=target, partition_by=["p"])
    parted.write.parquet(str(tmp_path / "parted"))
    by_partition = sizes(tmp_path / "parted")
    assert by_partition.keys() == {"p=a", "p=b", "p=__HIVE_DEFAULT_PARTITION__"}
    assert all(sum(size < 0.85 * target for size in partition) <= 1 for partition in by_partition.values())
    full = [size for partition in by_partition.values() for size in sorted(partition)[1:]]
    assert len(full) >= math.floor(sum(by_partition["p=a"]) / target)
    assert sum(size for size in full if abs(size - target) <= 0.15 * target) >= 0.95 * sum(full)
    assert "rows of 3 partitions become" in parted.explanation


def test_without_a_count_adaptive_execution_divides(frame):
    """The plan has REBALANCE with the partition columns, and files are bounded nevertheless."""
    sized = sized_files(frame, target_file_bytes=300 * KIB, partition_by=["p"], count=False)
    assert (sized.files, sized.max_records_per_file > 1000) == (None, True)
    assert "REBALANCE" in sized.explanation
    with pytest.raises(OptionError, match="no column 'q'"):
        sized_files(frame, partition_by=["q"])


def test_spark_reads_the_values_of_partitions(spark, tmp_path):
    """Spark reads every row with its partition value, with any characters."""
    batch = pa.record_batch({"id": range(len(VALUES)), "t": pa.array(VALUES)})
    by = partitioning_of(PartitionBy(texts=("t",)), batch.schema)
    store = LocalStore(tmp_path)
    writer = PartitionedWriter(store, FileNaming("job", 0), batch.schema, FileOptions(), by)
    writer.write(batch)
    for staged in writer.finish():
        store.complete(staged)
    read = spark.read.schema("id long, t string").parquet(str(tmp_path))
    assert sorted((row["id"], row["t"]) for row in read.collect()) == list(enumerate(VALUES))
    # And the folders have Spark's own names.
    rows = [(number, value) for number, value in enumerate(VALUES)]
    spark.createDataFrame(rows, "id long, t string").write.partitionBy("t").parquet(str(tmp_path / "theirs"))
    theirs = {path.name for path in (tmp_path / "theirs").iterdir() if path.is_dir()}
    assert {path.name for path in tmp_path.glob("t=*")} == theirs


def test_a_scan_on_spark_is_partitioned_as_one_on_threads(spark, fake, tmp_path):
    """Tasks on Spark write the same rows into the same folders, and report them."""
    items = [{"pk": {"S": f"{n}"}, "t": {"S": f"{n % 3}/x"}, "at": {"N": str(n * 10**7)}} for n in range(300)]
    fake.load("parted", b"".join(json.dumps(item).encode() + b"\n" for item in items), "pk:S")
    options = {"endpoint_url": fake.endpoint_url, "partition_by": "t,year(at)", "segments": 4}
    reports = {}
    for engine in ("local", "spark"):
        reports[engine] = ddbio.scan_to_files("parted", tmp_path / engine, engine=engine, **options)
    rows = {engine: Counter() for engine in reports}
    for engine, report in reports.items():
        for file in report.files:
            rows[engine][tuple(file.partition.items())] += file.rows
    assert rows["spark"] == rows["local"]
    assert spark.read.parquet(str(tmp_path / "spark")).where("t = '2/x' and year = 1970").count() == len(
        [n for n in range(300) if n % 3 == 2 and n * 10**7 < 31_536_000]
    )
