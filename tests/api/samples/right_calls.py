"""Correct calls of users. Type checkers report no errors."""

# ruff: noqa: T201

from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa

import ddbio


def read() -> pa.Table:
    """Read tables and exports."""
    for batch in ddbio.scan_batches("orders", rcu_per_second=500, columns=["pk", "total"], region="eu-central-1"):
        print(batch.num_rows)
    print(ddbio.read_export(Path("export"), on_misfit="fail").num_rows)
    return ddbio.read_table("orders", schema=pa.schema([("pk", pa.string())]), nulls="keep", limit=10)


def write(rows: pa.Table) -> ddbio.WriteReport:
    """Write rows and files."""
    report = ddbio.write_table(rows, "orders", mode="update", wcu_per_second=100.5, reject_to="s3://bucket/rejects")
    print(report.written, report.to_json())
    return ddbio.load_files(Path("rows.parquet"), "orders", job_id="nightly", engine="local")


def files() -> ddbio.ScanReport:
    """Scan into files, with a plan first."""
    plan: ddbio.ScanPlan = ddbio.plan_scan("orders", "s3://bucket/orders", read_ratio=0.5)
    print(plan.estimated_seconds)
    options: ddbio.ScanToFilesKeywords = {"mode": "append", "target_file_bytes": "64MiB", "columns": "pk,sk"}
    return ddbio.scan_to_files("orders", Path("orders"), **options)


def jobs() -> None:
    """Start jobs of the service, and handle errors."""
    try:
        job = ddbio.start_export("orders", "s3://bucket", at=datetime(2026, 1, 2, tzinfo=UTC), enable_pitr=True)
        print(ddbio.wait_export(job.arn, wait_seconds=60).uri)
    except ddbio.ThrottledError as error:
        print(error.elapsed_seconds)
    except (ddbio.NotFoundError, ddbio.DdbioError) as error:
        print(error.retryable)
    print(ddbio.copy_table("a", "b", create_target=True, verify=True).verified)
    print([window.start for window in ddbio.export_windows("s3://bucket/AWSDynamoDB/1")])
