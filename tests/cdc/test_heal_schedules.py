"""Heals killed at any step while the log grows, in schedules drawn from a seed: the log results in the table."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ddbio.cdc.batches import ChangeLog, ShardRows
from ddbio.cdc.gaps import captures_in, find_gaps
from ddbio.cdc.heal import heal_gap
from ddbio.cdc.lineages import TableStream
from ddbio.cdc.log_jobs import BatchRecords
from ddbio.cdc.log_order import in_order, last_of_each
from ddbio.cdc.options import CaptureHealOptions
from ddbio.cdc.shards import Lineage
from ddbio.items.schema.arrow import normalize_schema
from ddbio.storage.job_state import JobState
from ddbio.storage.local_store import LocalStore
from ddbio.testing.export import Change, ExportWriter

# The first window of an ExportWriter.
BEGAN = datetime(2026, 11, 1, tzinfo=UTC).timestamp()
ITEMS = normalize_schema(pa.schema([("pk", pa.string()), ("n", pa.int64())]))


class KilledError(BaseException):
    """The process is killed here."""


class KillingStore(LocalStore):
    """Folder that may kill the process before or after each change."""

    random, kill = Random(0), 0.0

    def put(self, path, data):
        """Write an object."""
        self._step()
        super().put(path, data)
        self._step()

    def put_if_absent(self, path, data):
        """Write an object if it does not exist."""
        self._step()
        actual = super().put_if_absent(path, data)
        self._step()
        return actual

    def _step(self):
        if self.random.random() < self.kill:
            raise KilledError


class World:
    """A table, its log with a gap, and an export of the hour of the gap."""

    def __init__(self, seed, folder):
        self.random, self.folder = Random(seed), folder
        self.table, self.writes, self.at, self.sequence = {}, [], BEGAN + 300, 10**20
        self.store = KillingStore(str(folder / "log"))
        state = JobState(self.store, "job", "capture")
        stream = TableStream("tab", "", "arn:aws:dynamodb:us-east-1:0:table/tab/stream/1", "")
        state.begin({"stream": stream.arn, "started_at": BEGAN})
        self.log, self.lineage = ChangeLog(BatchRecords(state), stream, ("pk",), lambda _: ITEMS), Lineage("stream")
        self.log.declare(ITEMS)
        self.position = "TRIM_HORIZON"
        while not self.writes:
            self.write()
        self.append()
        self.write()
        self.lose()
        self.at += 400
        self.write()
        self.append([f"shard behind {self.position}"])
        self.write()
        self.export = self.exported()

    def write(self):
        """Write some items."""
        for _ in range(self.random.randint(1, 10)):
            self.at += self.random.random() * 20
            key, new = str(self.random.randrange(6)), self.random.choice([None, 1, 2])
            old = self.table.get(key)
            if old == new:
                continue
            self.sequence += 10
            self.writes.append((self.at, self.sequence, key, old, new))
            self.table.pop(key) if new is None else self.table.update({key: new})

    def lose(self):
        """Trim the uncaptured changes."""
        self.pending = len(self.writes)

    pending = 0

    def append(self, gaps=()):
        """Capture the new changes."""
        records = [
            {"eventName": "REMOVE" if new is None else "INSERT" if old is None else "MODIFY",
             "dynamodb": {"ApproximateCreationDateTime": int(at), "Keys": {"pk": {"S": key}},
                          "SequenceNumber": str(sequence), **images(key, old, new)}}
            for at, sequence, key, old, new in self.writes[self.pending :]
        ]  # fmt: skip
        self.pending = len(self.writes)
        rows = self.log.decode(json.dumps({"Records": records}, separators=(",", ":")).encode()) if records else None
        parts = {}
        if rows is not None:
            parts = {"shard": ShardRows(self.position, rows.to, [rows])}
            self.position = rows.to
        self.lineage.positions["shard"] = self.position
        self.log.append(parts, self.lineage, gaps, at=self.at)

    def exported(self):
        """Write the export of the hour."""
        net = {}
        for at, _, key, old, new in self.writes:
            net[key] = (at, net[key][1] if key in net else old, new)
        item = lambda key, n: None if n is None else {"pk": {"S": key}, "n": {"N": str(n)}}  # noqa: E731
        changes = [
            Change(int(at * 1e6), {"pk": {"S": key}}, new=item(key, new), old=item(key, old))
            for key, (at, old, new) in net.items()
            if not (old is None and new is None)
        ]
        return ExportWriter(Path(self.folder), files=2).incremental(changes)

    def heal(self, kill):
        """Heal the log."""
        states = captures_in(self.store)
        log_gaps = find_gaps(states)
        options = CaptureHealOptions(table="tab", dest=str(self.folder), from_export=(str(self.export),))
        self.store.random, self.store.kill = self.random, kill
        try:
            for gap in log_gaps.gaps:
                heal_gap(options, self.store, gap, log_gaps.written_at, self.look)
        finally:
            self.store.kill = 0.0
            # This process survives: no other process would take over its claim.
            for claim in (self.folder / "log" / "_ddbio").glob("*.claim.json"):
                claim.unlink()

    def look(self, options, keys, at, decoder):
        """Return the current items."""
        del options
        lines = [
            {"Metadata": {"WriteTimestampMicros": {"N": str(int(at.timestamp() * 1e6))}}, "Keys": {"pk": {"S": key}},
             **images(key, None, self.table.get(key))}
            for key in keys.column("pk").to_pylist()
        ]  # fmt: skip
        return pa.Table.from_batches([decoder.decode_lines("\n".join(map(json.dumps, lines)).encode()).rows])

    def rows(self):
        """Return the rows of the log."""
        files = sorted((self.folder / "log").glob("year=*/**/*.parquet"))
        return pa.concat_tables([pq.ParquetFile(file).read() for file in files], promote_options="permissive")


def images(key, old, new):
    """Return the images of a change."""
    shown = {"OldImage": old, "NewImage": new}
    return {name: {"pk": {"S": key}, "n": {"N": str(n)}} for name, n in shown.items() if n is not None}


@pytest.mark.timeout(3600)
def test_a_killed_heal_is_resumed(seeds, tmp_path):
    """With kills at every step while the log grows, nothing is repeated, and the log results in the table."""
    for seed in seeds(15, 200):
        folder = tmp_path / str(seed)
        folder.mkdir()
        world = World(seed, folder)
        for _ in range(4):
            try:
                world.heal(0.08)
            except KilledError:
                world.write()
                world.append()
        world.heal(0.0)
        world.heal(0.0)
        world.append()
        rows = world.rows()
        assert find_gaps(captures_in(world.store)).gaps == [], seed
        last = last_of_each(in_order(rows), ["pk"]).to_pylist()
        assert {row["pk"]: row["n"] for row in last if row["_op"] != "REMOVE"} == world.table, seed
        assert len({(row["pk"], row["_sequence"]) for row in rows.to_pylist()}) == rows.num_rows, seed
