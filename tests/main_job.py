"""The main job on the installed package: a table of the fake to files, these into another table, and a comparison.

test_packaging.py runs this program in environments without any other file of this tree.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import ddbio
from ddbio.testing import FakeDynamoDB

ITEMS = [
    {"id": {"S": f"order-{number}"}, "total": {"N": f"{number}.25"}, "tags": {"SS": ["new", f"t{number % 3}"]}}
    for number in range(3_000)
]


def run(*words: str) -> dict:
    """Run the installed command and return its report."""
    command = [Path(sys.executable).with_name("ddbio"), *words, "--json"]
    return json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)


with FakeDynamoDB() as fake, tempfile.TemporaryDirectory() as folder:
    fake.load("orders", ITEMS, "id:S")
    os.environ["AWS_ENDPOINT_URL_DYNAMODB"] = fake.endpoint_url
    scanned = run("scan", "orders", f"{folder}/orders", "--digest")
    run("table", "create-like", "orders", "orders-copy")
    # Two files of a few rows each are joined to one batch.
    run("load", f"{folder}/orders", "orders-copy")
    read = ddbio.read_table("orders-copy", columns=["total"])
    result = {"rows": scanned["rows"], "digests": [scanned["digest"], str(ddbio.digest("orders-copy"))]}
    sys.stdout.write(json.dumps({"ddbio": ddbio.__file__, "type": str(read["total"].type), **result}))
