"""Time of a Lambda function's process from its start to the end of its first event, and of its second event."""

from __future__ import annotations

import base64
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench.e2e import record

RECORDS = 100

_SCRIPT = """
import json, resource, sys, time
began = time.perf_counter()
from ddbio import lambda_handlers
event = json.loads(sys.stdin.read())
handler = getattr(lambda_handlers, sys.argv[1])
imported = time.perf_counter()
first = handler(event)
done = time.perf_counter()
handler(event)
usage = resource.getrusage(resource.RUSAGE_SELF)
print(json.dumps({"import_seconds": imported - began, "first_seconds": done - imported,
                  "second_seconds": time.perf_counter() - done, "cpu_seconds": usage.ru_utime + usage.ru_stime,
                  "resident_mebibytes": usage.ru_maxrss / 1024}))
"""


def main() -> None:
    """Append a row: the medians of some runs of each handler."""
    arguments = record.parser("lambda_start")
    arguments.add_argument("--rounds", type=int, default=5)
    asked = arguments.parse_args()
    record.append("lambda_start", asked, measure(asked.rounds))


def measure(rounds: int) -> dict[str, Any]:
    """Return the seconds of each handler."""
    changes = [change(number) for number in range(RECORDS)]
    delivered = [
        {"recordId": str(number), "data": base64.b64encode(json.dumps(item).encode()).decode()}
        for number, item in enumerate(changes)
    ]
    events = {"firehose_transform": {"records": delivered}, "log_changes": {"Records": changes}}
    figures = {}
    for handler, event in events.items():
        runs = [run(handler, event) for _ in range(rounds)]
        medians = {name: round(statistics.median(run[name] for run in runs), 4) for name in runs[0]}
        figures[handler] = {"records": RECORDS, **medians}
    return figures


def change(number: int) -> dict[str, object]:
    """Return a stream record of an order."""
    image = {"pk": {"S": f"user#{number}"}, "n": {"N": str(number)}, "note": {"S": "x" * 200}, "tags": {"SS": ["a"]}}
    inside = {"ApproximateCreationDateTime": 1793491203, "Keys": {"pk": image["pk"]}, "NewImage": image,
              "SequenceNumber": str(4421584500000000017450439000 + number), "SizeBytes": 300}  # fmt: skip
    return {"eventID": str(number), "eventName": "INSERT", "eventSource": "aws:dynamodb", "dynamodb": inside,
            "eventSourceARN": "arn:aws:dynamodb:eu-west-1:111122223333:table/orders/stream/1"}  # fmt: skip


def run(handler: str, event: dict[str, Any]) -> dict[str, float]:
    """Return the seconds of a process for an event, and for the same event again."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, "-c", _SCRIPT, handler],
            input=json.dumps(event),
            env={**os.environ, "DDBIO_LOG": str(Path(folder) / "log")},
            capture_output=True,
            text=True,
            check=True,
        )
    seconds_by_step: dict[str, float] = json.loads(done.stdout)
    return seconds_by_step


if __name__ == "__main__":
    main()
