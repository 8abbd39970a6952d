"""Runs pytest, and reruns at most three failed tests, each in a separate process: ``python -m tests.rerun [ARGS]``.

A test that then passes is reported as ``FLAKY`` in the last lines, and the run passes. Such a test must be fixed in the
next change. More than three failures fail the run immediately. So does a file that cannot be collected, since its tests
did not run.
"""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from collections.abc import Sequence

import pytest

MAX_RERUNS = 3


class Failures:
    """Plugin that collects the failed tests, also those of xdist's workers."""

    def __init__(self) -> None:
        self.tests: dict[str, None] = {}
        self.fatal = False

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Record a test that failed, also in its set-up or its teardown."""
        if report.failed:
            self.tests[report.nodeid] = None

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Record that a file could not be collected."""
        self.fatal = self.fatal or report.failed


def main(arguments: Sequence[str]) -> int:
    """Run pytest with these arguments. Return its exit status, or 0 if all failed tests passed when rerun alone."""
    # Without caches every process of a run, also each worker of Spark, would compile all modules again.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False
    failures = Failures()
    status = pytest.main([*arguments], plugins=[failures])
    if failures.fatal or status != pytest.ExitCode.TESTS_FAILED or not 0 < len(failures.tests) <= MAX_RERUNS:
        return int(status)
    settings = [word for name, value in itertools.pairwise(arguments) if name == "-o" for word in (name, value)]
    flaky, broken = [], []
    for test in failures.tests:
        print(f"\nRerunning alone: {test}", flush=True)
        command = [sys.executable, "-m", "pytest", "--quiet", "-p", "no:cacheprovider", *settings, "-m", "", test]
        (broken if subprocess.run(command, check=False).returncode else flaky).append(test)
    for test in flaky:
        print(f"FLAKY {test}: it failed, and passed when rerun alone; fix it in the next change")
    for test in broken:
        print(f"FAILED {test}: it failed twice")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
