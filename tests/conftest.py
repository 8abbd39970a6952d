"""The two tiers of tests, their distribution over processes, and an environment without real accounts.

The commit tier is deterministic: fixed seeds, and Hypothesis without randomness. The nightly tier also runs the tests
marked ``nightly``, and draws fresh seeds from ``DDBIO_TEST_SEED``, which ``./task nightly`` sets and prints.

The run ends with the reasons of skipped tests. In CI a reason that is not among the expected ones fails it.
"""

from __future__ import annotations

import gc
import os
import re
import signal
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from tests.stores import flights, local_store, make_store, s3_spec, s3_store, s3_url, staged_left  # noqa: F401 - fixtures
from tests.tables import fake  # noqa: F401 - a fixture

if TYPE_CHECKING:
    from xdist.scheduler import LoadFileScheduling

EXPECTED_SKIPS = (
    "no endpoint is given",  # the contract suite on an endpoint of the caller's
    "and the connector",  # the EMR connector, which its own benchmarks download
    "mount namespaces",  # a cluster of workers with separate disks needs Linux and root
    "the oldest libraries",  # the floors have wheels for the oldest Pythons only
    "could not be fetched",  # the jar of Hudi, where Maven Central cannot be reached
    "has no grpcio",  # the first lock has none: Spark Connect is tried on newer versions
    "no Chromium",  # the pages of results are opened in it
    "no clone|clone is shallow",  # rows of results name commits
)
"""The accepted reasons in CI. Any other skipped test is missing in its set-up."""

SKIPPED_UNEXPECTEDLY = 6
"""The exit status of such a run; pytest's own end at 5."""

QUARANTINE: Mapping[str, str] = {}
"""Tests that fail at random, with the reason of each. Only the nightly tier runs them. A fix removes the entry."""

SEED = os.environ.get("DDBIO_TEST_SEED")
"""The seed of a nightly run; None in the commit tier."""

SEEDS_OF_A_RUN = 1_000_000
"""The number of sweep seeds between two seeds of nightly runs."""

LONG_FIRST = (
    "spark",
    "test_how_to.py",
    "test_packaging.py",
    "cdc",
    "lake",
    "load",
    "scan",
    "export",
    "formats",
    "commit",
    "folders",
    "jobs",
    "testing",
    "contract",
    "cli",
    "items/kernel",
)
"""The folders and files of long tests, in the order in which they start, so that only short files remain at the end."""

with suppress(ModuleNotFoundError):  # environments of other Sparks have none
    import hypothesis

    # No test fails because of its duration: a first call may compile or import, and the machine may be busy.
    unhurried = hypothesis.settings(deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
    hypothesis.settings.register_profile("commit", unhurried, derandomize=True, database=None, max_examples=50)
    hypothesis.settings.register_profile("nightly", unhurried, print_blob=True, max_examples=200)
    hypothesis.settings.load_profile("nightly" if SEED else "commit")

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


@pytest.fixture
def seeds() -> Callable[[int, int], range]:
    """Return a function from the seed counts of the commit tier and the nightly tier to the seeds of a sweep.

    The seeds of the commit tier are always the same, those of the nightly tier are new in each run.
    """

    def seeds_of(commit: int, nightly: int) -> range:
        if SEED is None:
            return range(commit)
        first = int(SEED) * SEEDS_OF_A_RUN
        return range(first, first + nightly)

    return seeds_of


def pytest_report_header() -> list[str]:
    """Print the seed of a nightly run, and the command that repeats the run."""
    if SEED is None:
        return []
    return [
        f"nightly tier; repeat a failure by: DDBIO_TEST_SEED={SEED} ./task test -m '' --hypothesis-seed={SEED} TEST"
    ]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Order files so that long ones start first, and remove quarantined tests from the commit tier."""
    ranks = {name: rank for rank, name in enumerate(LONG_FIRST)}

    def rank_of(item: pytest.Item) -> int:
        path = _path_in_tests(item.nodeid)
        return min((rank for name, rank in ranks.items() if path.startswith(name)), default=len(ranks))

    items.sort(key=rank_of)
    for item in items:
        if item.nodeid in QUARANTINE:
            item.add_marker(pytest.mark.nightly)


def pytest_collection_finish() -> None:
    """Freeze the permanent objects of the collection, so that the garbage collector skips them."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Run two processes more than cores, since many tests wait. More than four processes share little."""
    return min(4, (os.cpu_count() or 1) + 2)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> LoadFileScheduling:
    """Run the tests of Spark in one process, so that they share one JVM. Other files run in any process."""
    from xdist.scheduler import LoadFileScheduling  # noqa: PLC0415 - environments of other Sparks have none

    class ByFileWithOneJvm(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return "spark" if _path_in_tests(nodeid).startswith("spark/") else super()._split_scope(nodeid)

    config.option.loadscopereorder = False
    return ByFileWithOneJvm(config, log)


def _path_in_tests(nodeid: str) -> str:
    return nodeid.partition("::")[0].removeprefix("tests/")


@pytest.fixture(scope="session")
def original_environment() -> Mapping[str, str]:
    """Return the environment of the caller, for the suite that tests the caller's endpoint."""
    return dict(os.environ)


@pytest.fixture(scope="session", autouse=True)
def hermetic_environment(
    original_environment: Mapping[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[None]:
    """Replace all AWS variables before a server, client or JVM starts, and keep states of jobs out of the home."""
    with pytest.MonkeyPatch.context() as patch:
        for name in original_environment:
            if name.startswith("AWS_"):
                patch.delenv(name)
        for name, value in FAKE_ENVIRONMENT.items():
            patch.setenv(name, value)
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield


@pytest.fixture(scope="session", autouse=True)
def interruptible() -> None:
    """Make children interruptible by Ctrl-C even if this run is in the background, with SIGINT ignored."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the number and the reasons of skipped tests."""
    reasons = _skip_reasons(terminalreporter)
    for reason, count in reasons.most_common():
        terminalreporter.write_line(f"skipped {count}: {reason}")


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail a run in CI that skipped required tests, even if its failed tests pass when rerun alone."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None or os.environ.get("CI") != "true":
        return
    unexpected = [reason for reason in _skip_reasons(reporter) if not re.search("|".join(EXPECTED_SKIPS), reason)]
    if unexpected and session.exitstatus in {pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED}:
        reporter.write_line(f"skipped unexpectedly: {unexpected}")
        session.exitstatus = SKIPPED_UNEXPECTEDLY


def _skip_reasons(reporter: pytest.TerminalReporter) -> Counter[str]:
    skipped = (report.longrepr for report in reporter.stats.get("skipped", []))
    return Counter(
        str(reason[2] if isinstance(reason, tuple) else reason).removeprefix("Skipped: ") for reason in skipped
    )
