"""One run of most commands on a small table and in local folders, to check the printed JSON and the written files."""

from __future__ import annotations

import contextlib
import gc
import io
import json
import os
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import boto3

from ddbio.cli.main import cli, run
from ddbio.commit.committer import CommitInfo
from ddbio.commit.protocol import Target
from ddbio.lambda_handlers import log_changes
from ddbio.storage.local_store import LocalStore
from ddbio.storage.staged import FileNaming
from ddbio.testing import FakeDynamoDB

TABLE = "orders"
STREAM = {"StreamEnabled": True, "StreamViewType": "NEW_AND_OLD_IMAGES"}
TTL = "ttl"


def create(client, name: str, *, stream: bool = False) -> None:
    """Create a table with the keys ``pk`` and ``sk``."""
    client.create_table(
        TableName=name,
        BillingMode="PAY_PER_REQUEST",
        AttributeDefinitions=[{"AttributeName": key, "AttributeType": tag} for key, tag in (("pk", "S"), ("sk", "N"))],
        KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}, {"AttributeName": "sk", "KeyType": "RANGE"}],
        **({"StreamSpecification": STREAM} if stream else {}),
    )


def item(pk: str, sk: int, n: int, **more: object) -> dict[str, object]:
    """Return an item with values of several types. Some attributes have the names of ddbio's own columns."""
    values = {"n": {"N": str(n)}, "day": {"S": f"2026-11-0{n % 3 + 1}"}, "digest": {"S": f"d{n}"}}
    nested = {"list": {"L": [{"S": "a"}]}, "map": {"M": {"x": {"N": "1.5"}}}, "names": {"SS": ["a", "b"]}}
    return {"pk": {"S": pk}, "sk": {"N": str(sk)}, **values, **nested, "bytes": {"B": b"\x01"}, **more}


class Jobs:
    """Runner of commands in this process, which keeps the printed JSON.

    Attributes
    ----------
    printed
        The name, the exit code and the printed JSON of each command.
    """

    def __init__(self, folder: Path, fake: FakeDynamoDB) -> None:
        self.folder, self.fake, self.printed = folder, fake, []
        self.passed = timedelta()
        self.client = boto3.client("dynamodb", endpoint_url=fake.endpoint_url, region_name="us-east-1")

    def __call__(self, command: str, code: int = 0, *, is_json: bool = True) -> object:
        """Run a command, in whose words ``@`` stands for the folder. Return the printed JSON."""
        words = [word.replace("@", f"{self.folder}/") for word in command.split()]
        needs_endpoint = words[0] not in {"simulate", "prices", "iam"}
        # No server listens at the S3 endpoint.
        endpoints = ["--endpoint-url", self.fake.endpoint_url, "--s3-endpoint-url", "http://127.0.0.1:1"]
        arguments = [*words, *(endpoints if needs_endpoint else [])]
        arguments += ["--json"] if is_json else []
        out, ended = io.StringIO(), 0
        err = io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                run(arguments)
            except SystemExit as exit_:
                ended = exit_.code
        gc.unfreeze()
        assert ended == code, (command, ended, err.getvalue(), out.getvalue())
        printed = json.loads(out.getvalue()) if is_json else out.getvalue()
        self.printed.append((_name_of(words), code, printed))
        return printed

    def pass_time(self, seconds: float) -> None:
        """Advance the clock of the fake."""
        self.fake.pass_time(seconds)
        self.passed += timedelta(seconds=seconds)

    def put(self, table: str, *args: object, **more: object) -> None:
        """Put an item."""
        self.client.put_item(TableName=table, Item=item(*args, **more))


def _name_of(words: list[str]) -> str:
    """Return the words of a command line that name the command."""
    command, words_of_name = cli, []
    for word in words:
        parts = {**getattr(command, "commands", {}), **getattr(command, "parts", {})}
        if word not in parts:
            break
        command = parts[word]
        words_of_name.append(word)
    return " ".join(words_of_name)


def scans(do: Jobs) -> None:
    """Write files of several formats, stop a scan that is resumed later, and inspect folders."""
    do(f"plan scan {TABLE}")
    do(f"scan {TABLE} @folder --digest --job-id scan_1")
    do(f"scan {TABLE} @folder --mode append --job-id scan_2")
    do(f"scan {TABLE} @parts --partition-by day --job-id scan_3")
    do(f"plan count {TABLE}")
    do(f"count {TABLE} --segments 2")
    do(f"archive expired {TABLE} --ttl {TTL}")
    stop_a_scan(do)
    do("files @folder")
    do("files @folder --history")
    do("layout @folder")
    do("plan compact @folder")
    do("compact @folder --job-id compacted")
    do("plan publish @folder @published")
    do("publish @folder @published --job-id published")
    do("vacuum @folder --dry-run")
    do("digest @folder")
    do("schema @folder")
    do(f"validate {TABLE} @folder", 1)
    do(f"plan validate {TABLE} @folder")
    do("scan missing @nowhere", 1)
    do(f"scan {TABLE} @nowhere --rcu-per-second some", 2)


