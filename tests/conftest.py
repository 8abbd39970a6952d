"""Keep every test away from real accounts: fake keys, no configuration files, no metadata service, no endpoint.

The run ends by saying why tests were skipped; in CI a reason that is not among the known ones fails it.
"""

from __future__ import annotations

import os
import re
import signal
import sys
from collections import Counter
from collections.abc import Generator, Iterator, Mapping
from contextlib import suppress

import pytest

EXPECTED_SKIPS = (
    "no endpoint is given",  # the contract suite on an endpoint of the caller's
    "and the connector",  # the EMR connector, which its own benchmarks download
    "mount namespaces",  # a cluster of workers with disks of their own takes Linux and root
    "the oldest libraries",  # the floors have wheels for the oldest Pythons only
    "could not be fetched",  # the jar of Hudi, where Maven Central cannot be reached
    "has no grpcio",  # the first lock has none: Spark Connect is tried on newer versions
    "no Chromium",  # the pages of results are opened in it
    "no clone|clone is shallow",  # rows of results name commits
)
"""What may be missing in CI; whatever else is skipped there was forgotten in its set-up."""

with suppress(ModuleNotFoundError):  # environments of other Sparks have none
    import hypothesis

    # A first call may compile or import: no test fails by its time.
    hypothesis.settings.register_profile("unhurried", parent=hypothesis.settings(), deadline=None)
    hypothesis.settings.load_profile("unhurried")

# PySpark leaves a socket open with every collect, and py4j one with every thread, until the garbage is collected.
SPARK_LEAKS = (
    "ignore:unclosed <socket.socket:ResourceWarning",
    "ignore:Exception ignored in. <socket.socket:pytest.PytestUnraisableExceptionWarning",
)

FAKE_ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "testing",
    "AWS_CONFIG_FILE": os.devnull,
    "AWS_DEFAULT_REGION": "eu-west-1",
    "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_REGION": "eu-west-1",
    "AWS_SECRET_ACCESS_KEY": "testing",
    "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    "DDBIO_CONFIG_DIR": os.devnull,
}


@pytest.fixture(scope="session")
def original_environment() -> Mapping[str, str]:
    """Return the environment as the caller set it, for the suite that tests an endpoint of the caller's."""
    return dict(os.environ)


@pytest.fixture(scope="session", autouse=True)
def hermetic_environment(original_environment: Mapping[str, str]) -> Iterator[None]:
    """Replace every AWS variable before a server, a client or a JVM is started."""
    with pytest.MonkeyPatch.context() as patch:
        for name in original_environment:
            if name.startswith("AWS_"):
                patch.delenv(name)
        for name, value in FAKE_ENVIRONMENT.items():
            patch.setenv(name, value)
        yield


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, bool | None, bool | None]:
    """Ignore what PySpark leaves behind: in its own tests, and in every other once its JVM runs in this process."""
    pyspark = sys.modules.get("pyspark")
    running = pyspark is not None and pyspark.SparkContext._gateway is not None
    if running or "tests/spark" in item.path.as_posix():
        for leak in SPARK_LEAKS:
            item.add_marker(pytest.mark.filterwarnings(leak))
    return (yield)


@pytest.fixture(scope="session", autouse=True)
def interruptible() -> None:
    """Let children be interrupted by Ctrl-C also where this run is in the background, with SIGINT ignored."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how many tests were skipped, and why."""
    reasons = _skip_reasons(terminalreporter)
    for reason, count in reasons.most_common():
        terminalreporter.write_line(f"skipped {count}: {reason}")


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail a run in CI that skipped what should have run there."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None or os.environ.get("CI") != "true":
        return
    unexpected = [reason for reason in _skip_reasons(reporter) if not re.search("|".join(EXPECTED_SKIPS), reason)]
    if unexpected and session.exitstatus == pytest.ExitCode.OK:
        reporter.write_line(f"skipped unexpectedly: {unexpected}")
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def _skip_reasons(reporter: pytest.TerminalReporter) -> Counter[str]:
    skipped = (report.longrepr for report in reporter.stats.get("skipped", []))
    return Counter(str(told[2] if isinstance(told, tuple) else told).removeprefix("Skipped: ") for told in skipped)
