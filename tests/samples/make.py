"""Maker of the samples of data that ddbio wrote at commit 02500d22: logs, an archive, lake tables and a file folder.

They were made once, by that version, and stay unchanged. To make them again, check that commit out, install it in its
own environment, and run this file there::

    git worktree add ../ddbio-02500d22 02500d22
    PYTHONPATH=../ddbio-02500d22 ../ddbio-02500d22/.venv/bin/python tests/samples/make.py

Each sample is a folder below ``s3://samples/``, since Iceberg and the names of jobs keep the whole path. ``data/`` has
their objects. All are of the table ``orders``, with the keys ``pk`` (S) and ``sk`` (N). Its first items have whole
numbers as ``sk``, so the version made an int64 column of them and rescued the keys that do not fit it.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import tempfile
import time
from pathlib import Path

import boto3

import ddbio
from ddbio.testing import FakeDynamoDB, MotoServer

DATA = Path(__file__).parent / "data"
TABLE, BUCKET, TTL = "orders", "samples", "ttl"
STREAM_ARN = "arn:aws:dynamodb:us-east-1:000000000000:table/orders/stream/2026-11-01T00:00:00.000"
# No item with this sort key exists before the columns of a log are chosen.
MISFIT = "1.5"
HANDED = ((1, 2), (3, 4, 101))
"""The numbers of changes that Lambda or Firehose gets together. The last one is of another hour."""
BOTH = {"StreamEnabled": True, "StreamViewType": "NEW_AND_OLD_IMAGES"}


def item(pk: str, sk: str, n: int, **more: dict[str, object]) -> dict[str, dict[str, object]]:
    """Return an item. Some attributes have the names of ddbio's own columns."""
    own = {"_expired": {"S": f"own {n}"}, "digest": {"S": f"d{n}"}}
    return {"pk": {"S": pk}, "sk": {"N": sk}, "n": {"N": str(n)}, **own, **more}


def record(number: int, *, kinesis: bool) -> dict[str, object]:
    """Return a change in the format of Lambda or Firehose."""
    image = item("pk" if number % 2 else "qk", MISFIT if number > 2 else str(number), number)
    at = 1793491203 + number // 100 * 3600
    inside: dict[str, object] = {"Keys": {name: image[name] for name in ("pk", "sk")}, "NewImage": image}
    if kinesis:
        # The version does not compact logs of items with this attribute.
        del image["_expired"]
    change = {"eventID": f"{number:032x}", "eventName": "INSERT", "awsRegion": "us-east-1"}
    if kinesis:
        more = {"ApproximateCreationDateTime": at * 1_000_000, "ApproximateCreationDateTimePrecision": "MICROSECOND"}
        return {**change, "tableName": TABLE, "dynamodb": inside | more}
    inside |= {"ApproximateCreationDateTime": at, "SequenceNumber": str(4421584500000000017450439000 + number)}
    return {**change, "eventSource": "aws:dynamodb", "eventSourceARN": STREAM_ARN, "dynamodb": inside}


def work(client, fake) -> list[object]:
    """Return two rounds of changes as functions."""
    expired = {"N": str(int(time.time()) - 100)}

    def put(*values, **more):
        client.put_item(TableName=TABLE, Item=item(*values, **more))

    def first() -> None:
        for number in range(4):
            put("a", str(number), number)
        put("old", "1", 9, **{TTL: expired})

    def second() -> None:
        put("old", MISFIT, 8, **{TTL: expired})
        put("a", MISFIT, 4)
        put("a", MISFIT, 5)
        put("a", "0", 100)
        client.delete_item(TableName=TABLE, Key={"pk": {"S": "a"}, "sk": {"N": "1"}})
        fake.expire(TABLE)

    return [first, second]


def create(client, stream: bool) -> None:
    """Create the table."""
    client.create_table(
        TableName=TABLE,
        BillingMode="PAY_PER_REQUEST",
        AttributeDefinitions=[
            {"AttributeName": name, "AttributeType": tag} for name, tag in (("pk", "S"), ("sk", "N"))
        ],
        KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}, {"AttributeName": "sk", "KeyType": "RANGE"}],
        **({"StreamSpecification": BOTH} if stream else {}),
    )
    client.update_time_to_live(TableName=TABLE, TimeToLiveSpecification={"Enabled": True, "AttributeName": TTL})


