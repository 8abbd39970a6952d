"""First calls of a process in a new home: imports, small calls, and calls of some megabytes."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from typing import Any

from bench.e2e import record

_FIRST = """
import json, time
began, cpu = time.monotonic(), time.process_time()
import pyarrow as pa
import ddbio
def step():
    global began, cpu
    now, used = time.monotonic(), time.process_time()
    passed = {"seconds": round(now - began, 3), "cpu_seconds": round(used - cpu, 3)}
    began, cpu = now, used
    return passed
schema = pa.schema([("a", pa.string()), ("n", pa.int64())])
from_json, to_json = ddbio.from_dynamodb_json, ddbio.to_dynamodb_json
lines = b'{"a":{"S":"x"},"n":{"N":"1"}}\\n'
steps = {"import": step()}
batch = from_json(lines * 100, schema)
steps["small decode"] = step()
assert from_json(lines * 100).num_rows == 100
steps["small decode_unknown"] = step()
assert to_json(batch) == lines * 100
steps["small encode"] = step()
ddbio.infer_schema(lines * 100)
steps["small infer"] = step()
ddbio.digest(lines * 100)
steps["small digest"] = step()
batch = from_json(lines * 100_000, schema)
steps["decode"] = step()
to_json(batch)
steps["encode"] = step()
print(json.dumps(steps))
"""


def main() -> None:
    """Append a row with the medians of some processes; goal: the first decode in 1 s, including imports."""
    arguments = record.parser("first_use")
    arguments.add_argument("--rounds", type=int, default=5)
    asked = arguments.parse_args()
    runs = [take() for _ in range(asked.rounds)]
    figures = {
        step: {unit: round(statistics.median(run[step][unit] for run in runs), 3) for unit in units}
        for step, units in runs[0].items()
    }
    record.append("first_use", asked, {"steps": figures})


def take() -> dict[str, Any]:
    """Return the seconds of a process's first steps."""
    with tempfile.TemporaryDirectory() as home:
        environment = {**os.environ, "HOME": home, "XDG_CACHE_HOME": home}
        done = subprocess.run([sys.executable, "-c", _FIRST], env=environment, stdout=subprocess.PIPE, check=True)
    steps: dict[str, Any] = json.loads(done.stdout)
    return steps


if __name__ == "__main__":
    main()
