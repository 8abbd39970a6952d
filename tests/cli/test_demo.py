"""The demo on a part of its data: stand-ins up, budget, files on S3, validated, stand-ins down."""

import json
import os
import subprocess
import sys


def _demo(*arguments):
    command = [sys.executable, "-m", "ddbio", "demo", "--json", *map(str, arguments)]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=240, env=dict(os.environ))


def test_demo_on_the_embedded_s3():
    """Real flights go through Spark to an embedded S3 and are validated there."""
    done = _demo("--limit", 20_000, "--rcu-per-second", 4000, "--master", "local[2]")
    report = json.loads(done.stdout)
    assert (done.returncode, report["engine"], report["validated"]) == (0, "spark", True)
    assert report["digest_source"] == report["digest_target"] == report["digest"]
    assert all(file["path"].startswith("s3://ddbio-demo/flights/") for file in report["files"])
    assert report["items"] == report["rows"] == 20_000
    assert report["cpu_seconds"] > 0


def test_demo_into_a_folder(tmp_path):
    """--dest writes to a folder, and a second run says that it is not empty."""
    flags = ["--limit", 2000, "--engine", "local", "--rcu-per-second", 4000, "--dest", tmp_path / "out"]
    assert json.loads(_demo(*flags).stdout)["validated"]
    again = _demo(*flags)
    assert (again.returncode, json.loads(again.stdout)["error"]["type"]) == (1, "TargetError")
