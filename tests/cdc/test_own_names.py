"""Tables whose keys and attributes have the names of columns of logs, lake tables, archives and folders."""

from __future__ import annotations

import time
import uuid

import boto3
import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ddbio
from ddbio.cdc.log_jobs import COLUMNS, COMMITTED, batch_name
from ddbio.cdc.log_rows import item_schema, log_schema
from ddbio.formats.lake_columns import OWN_FIELDS
from ddbio.formats.log_columns import ARCHIVE_COLUMNS, LOG_COLUMNS
from ddbio.items.schema.file import schema_to_json
from ddbio.storage.job_state import JobState
from ddbio.storage.local_store import LocalStore
from tests.cdc.tables import create_data_stream, create_table
from tests.cdc.test_capture import client, fake  # noqa: F401 - fixtures

ATTRIBUTES = [
    *sorted(LOG_COLUMNS | ARCHIVE_COLUMNS | {field.name for field in OWN_FIELDS}),
    *("year", "month", "day", "hour", "bucket", "Year", "_OP", "_place", "valid_from", "x" * 300, "a b", "a.b"),
]  # fmt: skip


KEYS = ["pk", "_event_id", "_op", "_rescue", "_OLD_IMAGE", "year", *sorted({*ATTRIBUTES} - {"x" * 300})]


@pytest.mark.parametrize(
    ("key", "source"),
    [
        *(("pk", "streams"), ("_event_id", "streams"), ("_op", "kinesis"), ("_rescue", "streams")),
        *(pytest.param(key, source, marks=pytest.mark.nightly) for key in KEYS for source in ("streams", "kinesis")),
    ],
)
def test_nothing_is_lost_between_a_table_and_its_copies(key, source, fake, client, tmp_path):  # noqa: F811 - fixtures
    """Log, views, history and lake tables have each attribute, also in the key. The verification finds no problem."""
    name, g = f"own-{uuid.uuid4().hex}", {"endpoint_url": fake.endpoint_url}
    create_table(client, name, keys=[f"{key}:S"], view="NEW_AND_OLD_IMAGES" if source == "streams" else None)
    if source == "kinesis":
        kinesis = boto3.client("kinesis", endpoint_url=fake.endpoint_url)
        arn = create_data_stream(kinesis, name, 1)
        client.enable_kinesis_streaming_destination(TableName=name, StreamArn=arn)
    values = {value: {"S": f"v of {value[:9]}"} for value in ATTRIBUTES if key == "pk" or value.startswith("_e")}
    for n, number in (({"N": "1"}, 0), ({"S": "text"}, 1), ({"N": "2"}, 0)):
        client.put_item(TableName=name, Item={**values, "n": n, key: {"S": f"k{number}"}})
    log = tmp_path / "log"
    ddbio.capture(name, log, available_now=True, old_image=True, source=source, **g)
    assert ddbio.verify_capture(log, images=True, **g).is_whole
    for kind in ("delta", "iceberg")[: 2 if key == "pk" else 1]:
        ddbio.apply(log, tmp_path / kind, format=kind, buckets=2)
        assert ddbio.verify(name, tmp_path / kind, format=kind, **g).equal
    assert ddbio.history(log).num_rows == 3
    assert duckdb.sql(ddbio.history_view_sql(log, dialect="duckdb")).fetchall()[2] is not None
    assert ddbio.compact(log).files_after
    assert ddbio.verify_capture(log, images=True, **g).is_whole
    ddbio.apply(log, tmp_path / "again")
    assert ddbio.verify(name, tmp_path / "again", **g).equal


def test_an_archive_has_each_attribute(fake, client, tmp_path):  # noqa: F811 - fixtures
    """Items are restored unchanged, regardless of the archive's columns, even with such a name for the time to live."""
    options = {"endpoint_url": fake.endpoint_url}
    create_table(client, "expiring")
    create_table(client, "restored", view=None)
    ttl = {"Enabled": True, "AttributeName": "_expired_at"}
    client.update_time_to_live(TableName="expiring", TimeToLiveSpecification=ttl)
    item = {
        "pk": {"S": "a"},
        **{value: {"S": value[:9]} for value in ATTRIBUTES},
        "_expired_at": {"N": str(int(time.time()) - 60)},
    }
    client.put_item(TableName="expiring", Item=item)
    assert fake.expire("expiring") == 1
    assert ddbio.archive("expiring", tmp_path / "archive", log=str(tmp_path / "log"), **options).items == 1
    assert ddbio.restore_archived(tmp_path / "archive", "restored", ttl="keep", **options).written == 1
    assert client.scan(TableName="restored")["Items"] == [item]
    with duckdb.connect() as connection:
        connection.execute(ddbio.catalog_ddl(tmp_path / "archive", "duckdb", name="main.archived"))
        assert connection.execute("SELECT year, month FROM archived").fetchall() == [("year", "month")]


def test_a_log_of_an_older_release_has_its_attributes(tmp_path):
    """An attribute ``_event_id`` of a stream's log is in a column of that name, next to one that is declared later."""
    texts = [pa.field(name, pa.string(), metadata={"ddb:type": "S"}) for name in ("pk", "_event_id", "year")]
    store = LocalStore(tmp_path / "log")
    state = JobState(store, "job", "capture")
    state.begin({"stream": "arn:stream", "started_at": 1.0})
    own = {"_op": "MODIFY", "_event_time": 0, "_expired": False, "_rescue": None}
    for number, schema in enumerate((pa.schema(texts), item_schema(pa.schema(texts), ["pk"])), 1):
        columns = log_schema(schema, ("pk",))
        names = [column.name for column in columns if column.name.startswith("_event_id")]
        path = f"year=2026/month=11/day=01/hour=00/job-{number:012}.parquet"
        row = {**own, "pk": f"k{number}", "_sequence": str(number), names[0]: f"e{number}", "year": "y"}
        (tmp_path / "log" / path).parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.Table.from_pylist([row], columns), tmp_path / "log" / path)
        state.put(COLUMNS, {"schema": schema_to_json(schema), "keys": ["pk"]})
        state.put_once(batch_name(number), {"batch": number, "files": [{"path": path, "rows": 1}]})
        state.put(COMMITTED, {"batch": number})
        ddbio.apply(tmp_path / "log", tmp_path / "lake")
        rows = sorted(ddbio.history(tmp_path / "lake").to_pylist(), key=lambda row: row["pk"])
        assert [(row["_event_id"], row["year"]) for row in rows] == [(f"e{n}", "y") for n in range(1, number + 1)]
        assert len(ddbio.history(tmp_path / "log")) == number
