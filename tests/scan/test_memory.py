"""Memory of one task, which is bounded for tables of any size."""

import json
import subprocess
import sys

import pytest

from ddbio.testing import FakeDynamoDB
from ddbio.testing.flights import KEY, flight_lines

SCRIPT = """
import json, sys
import ddbio

def status(name):
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith(name))

ddbio.scan_to_files("small", sys.argv[2] + "/warm", endpoint_url=sys.argv[1], engine="local")
start = status("VmRSS")
report = ddbio.scan_to_files(
    "flights", sys.argv[2] + "/out", endpoint_url=sys.argv[1], engine="local", segments=16, lanes=8
)
print(json.dumps({"rows": report.rows, "growth_mib": (status("VmHWM") - start) / 1024}))
"""


@pytest.mark.nightly
@pytest.mark.timeout(1800)
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="peak memory is read from /proc")
def test_a_task_s_memory_is_bounded(tmp_path):
    """The peak memory of a task that reads 160 MB of JSON is at most 256 MiB above its start."""
    with FakeDynamoDB(process=True) as fake:
        fake.load("flights", flight_lines(), KEY)
        fake.load("small", flight_lines(2000), KEY)
        command = [sys.executable, "-c", SCRIPT, fake.endpoint_url, str(tmp_path)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
    measured = json.loads(done.stdout)
    assert measured["rows"] == 336_776
    assert measured["growth_mib"] <= 256
