"""All resources that the verbs of the command line read and write, with a proxy that enforces a policy."""

from __future__ import annotations

import contextlib
import io
import json
import os
import shlex
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import boto3

from ddbio.advice.iam_calls import TABLE as CALLS
from ddbio.cli.main import cli
from ddbio.testing import FakeDynamoDB, MotoServer
from ddbio.testing.policy import PolicyProxy

ACCOUNT, REGION, BUCKET = "000000000000", "us-east-1", "lake"
TABLE = f"arn:aws:dynamodb:{REGION}:{ACCOUNT}:table/orders"
KEY = f"arn:aws:kms:{REGION}:{ACCOUNT}:key/1234abcd-12ab-34cd-56ef-1234567890ab"
ITEMS = 12


@dataclass(frozen=True)
class Case:
    """Command line, with ``{run}`` for a unique prefix, and its preconditions.

    Attributes
    ----------
    before
        Command lines that run without the policy.
    options
        Additional options of ``ddbio iam``.
    fails
        Error of the verb, if it has nothing to do here.
    """

    line: str
    before: tuple[str, ...] = ()
    options: str = ""
    fails: str | None = None

    @property
    def verb(self):
        """The words of the command."""
        words = self.line.split(" ")
        two = " ".join(words[:2])
        return two if words[0] == "plan" or two in CALLS else words[0]


class World:
    """The fake and moto, with tables, logs, exports and files."""

    def __init__(self, folder):
        self._stack = contextlib.ExitStack()
        self.folder = folder
        self.moto = self._stack.enter_context(MotoServer())
        self.fake = self._stack.enter_context(
            FakeDynamoDB(export_to=self.moto.endpoint_url, burst_at_creation=1.0, partitions=1)
        )
        self.upstreams = {
            "dynamodb": self.fake.endpoint_url,
            "kinesis": self.fake.endpoint_url,
            **dict.fromkeys(("s3", "glue", "monitoring", "sts", "pricing"), self.moto.endpoint_url),
        }
        self.open = self._stack.enter_context(PolicyProxy(self.upstreams))
        self.known = {"bucket": BUCKET, "table": TABLE, "key": KEY, "folder": str(folder)}
        self.number = 0

    def __enter__(self):
        make(self)
        more(self)
        return self

    def __exit__(self, *_):
        self._stack.close()

    def client(self, service):
        """Return a client without a policy."""
        return boto3.client(service, region_name=REGION, endpoint_url=self.open.endpoint_url)

    def run(self, line, endpoint_url):
        """Run a command line with an endpoint of all services. Return its output."""
        out = io.StringIO()
        before = os.environ.get("AWS_ENDPOINT_URL")
        os.environ["AWS_ENDPOINT_URL"] = endpoint_url
        try:
            # Different sides, for example, are no failure.
            quiet = contextlib.redirect_stderr(io.StringIO())
            with contextlib.redirect_stdout(out), quiet, contextlib.suppress(SystemExit):
                cli.main(args=shlex.split(line), prog_name="ddbio", standalone_mode=False)
        finally:
            if before is None:
                del os.environ["AWS_ENDPOINT_URL"]
            else:
                os.environ["AWS_ENDPOINT_URL"] = before
        return out.getvalue()

    def prepared(self, case):
        """Return the command line of a case for a separate run, after creating its preconditions."""
        self.number += 1
        names = {**self.known, "run": f"run-{self.number}", "n": str(self.number)}
        for line in case.before:
            out = self.run(line.format(**names), self.open.endpoint_url)
            with contextlib.suppress(ValueError):
                names |= {name: value for name, value in json.loads(out).items() if name == "arn"}
        return case.line.format(**names)


