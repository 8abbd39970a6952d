"""Partitioned scans: published completely or not at all, and overwritten by partition."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

import ddbio
from ddbio.commit.snapshot import live_files
from ddbio.errors import OptionError, TargetError
from ddbio.storage.local_store import LocalStore
from ddbio.storage.paths import hive_partition
from ddbio.testing import FakeDynamoDB


@pytest.fixture
def trips():
    """Serve a table of trips of two tenants on two days each."""
    with FakeDynamoDB() as server:
        items = [
            {"pk": {"S": f"{tenant}#{day}#{n}"}, "tenant": {"S": tenant}, "at": {"N": str(day * 86_400 + n)}}
            for tenant in ("a b", "c/d")
            for day in (-1, 19_000)
            for n in range(50)
        ]
        items.append({"pk": {"S": "none"}, "at": {"S": "never"}})
        server.load("trips", b"".join(json.dumps(item).encode() + b"\n" for item in items), "pk:S")
        yield server


def visible(folder):
    """Return the paths of the row files of a folder."""
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*.parquet"))


def test_files_are_in_the_folders_of_report_and_manifest(trips, tmp_path):
    """Every row is in the folder of its values; files omit the columns of folders; NULL partitions have a name."""
    out = tmp_path / "out"
    by = ["tenant", "year(at)"]
    report = ddbio.scan_to_files("trips", out, endpoint_url=trips.endpoint_url, engine="local", partition_by=by)
    assert sum(file.rows for file in report.files) == report.items == 201
    partitions = {tuple(file.partition.items()): file.rows for file in report.files}
    assert partitions == {
        **{(("tenant", tenant), ("year", year)): 50 for tenant in ("a b", "c/d") for year in ("1969", "2022")},
        (("tenant", None), ("year", None)): 1,
    }
    assert {path.rpartition("/")[0] for path in visible(out)} == {
        "tenant=a b/year=1969", "tenant=a b/year=2022", "tenant=c%2Fd/year=1969", "tenant=c%2Fd/year=2022",
        "tenant=__HIVE_DEFAULT_PARTITION__/year=__HIVE_DEFAULT_PARTITION__",
    }  # fmt: skip
    manifest = json.loads((out / "_ddbio" / f"{report.job_id}.json").read_text())
    for file in manifest["files"]:
        assert file["partition"] == hive_partition(file["path"])
        assert file["statistics"]["pk"]["nulls"] == 0
    assert manifest["partition_by"][1] == {"name": "year", "attribute": "at", "part": "year", "in_files": True}
    assert pq.read_schema(report.files[0].path).names == ["pk", "at", "_rescue"]
    table = ds.dataset(out, partitioning="hive").to_table()
    assert {row["pk"].partition("#")[0] for row in table.to_pylist() if row["tenant"] == "c/d"} == {"c/d"}


def test_overwritten_partitions_are_those_that_are_written(trips, tmp_path):
    """Files of partitions that the job writes are replaced; the others and their manifests stay live and readable."""
    out, options = tmp_path / "out", {"endpoint_url": trips.endpoint_url, "engine": "local"}
    first = ddbio.scan_to_files("trips", out, **options, partition_by="tenant")
    keep = {path for path in visible(out) if path.startswith("tenant=c%2Fd")}
    second = ddbio.scan_to_files("trips", out, **options, partition_by="tenant", overwrite_partitions=True)
    assert not keep & set(visible(out))
    assert {file.path for file in live_files(LocalStore(out)).files} == set(visible(out))
    assert len(visible(out)) == len(first.files) == len(second.files) == 3
    assert ds.dataset(out, partitioning="hive").count_rows() == 201


def test_a_job_without_rows_of_a_partition_leaves_it(trips, tmp_path):
    """Only written partitions are replaced, so a job without rows replaces none."""
    out, options = tmp_path / "out", {"endpoint_url": trips.endpoint_url, "engine": "local", "partition_by": "tenant"}
    ddbio.scan_to_files("trips", out, **options)
    before = visible(out)
    with FakeDynamoDB() as server:
        rows = [{"pk": {"S": "new"}, "tenant": {"S": "c/d"}, "at": {"N": "1"}}]
        server.load("trips", json.dumps(rows[0]).encode() + b"\n", "pk:S")
        server.load("empty", b"", "pk:S")
        schema = ddbio.infer_schema("trips", endpoint_url=trips.endpoint_url)
        options |= {"endpoint_url": server.endpoint_url, "overwrite_partitions": True, "schema": schema.to_arrow()}
        ddbio.scan_to_files("empty", out, **options)
        assert visible(out) == before
        report = ddbio.scan_to_files("trips", out, **options)
    assert [file.partition for file in report.files] == [{"tenant": "c/d"}]
    assert len(set(before) - set(visible(out))) == 1
    assert ds.dataset(out, partitioning="hive").count_rows() == 102
    assert {file.path for file in live_files(LocalStore(out)).files} == set(visible(out))


def test_appended_partitions_are_those_that_are_there(trips, tmp_path):
    """A job that would add files with other partition columns is refused before it reads the table."""
    out, options = tmp_path / "out", {"endpoint_url": trips.endpoint_url, "engine": "local"}
    ddbio.scan_to_files("trips", out, **options, partition_by="tenant")
    with pytest.raises(TargetError, match="partitioned by tenant, and this job would add files partitioned by nothing"):
        ddbio.scan_to_files("trips", out, **options, mode="append")
    ddbio.scan_to_files("trips", out, **options, mode="append", partition_by="tenant")
    assert ds.dataset(out, partitioning="hive").count_rows() == 402


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"partition_by": "nobody"}, "no column for 'nobody'"),
        ({"overwrite_partitions": True}, "needs partition_by"),
        ({"partition_by": "tenant", "overwrite_partitions": True, "mode": "append"}, "give only one"),
        ({"partition_by": "tenant", "partition_time_zone": "Mars/Olympus"}, "no time zone 'Mars/Olympus'"),
        ({"partition_by": "tenant", "format": "dynamodb-export"}, "an export has no partitions"),
    ],
)
def test_bad_options_are_one_clear_error(trips, tmp_path, options, message):
    """Invalid partition options are an error of the options, and no files are left."""
    with pytest.raises(OptionError, match=message):
        ddbio.scan_to_files("trips", tmp_path / "out", endpoint_url=trips.endpoint_url, engine="local", **options)
    assert not (tmp_path / "out").exists()


def test_an_empty_table_has_a_file_with_columns(fake, tmp_path):
    """The output of a table without items can be read, including its partition columns."""
    ddbio.scan_to_files("empty", tmp_path, endpoint_url=fake.endpoint_url, engine="local", partition_by="pk")
    hive = ds.partitioning(pa.schema([("pk", pa.string())]), flavor="hive")
    table = ds.dataset(tmp_path, partitioning=hive).to_table()
    assert (table.num_rows, table.schema.names) == (0, ["sk", "_rescue", "pk"])


@pytest.mark.parametrize("written", [{}, {"format": "csv"}, {"format": "orc", "keep_partition_columns": True}])
def test_digest_and_load_read_back_what_was_partitioned(tmp_path, written):
    """Types come from the manifest: text of digits is text, years of times are not attributes, and nothing is lost."""
    items = [
        {"pk": {"S": str(n)}, "zip": {"S": zip_code}, "n": {"N": number}, "flag": {"BOOL": flag}, "at": {"S": at}}
        for n, (zip_code, number, flag, at) in enumerate([
            ("01234", "1.50", True, "1969-12-31"), ("89073", "-7", False, "2024-02-29T01:02:03Z"),
            ("", "1.50", True, "never"), ("__HIVE_DEFAULT_PARTITION__", "12345678901234567890", True, ""),
            ("a/b c=é", "0", False, "2024-02-29"),
        ])
    ]  # fmt: skip
    lines = b"".join(json.dumps(item).encode() + b"\n" for item in items)
    with FakeDynamoDB() as server:
        server.load("mixed", lines, "pk:S")
        options = {"endpoint_url": server.endpoint_url, "engine": "local"}
        by = ["zip", "n", "flag", "year(at)", "month(at)"]
        report = ddbio.scan_to_files("mixed", tmp_path / "out", **options, **written, partition_by=by, digest=True)
        assert len(report.files) == 5
        assert ddbio.digest(tmp_path / "out") == report.digest
        server.load("copy", b"", "pk:S")
        ddbio.load_files(tmp_path / "out", "copy", endpoint_url=server.endpoint_url, state=str(tmp_path / "state"))
        assert ddbio.digest("copy", endpoint_url=server.endpoint_url) == report.digest


def test_the_plan_estimates_files_and_warns_of_small_ones(fake, tmp_path):
    """Partitions, files and their size come from the sample; a plan without partitions has no such estimates."""
    options = {"endpoint_url": fake.endpoint_url, "engine": "local"}
    plan = ddbio.plan_scan(
        "flights", **options, partition_by="origin,day(time_hour) as flown", dest=str(tmp_path / "out")
    )
    assert 60 <= plan.partitions <= 200
    assert plan.estimated_files >= plan.partitions
    assert "partition by fewer columns" in plan.warnings[0]
    assert f"about {plan.estimated_files:,} files of 0.0" in plan.warnings[0]
    assert ddbio.plan_scan("flights", **options).partitions is None


def test_exports_are_read_by_partition(trips, tmp_path):
    """The rows of an export are written to the same folders as those of a scan."""
    options = {"engine": "local", "partition_by": "tenant,year(at)"}
    scanned = ddbio.scan_to_files("trips", tmp_path / "scan", endpoint_url=trips.endpoint_url, **options)
    ddbio.scan_to_files("trips", tmp_path / "export", endpoint_url=trips.endpoint_url, format="dynamodb-export")
    read = ddbio.read_export_to_files(tmp_path / "export", tmp_path / "read", **options)
    rows = [sorted((str(file.partition), file.rows) for file in report.files) for report in (scanned, read)]
    assert rows[0] == rows[1]
