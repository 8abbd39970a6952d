"""Conformance of the fake: it passes the number of tests of the public suite in docs/testing.md, group by group.

The suite is fetched by git, and its libraries by npm. ``DDBIO_CONFORMANCE`` may name a checkout with its libraries.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from ddbio.testing import FakeDynamoDB

SOURCE = "https://github.com/nubo-db/dynamodb-conformance"
PAGE = Path(__file__).parents[2] / "docs" / "testing.md"
GROUP = re.compile(r"^\| (tier\d) \| ([\w-]+) \| (\d+) of (\d+) \|$", re.MULTILINE)
COMMIT = re.compile(re.escape(SOURCE) + r"/tree/([0-9a-f]{40})")


def run(*command, cwd):
    """Run a command that needs the network, and return whether it succeeded."""
    return subprocess.run(command, cwd=cwd, capture_output=True, check=False, timeout=600).returncode == 0


@pytest.fixture
def suite(tmp_path):
    """Return a checkout of the suite at the commit of the page; skip the test if it cannot be fetched."""
    if "DDBIO_CONFORMANCE" in os.environ:
        return Path(os.environ["DDBIO_CONFORMANCE"])
    missing = [tool for tool in ("git", "npm", "npx") if shutil.which(tool) is None]
    if missing:
        pytest.skip(f"the conformance suite needs {', '.join(missing)}")
    (commit,) = COMMIT.findall(PAGE.read_text())
    run("git", "init", "--quiet", ".", cwd=tmp_path)
    if not run("git", "fetch", "--quiet", "--depth=1", SOURCE, commit, cwd=tmp_path):
        pytest.skip(f"{SOURCE} cannot be fetched")
    run("git", "checkout", "--quiet", "FETCH_HEAD", cwd=tmp_path)
    if not run("npm", "ci", "--no-audit", "--no-fund", cwd=tmp_path):
        pytest.skip("npm cannot install the libraries of the conformance suite")
    return tmp_path


@pytest.mark.nightly
@pytest.mark.timeout(1800)
def test_the_fake_conforms_as_published(suite, tmp_path):
    """Each group passes the number of tests on the page."""
    report = tmp_path / "report.json"
    # The tables of the suite have 5 units. On AWS they save capacity while the suite waits for other tables.
    with FakeDynamoDB(burst_at_creation=300.0) as fake:
        command = ["npx", "vitest", "run", "--reporter=json", f"--outputFile={report}"]
        environment = {**os.environ, "DYNAMODB_ENDPOINT": fake.endpoint_url}
        subprocess.run(command, cwd=suite, env=environment, capture_output=True, check=False, timeout=1200)
    passed, counted = Counter(), Counter()
    for file in json.loads(report.read_text())["testResults"]:
        group = Path(file["name"]).relative_to(suite / "tests").parts[:2]
        for result in file["assertionResults"]:
            counted[group] += 1
            passed[group] += result["status"] == "passed"
    published = {(tier, group): (int(of), int(all_)) for tier, group, of, all_ in GROUP.findall(PAGE.read_text())}
    assert {group: (passed[group], count) for group, count in counted.items()} == published
