"""Run the verbs that only call the service as processes, compared with boto3 scripts that make the same calls.

Backups, restores, exports, imports and tables mostly wait for the service, which responds immediately here. The CPU
time of the client is measured, including its start.
"""

from __future__ import annotations

import itertools
import json
import statistics
import sys
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import boto3

import ddbio
from bench import orders, pairs
from bench.e2e import processes, record
from bench.serving import isolate
from ddbio.testing import FakeDynamoDB, MotoServer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

ITEMS = 200
TABLE, REGION = "orders", "eu-west-1"
VERB, SCRIPT = "ddbio", "boto3"
NEW = "<new>"
_BUCKET, _RECOVERABLE_SECONDS = "jobs", 3_600

_SCRIPT = """
import json, sys
import boto3
endpoint_url, calls = sys.argv[1], json.loads(sys.argv[2])
client = boto3.client("dynamodb", endpoint_url=endpoint_url, region_name=sys.argv[3])
for operation, given in calls:
    try:
        getattr(client, operation)(**given)
    except client.exceptions.ResourceNotFoundException:
        # So it is looked up whether a name is free.
        pass
"""


def main() -> None:
    """Append a row with every verb."""
    arguments = record.parser("service_verbs")
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--only", default="", help="verbs whose name holds this; prints them, and keeps no row")
    asked = arguments.parse_args()
    with serving() as resources:
        chosen = {name: verb for name, verb in verbs(resources).items() if asked.only in name}
        figures = {name: measure(name, verb, resources, asked.rounds) for name, verb in chosen.items()}
    record.append("service_verbs", asked, figures)


@dataclass(frozen=True)
class Resources:
    """Endpoints and resources: an ended backup, export and import of a table, and files for an import."""

    fake: FakeDynamoDB
    s3_url: str
    table_arn: str
    backup: str
    export: str
    import_: str
    files: str


@dataclass(frozen=True)
class Verb:
    """Command line and calls of a verb; ``NEW`` represents a name that is new in every run."""

    words: tuple[str, ...]
    calls: tuple[tuple[str, Mapping[str, Any]], ...]


def verbs(resources: Resources) -> dict[str, Verb]:
    """Return every verb that calls the service and processes no data."""
    table, of_table, free = {"TableName": TABLE}, {"TableArn": resources.table_arn}, {"TableName": NEW}
    look, look_free = ("describe_table", table), ("describe_table", free)
    alike = ("describe_time_to_live", table)
    recovery, bucket = ("describe_continuous_backups", table), {"S3Bucket": _BUCKET}
    keys = orders.KEY
    definition = {
        "AttributeDefinitions": [{"AttributeName": name, "AttributeType": "S"} for name in orders.KEYS],
        "KeySchema": [
            {"AttributeName": name, "KeyType": kind} for name, kind in zip(orders.KEYS, ("HASH", "RANGE"), strict=True)
        ],
        "BillingMode": "PAY_PER_REQUEST",
    }
    create = ("create_table", {**free, **definition})
    export, imported = {"ExportArn": resources.export}, {"ImportArn": resources.import_}
    source = {**bucket, "S3KeyPrefix": resources.files.partition(f"{_BUCKET}/")[2] + "/data"}
    begin = {
        "S3BucketSource": source,
        "InputFormat": "DYNAMODB_JSON",
        "InputCompressionType": "ZSTD",
        "TableCreationParameters": {**free, **definition},
    }
    return {
        "table describe": Verb(("table", "describe", TABLE), (look,)),
        "table create": Verb(("table", "create", NEW, "--key", keys), (look_free, create, look_free)),
        "table create-like": Verb(("table", "create-like", TABLE, NEW), (look, alike, look_free, create, look_free)),
        "backup create": Verb(
            ("backup", "create", TABLE),
            (
                look,
                ("create_backup", {**table, "BackupName": NEW}),
                ("describe_backup", {"BackupArn": resources.backup}),
            ),
        ),
        "backup list": Verb(("backup", "list", TABLE), (("list_backups", table),)),
        "backup restore": Verb(
            ("backup", "restore", resources.backup, NEW),
            (
                ("describe_backup", {"BackupArn": resources.backup}),
                look_free,
                ("restore_table_from_backup", {"TargetTableName": NEW, "BackupArn": resources.backup}),
                look_free,
            ),
        ),
        "export start": Verb(
            ("export", "start", TABLE, f"s3://{_BUCKET}/{NEW}"),
            (look, recovery, ("export_table_to_point_in_time", {**of_table, **bucket, "S3Prefix": NEW})),
        ),
        "export wait": Verb(("export", "wait", resources.export), (("describe_export", export),)),
        "export list": Verb(("export", "list", TABLE), (look, ("list_exports", of_table))),
        "export describe": Verb(("export", "describe", resources.export), (("describe_export", export),)),
        "import start": Verb(("import", "start", resources.files, NEW), (("import_table", begin),)),
        "import wait": Verb(("import", "wait", resources.import_), (("describe_import", imported),)),
        "import list": Verb(("import", "list"), (("list_imports", {}),)),
        "import describe": Verb(("import", "describe", resources.import_), (("describe_import", imported),)),
    }