def streams(options: dict[str, str]) -> None:
    """Capture a stream with old images. Make an archive, lake tables of the first round, and files of a scan."""
    with FakeDynamoDB(partitions=1, burst_at_creation=1.0) as fake:
        client = boto3.client("dynamodb", endpoint_url=fake.endpoint_url)
        create(client, stream=True)
        both = {**options, "endpoint_url": fake.endpoint_url}
        log = f"s3://{BUCKET}/streams"
        for number, change in enumerate(work(client, fake)):
            change()
            ddbio.capture(TABLE, log, available_now=True, old_image=True, **both)
            for kind in ("delta", "iceberg") if number == 0 else ():
                ddbio.apply(log, f"s3://{BUCKET}/{kind}", format=kind, buckets=1, **options)
            if number == 0:
                ddbio.scan_to_files(TABLE, f"s3://{BUCKET}/base", format="delta", buckets=1, **both)
            ddbio.archive(log, f"s3://{BUCKET}/archive", ttl=TTL, **options)
        for _ in range(2):
            ddbio.scan_to_files(TABLE, f"s3://{BUCKET}/folder", mode="append", **both)
        ddbio.compact(f"s3://{BUCKET}/folder", **options)
        ddbio.publish(f"s3://{BUCKET}/folder", f"s3://{BUCKET}/published", **options)


def kinesis(options: dict[str, str]) -> None:
    """Capture a data stream whose times are milliseconds."""
    with FakeDynamoDB(partitions=1, burst_at_creation=1.0) as fake:
        client, data = (boto3.client(name, endpoint_url=fake.endpoint_url) for name in ("dynamodb", "kinesis"))
        create(client, stream=False)
        data.create_stream(StreamName="changes", ShardCount=1)
        arn = data.describe_stream_summary(StreamName="changes")["StreamDescriptionSummary"]["StreamARN"]
        precision = {"ApproximateCreationDateTimePrecision": "MILLISECOND"}
        client.enable_kinesis_streaming_destination(
            TableName=TABLE, StreamArn=arn, EnableKinesisStreamingConfiguration=precision
        )
        for change in work(client, fake):
            change()
            both = {**options, "endpoint_url": fake.endpoint_url}
            ddbio.capture(TABLE, f"s3://{BUCKET}/kinesis", available_now=True, old_image=True, source="kinesis", **both)


def handled(options: dict[str, str]) -> None:
    """Log events by the Lambda handler."""
    from ddbio.lambda_handlers import log_changes  # noqa: PLC0415 - it reads the environment

    os.environ |= {"DDBIO_LOG": f"s3://{BUCKET}/lambda", "DDBIO_LOG_OPTIONS": json.dumps(options)}
    for numbers in HANDED:
        log_changes({"Records": [record(number, kinesis=False) for number in numbers]})


def replayed(options: dict[str, str]) -> None:
    """Replay files of Firehose into two logs, of which one is compacted."""
    with tempfile.TemporaryDirectory() as folder:
        for number, numbers in enumerate(HANDED):
            text = "\n".join(json.dumps(record(number, kinesis=True)) for number in numbers)
            (Path(folder) / f"{number}.json").write_text(text)
        for name in ("replay", "compacted"):
            ddbio.replay(folder, f"s3://{BUCKET}/{name}", **options)
    ddbio.compact(f"s3://{BUCKET}/compacted", **options)


def two_streams(options: dict[str, str]) -> None:
    """Capture a stream that was turned off and on. The version made one capture of each stream, and recorded no gap."""
    with FakeDynamoDB(partitions=1, burst_at_creation=1.0) as fake:
        client = boto3.client("dynamodb", endpoint_url=fake.endpoint_url)
        create(client, stream=True)
        for change in work(client, fake):
            change()
            ddbio.capture(
                TABLE,
                f"s3://{BUCKET}/two",
                available_now=True,
                old_image=True,
                endpoint_url=fake.endpoint_url,
                **options,
            )
            for wanted in ({"StreamEnabled": False}, BOTH):
                client.update_table(TableName=TABLE, StreamSpecification=wanted)


def main() -> None:
    """Make all samples."""
    os.environ |= {"AWS_ACCESS_KEY_ID": "any", "AWS_SECRET_ACCESS_KEY": "any", "AWS_DEFAULT_REGION": "us-east-1"}
    with MotoServer() as aws:
        options = {"s3_endpoint_url": aws.endpoint_url, "region": "us-east-1"}
        client = boto3.client("s3", endpoint_url=aws.endpoint_url)
        client.create_bucket(Bucket=BUCKET)
        for make in (streams, kinesis, handled, replayed, two_streams):
            make(options)
        shutil.rmtree(DATA, ignore_errors=True)
        for page in client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET):
            for stored in page["Contents"]:
                path = DATA / stored["Key"]
                path.parent.mkdir(parents=True, exist_ok=True)
                content = io.BytesIO()
                client.download_fileobj(BUCKET, stored["Key"], content)
                path.write_bytes(content.getvalue())


if __name__ == "__main__":
    main()
