"""Calls with one mistake each, in the lines that end in ``# wrong``; type checkers find each, and no other."""

# ruff: noqa: T201

import pyarrow as pa

import ddbio


def mistakes(rows: pa.Table) -> None:
    """Make mistakes."""
    ddbio.read_table("orders", rcu_per_secnd=5)  # wrong
    ddbio.read_table("orders", rcu_per_second="fast")  # wrong
    ddbio.read_table("orders", on_misfit="ignore")  # wrong
    ddbio.read_table("orders", mode="append")  # wrong
    ddbio.read_table()  # wrong
    ddbio.scan_to_files("orders")  # wrong
    ddbio.scan_to_files("orders", "out", mode="upsert")  # wrong
    ddbio.scan_to_files("orders", "out", digest="yes")  # wrong
    ddbio.write_table(rows, "orders", mode="append")  # wrong
    ddbio.write_table(rows, "orders", columns=["a"])  # wrong
    ddbio.load_files("rows.csv", "orders", tasks=1.5)  # wrong
    ddbio.copy_table("a", "b", create=True)  # wrong
    ddbio.restore_table("arn:aws", "b", expect_digest=True)  # wrong
    print(ddbio.scan_to_files("orders", "out").item)  # wrong
    ddbio.register()  # wrong
