"""Calls with one mistake each. Type checkers find them: ``./task lint`` fails if a line has no error to ignore."""

# ruff: noqa: T201

import pyarrow as pa

import ddbio


def mistakes(rows: pa.Table) -> None:
    """Make mistakes."""
    ddbio.read_table("orders", rcu_per_secnd=5)  # type: ignore[call-arg]
    ddbio.read_table("orders", rcu_per_second="fast")  # type: ignore[arg-type]
    ddbio.read_table("orders", on_misfit="ignore")  # type: ignore[arg-type]
    ddbio.read_table("orders", mode="append")  # type: ignore[call-arg]
    ddbio.read_table()  # type: ignore[call-arg]
    ddbio.scan_to_files("orders")  # type: ignore[call-arg]
    ddbio.scan_to_files("orders", "out", mode="upsert")  # type: ignore[arg-type]
    ddbio.scan_to_files("orders", "out", digest="yes")  # type: ignore[arg-type]
    ddbio.write_table(rows, "orders", mode="append")  # type: ignore[arg-type]
    ddbio.write_table(rows, "orders", columns=["a"])  # type: ignore[call-arg]
    ddbio.load_files("rows.csv", "orders", tasks=1.5)  # type: ignore[arg-type]
    ddbio.copy_table("a", "b", create=True)  # type: ignore[call-arg]
    ddbio.restore_table("arn:aws", "b", expect_digest=True)  # type: ignore[arg-type]
    print(ddbio.scan_to_files("orders", "out").item)  # type: ignore[attr-defined]
    ddbio.register()  # type: ignore[call-arg]
