"""Partitioned scans on Spark: Spark reads every row with its value, and only the written partitions are replaced."""

from __future__ import annotations

import json
from collections import Counter

import pytest

import ddbio

HOSTILE = [
    "a/b", "a b", " ", "é日本 ☃", "100%", "%2F", "a=b", "x:y", "..", "'\"#*?\\{}[]^", "\t\n\x7f", "Ünï", "01", "1.50",
    "true", "null", "__HIVE_DEFAULT_PARTITION__", "a+b", "𝄞", "~", "a&b|c;d",
]  # fmt: skip
TIMES = [
    "1969-12-31T23:59:59Z",
    "1901-02-03T04:05:06+00:00",
    "1970-01-01T00:00:00Z",
    "2024-02-29T23:30:00-05:00",
    "never",
]
# The year in the folder's name. In Berlin, the last but one is already in March.
YEARS = {"1969-12-31T23:59:59Z": "1970", "1901-02-03T04:05:06+00:00": "1901", "1970-01-01T00:00:00Z": "1970",
         "2024-02-29T23:30:00-05:00": "2024", "never": None}  # fmt: skip


def lines_of(tenants):
    """Return items of some tenants as lines; the last two have no tenant."""
    items = [
        {
            "pk": {"S": f"item-{number}"},
            "t": {"S": tenant},
            "at": {"S": TIMES[number % len(TIMES)]},
            "n": {"N": str(number)},
        }
        for number, tenant in enumerate(tenants)
    ]
    items += [{"pk": {"S": f"none-{number}"}, "at": {"S": TIMES[0]}} for number in range(2)]
    return b"".join(json.dumps(item).encode() + b"\n" for item in items)


def read_of(spark, folder, name):
    """Return key, tenant and year of each row, as Spark reads the folders."""
    reader = spark.read.option("basePath", str(folder)).option("pathGlobFilter", "*")
    if name == "csv":
        reader = reader.option("header", "true").option("multiLine", "true").option("escape", '"')
    read = getattr(reader, name)(str(folder))
    return sorted((row["pk"], row["t"], row["year"]) for row in read.select("pk", "t", "year").collect())


@pytest.mark.parametrize(
    "name", ["parquet", *(pytest.param(name, marks=pytest.mark.nightly) for name in ("orc", "csv", "json"))]
)
def test_spark_reads_what_its_tasks_have_partitioned(spark, fake, tmp_path, name):
    """Folder names are escaped in Spark's way, null is Spark's null partition, and times before 1970 work too."""
    fake.load(f"hostile-{name}", lines_of(HOSTILE), "pk:S")
    options = {"endpoint_url": fake.endpoint_url, "engine": "spark", "segments": 4, "format": name}
    by = {"partition_by": ["t", "year(at)"], "partition_time_zone": "Europe/Berlin"}
    report = ddbio.scan_to_files(f"hostile-{name}", tmp_path / "out", **options, **by, digest=True)
    assert report.engine == "spark"
    wanted = [(f"item-{number}", None if "HIVE" in tenant else tenant, YEARS[TIMES[number % len(TIMES)]])
              for number, tenant in enumerate(HOSTILE)]  # fmt: skip
    wanted += [(f"none-{number}", None, "1970") for number in range(2)]
    setting = "spark.sql.sources.partitionColumnTypeInference.enabled"
    spark.conf.set(setting, "false")
    try:
        assert read_of(spark, tmp_path / "out", name) == sorted(wanted)
    finally:
        spark.conf.unset(setting)
    assert ddbio.digest(tmp_path / "out") == report.digest
    fake.load(f"copy-{name}", b"", "pk:S")
    endpoint = {"endpoint_url": fake.endpoint_url, "state": str(tmp_path / "state")}
    ddbio.load_files(tmp_path / "out", f"copy-{name}", engine="spark", tasks=2, **endpoint)
    assert ddbio.digest(f"copy-{name}", endpoint_url=fake.endpoint_url) == report.digest


def test_spark_replaces_only_the_partitions_that_it_writes(spark, fake, tmp_path):
    """The files in other partitions stay unchanged, byte by byte."""
    del spark
    options = {"endpoint_url": fake.endpoint_url, "engine": "spark", "segments": 4, "partition_by": ["t"]}
    fake.load("touched-before", lines_of(["a b", "c/d", "e"]), "pk:S")
    fake.load("touched-after", lines_of(["c/d", "c/d"]), "pk:S")
    ddbio.scan_to_files("touched-before", tmp_path / "out", **options)
    before = {path: path.read_bytes() for path in (tmp_path / "out").glob("t=[ae]*/*.parquet")}
    assert len(before) == 2
    report = ddbio.scan_to_files(
        "touched-after", tmp_path / "out", **options, mode="overwrite", overwrite_partitions=True
    )
    assert {file.partition["t"] for file in report.files} == {"c/d", None}
    assert {path: path.read_bytes() for path in (tmp_path / "out").glob("t=[ae]*/*.parquet")} == before
    rows = Counter[str]()
    for file in ddbio.list_files(tmp_path / "out").files:
        rows[file.partition["t"] or ""] += file.rows
    assert rows == {"": 2, "a b": 1, "c/d": 2, "e": 1}