def make(world):
    """Create the resources."""
    s3, dynamodb = world.client("s3"), world.client("dynamodb")
    s3.create_bucket(Bucket=BUCKET, ObjectLockEnabledForBucket=True)
    s3.create_bucket(Bucket="other")
    dynamodb.create_table(
        TableName="orders",
        KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}],
        AttributeDefinitions=[
            {"AttributeName": "pk", "AttributeType": "S"},
            {"AttributeName": "day", "AttributeType": "S"},
        ],
        BillingMode="PAY_PER_REQUEST",
        GlobalSecondaryIndexes=[
            {
                "IndexName": "by_day",
                "KeySchema": [{"AttributeName": "day", "KeyType": "HASH"}],
                "Projection": {"ProjectionType": "ALL"},
            }
        ],
        StreamSpecification={"StreamEnabled": True, "StreamViewType": "NEW_AND_OLD_IMAGES"},
    )
    dynamodb.tag_resource(ResourceArn=TABLE, Tags=[{"Key": "team", "Value": "shop"}])
    dynamodb.put_resource_policy(ResourceArn=TABLE, Policy='{"Version": "2012-10-17", "Statement": []}')
    dynamodb.update_time_to_live(TableName="orders", TimeToLiveSpecification={"Enabled": True, "AttributeName": "ttl"})
    dynamodb.update_continuous_backups(
        TableName="orders", PointInTimeRecoverySpecification={"PointInTimeRecoveryEnabled": True}
    )
    fill(dynamodb)
    for name, lines in {
        "rows/a.jsonl": [json.dumps({"pk": f"r{n}", "n": n}) for n in range(5)],
        "keys.jsonl": ['{"pk":"k1"}'],
        "bad/a.jsonl": ['{"pk":"r1"}', '{"pk":""}'],
    }.items():
        s3.put_object(Bucket=BUCKET, Key=name, Body="\n".join(lines).encode())
        path = world.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(lines))


def more(world):
    """Run the verbs whose output others read."""
    root, open_url, dynamodb = f"s3://{BUCKET}", world.open.endpoint_url, world.client("dynamodb")
    stream = dynamodb.describe_table(TableName="orders")["Table"]["LatestStreamArn"]
    kinesis = world.client("kinesis")
    kinesis.create_stream(StreamName="changes", ShardCount=1)
    arn = kinesis.describe_stream_summary(StreamName="changes")["StreamDescriptionSummary"]["StreamARN"]
    dynamodb.enable_kinesis_streaming_destination(TableName="orders", StreamArn=arn)
    fill(dynamodb, "2")
    dynamodb.put_item(
        TableName="orders", Item={"pk": {"S": "old"}, "day": {"S": "d1"}, "ttl": {"N": str(int(time.time()) - 9)}}
    )
    assert world.fake.expire("orders") == 1
    points = [
        {
            "MetricName": f"Consumed{kind}CapacityUnits", "Timestamp": datetime.now(UTC) - timedelta(minutes=minute),
            "Value": 60.0, "Dimensions": [{"Name": "TableName", "Value": "orders"}],
        }
        for minute in range(5, 65) for kind in ("Read", "Write")
    ]  # fmt: skip
    boto3.client("cloudwatch", region_name=REGION, endpoint_url=world.moto.endpoint_url).put_metric_data(
        Namespace="AWS/DynamoDB", MetricData=points
    )
    world.run("copy orders copied --create-target", open_url)
    world.run(f"scan orders {root}/folder", open_url)
    world.run(f"capture orders {root}/log --available-now --old-image", open_url)
    (world.folder / "schema.json").write_text(world.run("schema orders --json", open_url))
    record = {
        "eventName": "INSERT", "eventID": "1", "tableName": "orders", "awsRegion": REGION,
        "dynamodb": {
            "ApproximateCreationDateTime": 1_793_491_203_000, "ApproximateCreationDateTimePrecision": "MILLISECOND",
            "Keys": {"pk": {"S": "a"}}, "SizeBytes": 9, "NewImage": {"pk": {"S": "a"}, "n": {"N": "1"}},
        },
    }  # fmt: skip
    (world.folder / "records.json").write_text(json.dumps({"Records": [record]}))
    world.client("s3").put_object(Bucket=BUCKET, Key="delivered/2026/11/01/00/a", Body=json.dumps(record).encode())
    world.run(f"import files {world.folder}/rows/ {root}/imported --key pk:S", open_url)
    full = json.loads(world.run(f"export start orders {root}/exports --wait --json", open_url))
    world.fake.pass_time(3600)
    fill(dynamodb, "3")
    world.fake.pass_time(3600)
    end = (datetime.fromisoformat(full["export_time"]) + timedelta(minutes=60)).isoformat()
    part = json.loads(
        world.run(f"export start orders {root}/exports --from {full['export_time']} --to {end} --wait --json", open_url)
    )
    world.known |= {
        "export": full["uri"], "increment": part["uri"], "imported": f"{root}/imported", "lakefolder": f"{root}/folder",
        "kinesis": arn, "stream": stream,
    }  # fmt: skip


def fill(dynamodb, value="1"):
    """Write items into the table."""
    for n in range(ITEMS):
        dynamodb.put_item(
            TableName="orders",
            Item={
                "pk": {"S": f"k{n}"},
                "day": {"S": f"d{n % 3}"},
                "n": {"N": value},
                "ttl": {"N": str(int(time.time()) + 100_000)},
            },
        )
