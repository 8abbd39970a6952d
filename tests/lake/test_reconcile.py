"""Logs that lack changes without a recorded gap: an export reveals them, and they are counted and repaired."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import ddbio
from ddbio.aws.control_plane import RecoveryDescription
from ddbio.cdc.log_order import in_order, last_of_each
from ddbio.cli.main import cli
from ddbio.errors import OptionError
from ddbio.lake import reconcile as reconciling
from ddbio.lake.options import ReconcileOptions
from ddbio.lake.reconcile import Reconciler, closed_windows
from ddbio.storage.job_state import JobState
from ddbio.storage.local_store import LocalStore
from tests.cdc.test_heal_schedules import BEGAN, KilledError, World
from tests.lake.test_bootstrap import client, delete, fake, put, table

__all__ = ["client", "fake", "table"]


class LossyWorld(World):
    """Log that lacks some changes of the window, without a note about them."""

    def append(self, gaps=()):
        """Capture the pending changes, except for some of them."""
        del gaps
        all_writes = self.writes
        self.writes = [
            write
            for number, write in enumerate(all_writes)
            if number < self.pending or number == len(all_writes) - 1 or self.random.random() > 0.3
        ]
        super().append()
        self.writes = all_writes
        self.pending = len(all_writes)

    def lose(self):
        """Lose no other changes."""

    def state(self):
        """Return the state that the log leads to."""
        last = last_of_each(in_order(self.rows()), ["pk"]).to_pylist()
        return {row["pk"]: row["n"] for row in last if row["_op"] != "REMOVE"}

    def reconcile(self, kill):
        """Reconcile the hour of the export."""
        since, until = (datetime.fromtimestamp(BEGAN + seconds, UTC) for seconds in (360, 3600))
        values = {"table": "tab", "dest": str(self.folder / "log"), "from_export": (str(self.export),)}
        options = ReconcileOptions(since=since, until=until, **values)
        self.store.random, self.store.kill = self.random, kill
        try:
            job = Reconciler(options, self.store, self.look)
            return [job.reconcile(window) for window in closed_windows(options, self.store)]
        finally:
            self.store.kill = 0.0
            for claim in (self.folder / "log" / "_ddbio").glob("*.claim.json"):
                claim.unlink()


@pytest.mark.timeout(3600)
def test_what_was_lost_is_repaired(seeds, tmp_path):
    """After its window is reconciled, a log with any missing changes leads to the table, also after kills."""
    for seed in seeds(8, 120):
        folder = tmp_path / str(seed)
        folder.mkdir()
        world = LossyWorld(seed, folder)
        wrong = world.state() != world.table
        for _ in range(3):
            try:
                world.reconcile(0.08)
            except KilledError:
                continue
        world.reconcile(0.0)
        assert world.reconcile(0.0) == [], seed
        assert world.state() == world.table, seed
        healed = any("_heal_w" in path.name for path in (folder / "log").glob("year=*/**/*.parquet"))
        assert healed or not wrong, seed


def test_a_window_is_exported_compared_and_applied(fake, client, table, s3_url, tmp_path):
    """The plan has a price, the report the measured loss, the lake table is correct again, and the window is done."""
    log, lake = tmp_path / "log", tmp_path / "lake"
    options = {"endpoint_url": fake.endpoint_url, "s3_endpoint_url": s3_url, "region": "us-east-1"}
    ddbio.bootstrap(table, lake, log=str(log), **options)
    put(client, table, "a", 2)
    delete(client, table, "b")
    put(client, table, "new", 1)
    ddbio.capture(table, log, available_now=True, endpoint_url=fake.endpoint_url)
    newest = max(log.glob("year=*/**/*.parquet"), key=lambda path: path.name)
    rows = pq.ParquetFile(newest).read()
    assert rows.num_rows == 3
    pq.write_table(rows.slice(0, 0), newest)
    ddbio.apply(log, lake)
    assert not ddbio.verify(table, lake, endpoint_url=fake.endpoint_url).equal
    began = rows["_event_time"].to_pylist()[0] - timedelta(seconds=30)
    fake.pass_time(1200)
    window = {"since": began, "until": began + timedelta(seconds=900)}
    shown = [f"--{name}={value.isoformat()}" for name, value in window.items()]
    command = ["reconcile", table, str(log), "--dry-run", "--json", *shown, "--endpoint-url", fake.endpoint_url]
    plan = json.loads(CliRunner().invoke(cli, [*command, "--region", "us-east-1"]).stdout)
    assert (len(plan["windows"]), plan["exports"], plan["usd"] > 0) == (1, 1, True)
    asked = {"export_to": "s3://exports/windows", "poll_seconds": 0.2, **window, **options}
    report = ddbio.reconcile(table, log, target=str(lake), **asked)
    assert (len(report.windows), report.lost) == (1, 3), report
    assert (report.applied.inserted, report.applied.updated, report.applied.deleted) == (1, 1, 1)
    assert ddbio.verify(table, lake, endpoint_url=fake.endpoint_url).equal
    again = ddbio.reconcile(table, log, **asked)
    assert (again.windows, again.lost) == ((), 0)


@pytest.mark.parametrize(
    ("done", "since", "earliest", "first"),
    [
        (None, None, -400, 0),
        (None, None, -361, 0),
        (None, None, -360, 1),
        (None, None, 0, 361),
        (None, None, 3600, 3961),
        (None, None, None, 0),
        (7200, None, 0, 7200),
        (7200, None, 7000, 7361),
        (None, 3600, 0, 3600),
        (None, 3600, 3600, 3961),
    ],
)
def test_the_first_window_starts_after_the_start_of_recovery(done, since, earliest, first, monkeypatch, tmp_path):
    """The first window starts when exports are possible; a later one is refused with the earliest start."""

    def at(seconds):
        return None if seconds is None else datetime.fromtimestamp(BEGAN + seconds, UTC)

    store = LocalStore(tmp_path)
    JobState(store, "capture_1", "capture").begin({"stream": "arn:stream", "started_at": BEGAN})
    if done is not None:
        window = {"start": at(0).isoformat(), "end": at(done).isoformat(), "done": True}
        JobState(store, "capture_1", "reconcile").put(f"window-{int(BEGAN):012}", window)
    described = RecoveryDescription(earliest is not None, at(earliest), None)
    monkeypatch.setattr(reconciling, "describe_recovery", lambda *_: described)
    options = ReconcileOptions(table="tab", dest=str(tmp_path), since=at(since), until=at(86_400))
    if at(first) not in {at(since), at(done)} and (since or done):
        with pytest.raises(OptionError, match=re.escape(f"since={at(first).isoformat()}")):
            closed_windows(options, store)
        options = replace(options, since=at(first))
    assert closed_windows(options, store)[0].start == at(first)
