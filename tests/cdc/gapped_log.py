"""A log from a Kinesis data stream with a gap: changes that expired before they were read."""

from __future__ import annotations

import contextlib
import time
import uuid

import boto3
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ddbio
from ddbio.cdc.log_order import in_order, last_of_each
from ddbio.errors import GapError
from ddbio.storage.job_state import JobState
from ddbio.storage.local_store import LocalStore
from tests.cdc.tables import create_data_stream, create_table

RECOVERY = {"PointInTimeRecoverySpecification": {"PointInTimeRecoveryEnabled": True}}
BEFORE, AFTER = {"a": 1, "b": 1, "c": 3, "d": 1, "z": 1}, {"a": 2, "c": 3, "d": 1, "e": 1}
"""What the log derives to before its gap is healed, and then."""


def make_gap(fake, dest):
    """Write a log whose gap has puts, a change and deletes. Return the table and the options of a further run."""
    table = f"tab-{uuid.uuid4().hex}"
    with contextlib.ExitStack() as stack:
        client, kinesis = (boto3.client(name, endpoint_url=fake.endpoint_url) for name in ("dynamodb", "kinesis"))
        stack.callback(client.close)
        stack.callback(kinesis.close)

        def put(pk, n):
            client.put_item(TableName=table, Item={"pk": {"S": pk}, "n": {"N": str(n)}})

        create_table(client, table, view=None)
        arn = create_data_stream(kinesis, table)
        precision = {"ApproximateCreationDateTimePrecision": "MICROSECOND"}
        client.enable_kinesis_streaming_destination(
            TableName=table, StreamArn=arn, EnableKinesisStreamingConfiguration=precision
        )
        client.update_continuous_backups(TableName=table, **RECOVERY)
        fake.pass_time(1800)
        run = {"source": "kinesis", "available_now": True, "old_image": True, "endpoint_url": fake.endpoint_url}
        for pk in "abcdz":
            put(pk, 1)
        job_id = ddbio.capture(table, dest, **run).job_id
        # The time without reads is measured by this machine's clock, which does not move with the fake's clock.
        JobState(LocalStore(dest), job_id, "capture").put("seen", {"at": time.time() - 26 * 3600})
        fake.pass_time(100)
        put("a", 2)
        for pk in "bz":
            client.delete_item(TableName=table, Key={"pk": {"S": pk}})
        put("c", 2)
        put("e", 1)
        # The stream keeps records for one day.
        fake.pass_time(25 * 3600)
        put("c", 3)
        with pytest.raises(GapError, match="capture heal"):
            ddbio.capture(table, dest, **run)
        assert ddbio.capture(table, dest, on_gap="continue", **run).gaps
    return table, run


def state_of(folder):
    """Return the items that result from the log: the last row of each item wins."""
    tables = [pq.ParquetFile(path).read() for path in folder.rglob("*.parquet")]
    return last_rows(pa.concat_tables(tables, promote_options="permissive"))


def last_rows(rows):
    """Return the numbers of the items that result from some rows of a log."""
    last = last_of_each(in_order(rows), ["pk"]).to_pylist()
    return {row["pk"]: row["n"] for row in last if row["_op"] != "REMOVE"}
