"""Folded records of batches: they are read by old readers and late writers, and a process is killed at any step."""

from __future__ import annotations

import contextlib
import json

import ddbio
from ddbio.cdc.log_jobs import COMMITTED, BatchRecords, batch_name
from ddbio.cdc.log_reader import CapturedLog
from ddbio.cdc.replay import DoneObjects
from ddbio.storage.job_state import JobState
from ddbio.storage.local_store import LocalStore
from ddbio.storage.staged import StoredObject
from tests.cdc.virtual_stream import KilledError, MemoryStore

FOLD = 3


class Steps:
    """Objects in memory that kill the process at one step."""

    def __init__(self, left=None):
        self.objects, self.left = {}, left

    def step(self):
        """Count a step."""
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                raise KilledError


def state_of(world):
    """Return the state of a capture in memory."""
    return JobState(MemoryStore(world), "job", "capture")


def record(number):
    """Return the record of a batch."""
    files = [{"path": f"year=2026/job-{number:012}.parquet", "rows": number}]
    positions = {"shard": str(number)}
    return {"batch": number, "shards": {}, "positions": positions, "files": files, "gaps": [], "at": 1.0 + number}


def write(records, first, last):
    """Write batches like a capture."""
    for number in range(first, last + 1):
        assert records.add(number, record(number))
        records.commit(number)


def test_old_records_become_one_object():
    """Each record is read by its number, in ranges and in order, though only the last ones are separate objects."""
    state = state_of(Steps())
    write(BatchRecords(state, FOLD), 1, 7)
    assert sorted(state.listed()) == [batch_name(7), COMMITTED, f"folded-{batch_name(3)}", f"folded-{batch_name(6)}"]
    records = BatchRecords(state, FOLD)
    assert [records.read(number) for number in range(1, 9)] == [*map(record, range(1, 8)), None]
    assert records.between(2, 8) == [*map(record, range(2, 8)), None]
    assert records.between(5, 4) == []
    assert list(records.all()) == [*map(record, range(1, 8))]
    assert (records.last(), records.committed, records.written_at(record(2))) == (record(7), 7, 3.0)
    state.put(COMMITTED, {"batch": 2})
    assert BatchRecords(state, FOLD).last() == record(7)


def test_who_was_suspended_does_not_write_a_batch_again():
    """A record that was folded and deleted cannot be written again. The remains of a killed process are ignored."""
    state = state_of(Steps())
    suspended = BatchRecords(state, FOLD)
    write(suspended, 1, 1)
    write(BatchRecords(state, FOLD), 2, 7)
    other = {**record(2), "files": []}
    assert not suspended.add(2, other)
    assert state.put_once(batch_name(2), other)
    records = BatchRecords(state, FOLD)
    assert records.read(2) == records.between(2, 2)[0] == record(2)
    assert list(records.all()) == [*map(record, range(1, 8))]
    write(records, 8, 9)
    assert batch_name(2) not in state.listed()


def test_a_process_may_be_killed_at_any_step():
    """After a kill at any step, the next process continues, and each record exists once."""
    for left in range(60):
        world = Steps(left)
        with contextlib.suppress(KilledError):
            write(BatchRecords(state_of(world), FOLD), 1, 7)
        world.left = None
        state = state_of(world)
        records = BatchRecords(state, FOLD)
        last = records.last()
        number = 0 if last is None else last["batch"]
        assert list(records.all()) == [*map(record, range(1, number + 1))]
        if number:
            records.commit(number)
        write(records, number + 1, 9)
        assert list(BatchRecords(state, FOLD).all()) == [*map(record, range(1, 10))]
        assert len(state.listed()) == 4


def test_a_missing_record_is_not_folded_away():
    """A record that another program has deleted stays missing, and its neighbours are not changed."""
    state = state_of(Steps())
    write(BatchRecords(state, FOLD), 1, 2)
    state.delete([batch_name(1)])
    write(BatchRecords(state, FOLD), 3, 6)
    records = BatchRecords(state, FOLD)
    assert records.between(1, 6) == [None, *map(record, range(2, 7))]
    assert list(records.all()) == [*map(record, range(2, 7))]


def test_readers_of_a_long_log_know_folded_batches(tmp_path):
    """Status, verification and the readers of a log find 401 batches in few objects, as in many."""
    state = JobState(LocalStore(tmp_path), "job", "capture")
    state.begin({"stream": "arn:aws:dynamodb:us-east-1:000000000000:table/tab/stream/1", "started_at": 1.0})
    # The records of an older version, which did not fold and did not record times.
    state.put(COMMITTED, {"batch": 399})
    for number in range(1, 400):
        old = {name: value for name, value in record(number).items() if name != "at"}
        (tmp_path / f"_ddbio/job.capture/{batch_name(number)}.json").write_text(json.dumps(old))
    write(BatchRecords(state), 400, 401)
    assert len(state.listed()) == 4
    (status,) = ddbio.capture_status(tmp_path, offline=True)
    assert (status.batches, status.unfinished, status.positions) == (401, 0, {"shard": "401"})
    report = ddbio.verify_capture(tmp_path, images=False)
    assert (report.batches, len(report.missing), report.jumps) == (401, 401, ())
    log = CapturedLog(state.store, [state])
    assert [file.rows for file in log.files({"job": 198}, log.written())] == [*range(199, 402)]
    assert log.limit({"job": 398}, log.written(), 800) == {"job": 400}


def test_objects_that_are_done_become_one_record():
    """A replay knows each object that it has processed, though only the last ones have separate records."""
    for left in range(40):
        world = Steps(left)
        entries = [StoredObject(f"part-{number}", 1, "v") for number in range(8)]
        noted = []
        with contextlib.suppress(KilledError):
            done = DoneObjects(state_of(world), FOLD)
            for entry in entries:
                done.add(entry)
                noted.append(entry)
        world.left = None
        again = DoneObjects(state_of(world), FOLD)
        assert all(value in again for value in noted)
        for entry in entries:
            if entry not in again:
                again.add(entry)
        last = DoneObjects(state_of(world), FOLD)
        assert all(entry in last for entry in entries)
        assert StoredObject("part-0", 1, "w") not in last
        assert len(state_of(world).listed()) <= 5
