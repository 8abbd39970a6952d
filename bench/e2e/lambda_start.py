"""Measure a Lambda function's process from its start to the end of its first event, and its second event.

Run it as ``python -m bench.e2e.lambda_start``. Loops are loaded that are compiled, or of ``DDBIO_KERNEL_DIR``.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

RECORDS, RUNS = 100, 5

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
print(json.dumps({"import": imported - began, "first": done - imported, "second": time.perf_counter() - done,
                  "cpu": usage.ru_utime + usage.ru_stime, "rss_mib": usage.ru_maxrss / 1024}))
"""


def record(number: int) -> dict[str, object]:
    """Return a record of a table's stream, of an order."""
    image = {"pk": {"S": f"user#{number}"}, "n": {"N": str(number)}, "note": {"S": "x" * 200}, "tags": {"SS": ["a"]}}
    inside = {"ApproximateCreationDateTime": 1793491203, "Keys": {"pk": image["pk"]}, "NewImage": image,
              "SequenceNumber": str(4421584500000000017450439000 + number), "SizeBytes": 300}  # fmt: skip
    return {"eventID": str(number), "eventName": "INSERT", "eventSource": "aws:dynamodb", "dynamodb": inside,
            "eventSourceARN": "arn:aws:dynamodb:eu-west-1:111122223333:table/orders/stream/1"}  # fmt: skip


def main() -> None:
    """Print the median of some runs of each handler, as lines of JSON."""
    changes = [record(number) for number in range(RECORDS)]
    delivered = [
        {"recordId": str(number), "data": base64.b64encode(json.dumps(each).encode()).decode()}
        for number, each in enumerate(changes)
    ]
    for handler, event in (("firehose_transform", {"records": delivered}), ("log_changes", {"Records": changes})):
        runs = list[dict[str, float]]()
        for _ in range(RUNS):
            with tempfile.TemporaryDirectory() as folder:
                done = subprocess.run(
                    [sys.executable, "-c", _SCRIPT, handler],
                    input=json.dumps(event),
                    env={**os.environ, "DDBIO_LOG": str(Path(folder) / "log")},
                    capture_output=True,
                    text=True,
                    check=True,
                )
            runs.append(json.loads(done.stdout))
        median = {name: round(sorted(each[name] for each in runs)[RUNS // 2], 4) for name in runs[0]}
        sys.stdout.write(json.dumps({"handler": handler, "records": RECORDS, **median}) + "\n")


if __name__ == "__main__":
    main()
