"""Serve the fake DynamoDB until SIGTERM or SIGINT; standard output is one line of JSON with its address."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import threading
from pathlib import Path

from ddbio.errors import DdbioError, OptionError
from ddbio.testing.fake import FakeDynamoDB
from ddbio.testing.faults import Faults, Storm
from ddbio.testing.loading import file_lines
from ddbio.testing.tables.capacity import BURST_SECONDS
from ddbio.testing.tables.definition import ON_DEMAND_PARTITIONS


def main(arguments: list[str] | None = None) -> int:
    """Serve, print the address as one line of JSON, and return 0 after a signal to stop."""
    asked = _parser().parse_args(arguments)
    stopped = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopped.set())
    try:
        with _fake(asked) as fake:
            if asked.load is not None:
                _load(fake, asked)
            print(json.dumps({"endpoint_url": fake.endpoint_url}), flush=True)  # noqa: T201 - the documented output
            if asked.until_eof:
                threading.Thread(target=_wait_for_eof, args=(stopped,), daemon=True).start()
            stopped.wait()
    except (DdbioError, OSError) as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)  # noqa: T201 - the only line about the error
        return 1
    return 0


def _fake(asked: argparse.Namespace) -> FakeDynamoDB:
    return FakeDynamoDB(
        port=asked.port,
        rcu=asked.rcu,
        wcu=asked.wcu,
        latency_seconds=asked.latency_ms / 1000,
        partitions=asked.partitions,
        burst_seconds=asked.burst_seconds,
        burst_at_creation=asked.burst_at_creation,
        faults=_faults(asked),
        proxy=asked.proxy,
        export_to=asked.export_to,
        job_seconds=asked.job_seconds,
    )


def _load(fake: FakeDynamoDB, asked: argparse.Namespace) -> None:
    if asked.table is None or asked.key is None:
        raise OptionError("--load needs --table and --key, like --load items.jsonl --table flights --key id:S")
    fake.load(asked.table, file_lines(asked.load), asked.key)


def _faults(asked: argparse.Namespace) -> Faults:
    return Faults(
        unprocessed_ratio=asked.unprocessed_ratio,
        error_before_ratio=asked.error_before_ratio,
        error_after_ratio=asked.error_after_ratio,
        reset_ratio=asked.reset_ratio,
        merge_ratio=asked.merge_ratio,
        duplicate_ratio=asked.duplicate_ratio,
        late_ratio=asked.late_ratio,
        latest_slack=asked.latest_slack,
        storms=tuple(asked.storm),
        seed=asked.seed,
        job_failure=asked.job_failure,
    )


def _storm(text: str) -> Storm:
    try:
        return Storm.parse(text)
    except OptionError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _wait_for_eof(stopped: threading.Event) -> None:
    # Unbuffered, so that no lock of sys.stdin is held when the interpreter ends.
    while os.read(sys.stdin.fileno(), 1):
        pass
    stopped.set()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m ddbio.testing", description=__doc__, allow_abbrev=False)
    parser.add_argument("--port", type=int, default=0, help="port on 127.0.0.1; 0 takes a free one")
    parser.add_argument(
        "--proxy", metavar="URL", help="endpoint to which requests are passed on, with capacity and faults"
    )
    parser.add_argument("--export-to", metavar="URL|FOLDER", help="where ExportTableToPointInTime writes")
    parser.add_argument("--load", type=Path, metavar="FILE", help="DynamoDB JSON lines, plain or .gz")
    parser.add_argument("--table", metavar="NAME", help="the table to load into")
    parser.add_argument("--key", metavar="pk[:S][,sk[:S]]", help="its partition key and sort key with their types")
    parser.add_argument("--rcu", type=float, help="read units per second of tables without their own")
    parser.add_argument("--wcu", type=float, help="write units per second of tables without their own")
    parser.add_argument("--latency-ms", type=float, default=0.0, help="delay of every reply (default: %(default)s)")
    parser.add_argument(
        "--partitions",
        type=int,
        default=ON_DEMAND_PARTITIONS,
        help="partitions of an on-demand table (default: %(default)s)",
    )
    parser.add_argument(
        "--burst-seconds",
        type=float,
        default=BURST_SECONDS,
        help="seconds of unused capacity a table saves (default: %(default)s)",
    )
    parser.add_argument(
        "--burst-at-creation",
        type=float,
        help="of these, how many a new table begins with (default: 1 if on-demand, else 0)",
    )
    parser.add_argument(
        "--unprocessed-ratio",
        type=float,
        default=0.0,
        help="share of batched items left unprocessed (default: %(default)s)",
    )
    parser.add_argument(
        "--error-before-ratio", type=float, default=0.0, help="share of HTTP 500 without effect (default: %(default)s)"
    )
    parser.add_argument(
        "--error-after-ratio", type=float, default=0.0, help="share of HTTP 500 after the effect (default: %(default)s)"
    )
    parser.add_argument(
        "--reset-ratio",
        type=float,
        default=0.0,
        help="share of connections reset, before or after (default: %(default)s)",
    )
    parser.add_argument(
        "--merge-ratio",
        type=float,
        default=0.0,
        help="share of quick changes that a stream merges (default: %(default)s)",
    )
    parser.add_argument(
        "--duplicate-ratio",
        type=float,
        default=0.0,
        help="share of changes that Kinesis has once more (default: %(default)s)",
    )
    parser.add_argument(
        "--late-ratio", type=float, default=0.0, help="share of changes that Kinesis has late (default: %(default)s)"
    )
    parser.add_argument(
        "--latest-slack",
        type=int,
        default=0,
        help="how many records before the end a stream's LATEST begins (default: %(default)s)",
    )
    parser.add_argument(
        "--storm",
        type=_storm,
        action="append",
        default=[],
        metavar="START-END[:LIMIT]",
        help="seconds since the start in which everything is throttled; may be repeated",
    )
    parser.add_argument(
        "--job-seconds", type=float, default=0.0, help="how long jobs of the service run (default: %(default)s)"
    )
    parser.add_argument(
        "--job-failure", metavar="CODE", help="the FailureCode with which every export, import and bulk put ends"
    )
    parser.add_argument("--seed", type=int, default=0, help="chooses which requests fail (default: %(default)s)")
    parser.add_argument("--until-eof", action="store_true", help="stop when standard input ends")
    return parser


if __name__ == "__main__":
    sys.exit(main())