def measure(name: str, verb: Verb, resources: Resources, rounds: int) -> dict[str, Any]:
    """Return the seconds of a verb and of the script, in turns, without the first round."""
    number = itertools.count()

    def named(text: str) -> str:
        return text.replace(NEW, f"{name.replace(' ', '-')}-{next(number)}")

    def run_verb() -> float:
        flags = ["--endpoint-url", resources.fake.endpoint_url, "--region", REGION, "--json"]
        flags += ["--s3-endpoint-url", resources.s3_url] if verb.words[0] in {"export", "import"} else []
        words = map(named, verb.words)
        return processes.run([sys.executable, "-m", "ddbio", *words, *flags])[0]

    def run_script() -> float:
        calls = named(json.dumps(verb.calls))
        return processes.run([sys.executable, "-c", _SCRIPT, resources.fake.endpoint_url, calls, REGION])[0]

    ways: dict[str, Callable[[], float]] = {VERB: run_verb, SCRIPT: run_script}
    run_script()
    before, _, after = resources.fake.requests(), run_verb(), resources.fake.requests()
    seconds: pairs.Seconds = {way: [] for way in ways}
    for turn in range(rounds):
        for way in pairs.turned(list(ways), turn):
            seconds[way].append(ways[way]())
    return {
        "cpu_seconds": {way: [round(run_seconds, 3) for run_seconds in taken] for way, taken in seconds.items()},
        "median_cpu_seconds": round(statistics.median(seconds[VERB]), 3),
        "requests": {operation: made for operation in after if (made := after[operation] - before.get(operation, 0))},
        "times_the_script": round(pairs.speed_ratio(seconds, SCRIPT, VERB), 2),
    }


@contextmanager
def serving() -> Iterator[Resources]:
    """Serve a table that was backed up, exported and imported, while the context is open."""
    isolate()
    with ExitStack() as stack:
        moto = stack.enter_context(MotoServer())
        store = boto3.client("s3", endpoint_url=moto.endpoint_url, region_name=REGION)
        store.create_bucket(Bucket=_BUCKET, CreateBucketConfiguration={"LocationConstraint": REGION})
        fake = stack.enter_context(FakeDynamoDB(process=True, export_to=moto.endpoint_url))
        fake.load(TABLE, orders.lines("mixed", ITEMS), orders.KEY)
        client: Any = boto3.client("dynamodb", endpoint_url=fake.endpoint_url, region_name=REGION)
        recovery = {"PointInTimeRecoveryEnabled": True}
        client.update_continuous_backups(TableName=TABLE, PointInTimeRecoverySpecification=recovery)
        fake.pass_time(_RECOVERABLE_SECONDS)
        at = {"endpoint_url": fake.endpoint_url, "region": REGION}
        reach, files = {**at, "s3_endpoint_url": moto.endpoint_url}, f"s3://{_BUCKET}/files"
        items = ddbio.from_dynamodb_json(b"\n".join(orders.lines("mixed", ITEMS)), orders.schema_of("mixed"))
        ddbio.write_import_files(items, files, key=orders.KEY, **reach)
        yield Resources(
            fake,
            moto.endpoint_url,
            client.describe_table(TableName=TABLE)["Table"]["TableArn"],
            ddbio.create_backup(TABLE, **at).arn,
            ddbio.wait_export(ddbio.start_export(TABLE, f"s3://{_BUCKET}/export", **reach).arn, **reach).arn,
            ddbio.wait_import(ddbio.start_import(files, "imported", **reach).arn, **reach).arn,
            files,
        )


if __name__ == "__main__":
    main()