def stop_a_scan(do: Jobs) -> None:
    """Scan until an item does not fit, so that the state of an unfinished scan remains."""
    create(do.client, "misfits")
    for number in range(8):
        do.put("misfits", f"a{number}", number, number)
    do.client.put_item(TableName="misfits", Item={"pk": {"S": "b"}, "sk": {"N": "0"}, "n": {"S": "text"}})
    flags = "--segments 4 --tasks 1 --lanes 1 --on-misfit fail --types n=int64"
    do(f"scan misfits @stopped --job-id stopped {flags}", 1)


def loads(do: Jobs) -> None:
    """Load files, stop a load that is resumed later, and copy."""
    create(do.client, "loaded")
    do("plan load @folder loaded")
    do("load @parts loaded --state @state --job-id finished")
    rows = [json.dumps({"pk": "new", "sk": number, "n": number}) for number in range(6)]
    (do.folder / "rows").mkdir()
    (do.folder / "rows/a.json").write_text("\n".join(rows))
    # No item has an empty key.
    (do.folder / "rows/b.json").write_text(json.dumps({"pk": "", "sk": 7, "n": 7}))
    do("load @rows loaded --state @state --job-id limited --lanes 1 --tasks 1", 1)
    do(f"plan copy {TABLE} loaded")
    do(f"copy {TABLE} loaded")
    do("import files @parts @import --key pk:S,sk:N")
    do("plan import-files @parts @import --key pk:S,sk:N")


def changes(do: Jobs) -> None:
    """Capture, apply, archive and replay. Lose changes and heal the log."""
    capture = f"capture {TABLE} @log --available-now --old-image"
    do(capture)
    do("apply @log @delta --format delta --buckets 1")
    do("apply @log @iceberg --format iceberg --buckets 1")
    do.put(TABLE, "a", 1, 10)
    do.client.delete_item(TableName=TABLE, Key={"pk": {"S": "a"}, "sk": {"N": "2"}})
    do.fake.expire(TABLE)
    do(capture)
    do(f"archive @log @archive --ttl {TTL} --job-id archived")
    do("archive restore @archive loaded")
    do("apply @log @delta")
    do(f"verify {TABLE} @delta")
    do("maintain @delta --dry-run")
    do("maintain @delta")
    do("history @log")
    do("catalog ddl @log --for spark", is_json=False)
    do("view latest @log @delta --for duckdb", is_json=False)
    do("view history @log --for duckdb", is_json=False)
    do(f"capture {TABLE} @shared --available-now --leases 2")
    heal(do, capture)
    do("capture status @log")
    do("capture verify @log")


def heal(do: Jobs, capture: str) -> None:
    """Lose changes of the stream, export the table's changes, and heal and reconcile the log with them."""
    since = datetime.now(UTC) + do.passed - timedelta(seconds=60)
    do.pass_time(100)
    do.put(TABLE, "a", 3, 20)
    do.fake.trim_stream(TABLE)
    do.pass_time(1000)
    do.put(TABLE, "a", 4, 30)
    do(capture, 1)
    do(f"{capture} --on-gap continue")
    do(f"capture heal {TABLE} @log --dry-run")
    do.pass_time(2000)
    window = (
        f"--from {(since - timedelta(seconds=900)).isoformat()} --to {(since + timedelta(seconds=2700)).isoformat()}"
    )
    started = do(f"export start {TABLE} s3://exports/increment {window} --wait")
    export = f"@exports/exports/increment/AWSDynamoDB/{started['arn'].rpartition('/')[2]}"
    do(f"capture heal {TABLE} @log --from-export {export}")
    window = f"--since {since.isoformat()} --until {(since + timedelta(seconds=2400)).isoformat()}"
    do(f"reconcile {TABLE} @log @delta --from-export {export} {window}")


def exports(do: Jobs) -> None:
    """Export the table, then read and fold the export."""
    started = do(f"export start {TABLE} s3://exports/full --wait")
    export = f"@exports/exports/full/AWSDynamoDB/{started['arn'].rpartition('/')[2]}"
    do(f"export describe {started['arn']}")
    do(f"export list {TABLE}")
    do(f"plan export {TABLE} s3://exports/full")
    do(f"plan export-read {export} @read")
    do(f"export read {export} @read --job-id read")
    base = datetime.fromisoformat(started["export_time"])
    do.pass_time(1000)
    window = f"--from {base.isoformat()} --to {(base + timedelta(seconds=900)).isoformat()}"
    increment = do(f"export start {TABLE} s3://exports/later {window} --wait")
    later = f"@exports/exports/later/AWSDynamoDB/{increment['arn'].rpartition('/')[2]}"
    do(f"export windows {export} {later}")
    do(f"plan export-fold {export} {later} @folded")
    do(f"export fold {export} {later} @folded --job-id folded")


