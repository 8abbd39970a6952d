"""The demo on a part of its data: it starts and stops fakes, uses a budget, writes files to S3, and validates them."""

import json
import os
import subprocess
import sys

import pytest


@pytest.fixture
def demo(ddbio, monkeypatch):
    """Return a function that runs the demo in this process, and returns its exit code and its report."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        # Restored afterwards, because the demo sets its own.
        monkeypatch.setenv(name, os.environ[name])

    def call(*arguments):
        done = ddbio("demo", "--json", *arguments)
        return done.returncode, json.loads(done.stdout)

    return call


def check(report):
    """Compare a report of the demo on its embedded S3 with the expected values."""
    assert report["validated"]
    assert report["digest_source"] == report["digest_target"] == report["digest"]
    assert all(file["path"].startswith("s3://ddbio-demo/flights/") for file in report["files"])
    assert report["items"] == report["rows"] == 20_000
    assert report["cpu_seconds"] > 0


@pytest.mark.nightly
def test_demo_through_spark():
    """A separate process moves real flights through Spark to an embedded S3 and validates them there."""
    command = [sys.executable, "-m", "ddbio", "demo", "--json", "--limit", "20000", "--rcu-per-second", "4000"]
    done = subprocess.run([*command, "--master", "local[2]"], check=True, capture_output=True, text=True)
    report = json.loads(done.stdout)
    assert report["engine"] == "spark"
    check(report)


def test_demo_on_the_embedded_s3(demo):
    """Real flights are written to an embedded S3 and validated there."""
    code, report = demo("--limit", 20_000, "--engine", "local", "--rcu-per-second", 4000)
    assert (code, report["engine"]) == (0, "local")
    check(report)


def test_demo_into_a_folder(demo, tmp_path):
    """--dest writes to a folder, and a second run reports that it is not empty."""
    flags = ["--limit", 2000, "--engine", "local", "--rcu-per-second", 4000, "--dest", tmp_path / "out"]
    assert demo(*flags)[1]["validated"]
    code, report = demo(*flags)
    assert (code, report["error"]["type"]) == (1, "TargetError")
