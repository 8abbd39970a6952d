"""Take the first calls of a process: in a fresh home, in the next process, and where loops were shipped.

``small`` calls are of some kilobytes, which the plain reference answers where nothing is compiled; all small calls of a
fresh home compile nothing. ``decode`` and ``encode`` are of more than it answers.
"""

from __future__ import annotations

import json
import os
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
    """Append one row; goals on an idle machine of two cores, in a fresh home: a small call in 1 s, a decode in 10 s.

    Where code was shipped, a decode is to take 1 s.
    """
    asked = record.parser("first_use").parse_args()
    with tempfile.TemporaryDirectory() as home, tempfile.TemporaryDirectory() as other:
        shipped = f"{other}/shipped"
        subprocess.run([sys.executable, "-m", "ddbio", "warm", "--to", shipped], check=True, stdout=subprocess.DEVNULL)
        figures = {
            "cold": take(home),
            "warm": take(home),
            "shipped": take(f"{other}/empty", DDBIO_KERNEL_DIR=shipped),
        }
    record.append("first_use", asked, figures)


def take(home: str, **environment: str) -> dict[str, Any]:
    """Return what a process whose loops are kept in ``home`` takes for its first steps."""
    environment = {**os.environ, "XDG_CACHE_HOME": home, **environment}
    done = subprocess.run([sys.executable, "-c", _FIRST], env=environment, stdout=subprocess.PIPE, check=True)
    steps: dict[str, Any] = json.loads(done.stdout)
    return steps


if __name__ == "__main__":
    main()