def others(do: Jobs) -> None:
    """Run the commands that neither write files nor read items."""
    do(f"table describe {TABLE}")
    do("table create made --key pk:S")
    do(f"table create-like {TABLE} similar")
    do(f"backup create {TABLE} --poll-seconds 0.1")
    do(f"backup list {TABLE}")
    do("plan capture --records-per-second 10")
    do("simulate scan --table-bytes 1mb --seed 1")
    do("simulate load --source-bytes 1mb --seed 1")
    do("prices show")
    do(f"advise {TABLE} --changes-per-second 5")
    do("import list")
    do("bulk list")
    do(f"iam scan {TABLE} s3://bucket/folder", is_json=False)


def deliver(do: Jobs) -> None:
    """Write changes as Firehose does, read and replay them, and log others by the Lambda handler."""
    records = [record(number) for number in range(3)]
    (do.folder / "records.json").write_text("\n".join(map(json.dumps, records)))
    do("changes write @records.json @delivered --records raw")
    do("changes read @delivered ", is_json=False)
    do("replay @delivered @replayed --dry-run")
    do("replay @delivered @replayed")
    os.environ |= {"DDBIO_LOG": str(do.folder / "lambda"), "DDBIO_LOG_OPTIONS": "{}"}
    try:
        log_changes({"Records": records})
    finally:
        del os.environ["DDBIO_LOG"], os.environ["DDBIO_LOG_OPTIONS"]
    do(f"bootstrap {TABLE} @lake --log @lakelog --buckets 1")


def record(number: int) -> dict[str, object]:
    """Return a change as a stream passes it to Lambda."""
    image = item("a", number, number, bytes={"B": "AQ=="})
    inside = {"Keys": {name: image[name] for name in ("pk", "sk")}, "NewImage": image}
    more = {
        "ApproximateCreationDateTime": 1793491203 + number,
        "SequenceNumber": str(4421584500000000017450439000 + number),
    }
    arn = "arn:aws:dynamodb:us-east-1:000000000000:table/orders/stream/2026-11-01T00:00:00.000"
    head = {"eventID": f"{number:032x}", "eventName": "INSERT", "eventSource": "aws:dynamodb", "eventSourceARN": arn}
    return {**head, "awsRegion": "us-east-1", "dynamodb": inside | more}


class _StoppedError(BaseException):
    """Simulated end of the process."""


class _StoppedStore:
    """Store that passes calls on until a snapshot is to be written."""

    def __init__(self, store: LocalStore) -> None:
        self._store = store

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)

    def put_if_absent(self, path: str, data: bytes) -> bool:
        """Write an object, unless it is a snapshot."""
        if "snapshots" in path:
            raise _StoppedError
        return self._store.put_if_absent(path, data)


def stop_a_commit(do: Jobs) -> None:
    """Start a commit that ends before its snapshot is written."""
    store, job_id = LocalStore(str(do.folder / "killed")), "20261101T000000Z_0badcafe"
    target = Target(store=_StoppedStore(store), mode="append")
    target.prepare(job_id)
    sink = store.create(FileNaming(job_id, 0).path(0, "parquet"))
    sink.write(next(do.folder.glob("folder/*.parquet")).read_bytes())
    manifest = json.loads((do.folder / "folder/_ddbio/scan_1.json").read_text("utf-8"))
    info = CommitInfo(created_at=manifest["created_at"], source=manifest["source"], schema=manifest["schema"])
    with contextlib.suppress(_StoppedError):
        target.commit(job_id, [sink.finish(7)], info)


def run_jobs(folder: Path) -> Jobs:
    """Run all jobs in a folder."""
    with FakeDynamoDB(partitions=1, burst_at_creation=1.0, export_to=str(folder / "exports")) as fake:
        do = Jobs(folder, fake)
        create(do.client, TABLE, stream=True)
        do.client.update_time_to_live(TableName=TABLE, TimeToLiveSpecification={"Enabled": True, "AttributeName": TTL})
        recovery = {"PointInTimeRecoverySpecification": {"PointInTimeRecoveryEnabled": True}}
        do.client.update_continuous_backups(TableName=TABLE, **recovery)
        do.pass_time(1800)
        for number in range(6):
            do.put(TABLE, "a", number, number)
        do.put(TABLE, "old", 1, 9, **{TTL: {"N": str(int(time.time()) - 100)}})
        for jobs in (scans, stop_a_commit, loads, exports, changes, deliver, others):
            jobs(do)
        do.client.close()
    return do
