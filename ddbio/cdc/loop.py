"""Capture loop: read the shards of a stream in turns, and write their changes into the log.

One thread does everything. It sends requests for all shards at the same time, and decodes a reply while the next
replies arrive.
"""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ddbio.cdc.batches import ShardRows
from ddbio.cdc.lineages import lineage_number
from ddbio.cdc.log_rows import next_iterator
from ddbio.cdc.shards import END, FIRST, HORIZON, LATEST, ExpiredError, Lineage, TrimmedError, gap
from ddbio.errors import DdbioError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    import pyarrow as pa

    from ddbio.cdc.batches import ChangeLog
    from ddbio.cdc.leases import LeasedShards
    from ddbio.cdc.log_rows import LogRows
    from ddbio.cdc.shards import Shard, Start
    from ddbio.cdc.stream_kind import Reply, StreamSource

log = logging.getLogger("ddbio.capture")

_MIN_PAUSE_SECONDS, _MAX_PAUSE_SECONDS = 0.05, 1.0
# Pause between two checks of a source that pushes records.
_LOOK_PAUSE = 0.1
# Maximum error of the measured offset of the service's clock.
_OFFSET_ERROR_SECONDS = 1.0
# Empty replies are normal even if a shard has more records.
_EMPTY_REPLIES = 4
_LOOKS_AT_THE_END = 4
_SHOWN_SECONDS = 10.0
_SEEN_SECONDS = 60.0
_LOOK_SECONDS = 1.0


@dataclass(frozen=True)
class Limits:
    """Limits of a batch: it is written after this time, or when it has this number of changes or bytes."""

    flush_seconds: float = 1.0
    batch_records: int = 100_000
    batch_bytes: int = 8 * 1024 * 1024


@dataclass(frozen=True)
class Timing:
    """Time of day and waiting. A wait ends early if the capture has to stop."""

    now: Callable[[], float]
    wait: Callable[[float], object]
    is_stopped: Callable[[], bool]


@dataclass
class _Reader:
    """Reading position of one shard."""

    shard: Shard
    iterator: str
    since: float
    """All older changes were read."""
    newest: float = 0.0
    """Time of the last change that was read."""
    is_horizon: bool = False
    """Whether it started at the oldest record of the shard. Older records were never to be read."""
    pending: Reply | None = None
    asked_at: float = 0.0
    next_at: float = 0.0
    empties: int = 0


@dataclass
class CaptureLoop:
    """Loop that reads all shards and appends batches to a log.

    Attributes
    ----------
    started_at
        The time at which the capture was started first. If it started at the latest changes, older changes are left
        out.
    continues_after_gaps
        Whether the loop continues after a gap.
    is_last
        Whether the stream was turned off: it gets no further shards.
    sharing
        The shards that are captured here, if other processes capture other shards of the stream.
    lag_seconds
        The maximum age of unwritten changes when the last batch was written.
    reads, read_bytes
        The number of requests for records, and the bytes of their replies.
    """

    source: StreamSource
    log: ChangeLog
    limits: Limits
    timing: Timing
    started_at: float
    continues_after_gaps: bool = False
    is_last: bool = False
    sharing: LeasedShards | None = None
    lag_seconds: float = 0.0
    gaps: list[str] = field(default_factory=list)
    reads: int = 0
    read_bytes: int = 0
    lineage: Lineage = field(init=False)
    _readers: dict[str, _Reader] = field(default_factory=dict)
    _parts: dict[str, ShardRows] = field(default_factory=dict)
    _bytes: int = 0
    _gathered_at: float = 0.0
    _ended: bool = False
    _shards_changed: bool = False
    """Whether shards were added or ended since the last batch. This is recorded even if there were no changes."""
    _looks: int = 0
    _seen_at: float = 0.0
    _looked_at: float = 0.0
    _new_gaps: list[str] = field(default_factory=list)
    _not_before: float = 0.0

    def __post_init__(self) -> None:
        """Start without shards."""
        self.lineage = Lineage(self.source.name)
        if self.sharing is not None:
            self.lineage.may_read = self.sharing.may_read

    def _shards(self) -> list[Shard]:
        """Return all shards that are captured here."""
        return (self.sharing or self.source).shards()

    def resume(
        self,
        start: Start,
        schema: pa.Schema | None = None,
        *,
        positions: Mapping[str, str] | None = None,
        gaps: Sequence[str] = (),
        not_before: float = 0.0,
    ) -> None:
        """Resume where the last run stopped.

        Parameters
        ----------
        start
            The starting position in a stream that was never read before.
        schema
            The columns of items from now on; None keeps the stored ones.
        positions
            The last positions of an earlier lineage in the stream. The first batch starts there.
        gaps
            The gaps before the first batch of the lineage.
        not_before
            The earliest time of the next batches: the start of the stream, regardless of the clock of this machine.

        Raises
        ------
        GapError
            If changes were trimmed since the last run.
        """
        last = self.log.resume(self.source.polling, self.started_at)
        if schema is not None:
            self.log.declare(schema)
        is_new, self._not_before = lineage_number(last) != self.log.lineage, not_before
        if last is not None and not is_new:
            self.lineage.positions.update(last["positions"])
            self._check_silence()
            self._look()
            return
        self._add_gaps(gaps)
        self._note_shard_change()
        if positions is None:
            self.lineage.discover(self._shards(), start=start)
        else:
            self.lineage.positions.update(positions)
            self._look()

    def _check_silence(self) -> None:
        """Record gaps for records that have expired since the last run, if the service does not report them."""
        since = self.log.silent_since()
        if since is None or self.timing.now() - since < self.source.keeps_seconds:
            return
        for shard_id, position in list(self.lineage.positions.items()):
            if position != END:
                self._record_gap(shard_id, position)

    def _record_gap(self, shard_id: str, position: str) -> None:
        lost = gap(self.lineage.name, shard_id, position)
        if not self.continues_after_gaps:
            raise lost
        log.warning("%s", lost)
        self._add_gaps([f"{shard_id} behind {position}"])
        self.lineage.advance(shard_id, HORIZON)

    def run(self, *, available_now: bool = False) -> None:
        """Capture until ``timing`` stops it, or until the changes that existed at the start are captured.

        Raises
        ------
        GapError
            If changes were trimmed before they were read. Changes that were read before are written.
        """
        began_at = shown_at = self.timing.now()
        for reader in self._readers.values():
            # Empty replies of an earlier run are out of date.
            reader.empties, reader.next_at = 0, 0.0
        while not self.timing.is_stopped():
            try:
                self._open()
                until = began_at + self.source.clock_offset_seconds + _OFFSET_ERROR_SECONDS if available_now else None
                pause = self._round(until)
            except DdbioError:
                self.flush()
                raise
            now = self.timing.now()
            if self._is_due(now):
                self.flush()
            self._note_seen(now)
            if now - shown_at >= _SHOWN_SECONDS:
                shown_at = now
                log.info("%d records in %d files, lag %.1f s", self.log.records, self.log.files, self.lag_seconds)
            if self._is_finished() or (until is not None and self._is_caught_up(until)):
                break
            if pause > 0:
                until_flush = self._gathered_at + self.limits.flush_seconds - now if self._has_news() else pause
                self.timing.wait(max(0.0, min(pause, until_flush)))
        self.flush()

    def flush(self) -> None:
        """Write the gathered changes as a batch."""
        if self._has_news() or self._new_gaps:
            parts, self._parts = self._parts, {}
            self.log.append(parts, self.lineage, self._new_gaps, at=max(self._not_before, self.timing.now()))
            self._new_gaps, self._shards_changed = [], False
            self._bytes = 0
        open_since = [reader.since for reader in self._readers.values()]
        if open_since:
            self.lag_seconds = max(0.0, self.timing.now() - min(open_since))

    def _note_seen(self, now: float) -> None:
        """Record at intervals the time up to which everything was read.

        This is only needed if the service does not report expired records.
        """
        open_since = [reader.since for reader in self._readers.values()]
        if open_since and math.isfinite(self.source.keeps_seconds) and now - self._seen_at >= _SEEN_SECONDS:
            self._seen_at = now
            self.log.note_seen(min(open_since))

    def _open(self) -> None:
        """Open the shards that can be read now. Look for new shards if one has ended."""
        # Shards of other leases may have ended, and their children belong to this one.
        grows = self.sharing is not None and self.timing.now() - self._looked_at >= _LOOK_SECONDS
        if self._ended or grows:
            self._ended = False
            self._look()
        for shard in self.lineage.readable():
            if shard.shard_id not in self._readers:
                self._open_shard(shard)

    def _look(self) -> None:
        self._looked_at = self.timing.now()
        listed = self._shards()
        if self.continues_after_gaps:
            self._add_gaps(f"{shard_id} is gone" for shard_id in self.lineage.drop_expired_shards(listed))
        self.lineage.discover(listed)

    def _open_shard(self, shard: Shard) -> None:
        position = self.lineage.positions[shard.shard_id]
        is_horizon = position == HORIZON
        try:
            # With the position FIRST, a later run can detect that a part of the shard was trimmed.
            iterator = self.source.iterator(shard, FIRST if is_horizon else position)
            if is_horizon:
                self.lineage.advance(shard.shard_id, FIRST)
        except TrimmedError:
            if not is_horizon:
                self._flush_and_record_gap(shard, position)
            iterator = self.source.iterator(shard, HORIZON)
        if self.sharing is not None:
            # A change may arrive again after a reshard, when another capture has already read it.
            for records, shards in self.sharing.ancestors(shard.shard_id):
                self.log.remember(records, shards)
        now = self.timing.now()
        self._readers[shard.shard_id] = _Reader(shard, iterator, now, is_horizon=is_horizon)

    def _flush_and_record_gap(self, shard: Shard, position: str) -> None:
        if self.continues_after_gaps and self._has_news():
            # Gaps that are detected together are recorded together.
            self.flush()
        self._record_gap(shard.shard_id, position)

    def _add_gaps(self, lost: Iterable[str]) -> None:
        gaps = list(lost)
        self.gaps += gaps
        self._new_gaps += gaps

    def _round(self, until: float | None) -> float:
        """Send a request for every shard that is due, and process the replies. Return the length of the pause."""
        now = self.timing.now()
        for reader in self._readers.values():
            if reader.pending is None and reader.next_at <= now:
                self._ask(reader)
        for reader in [reader for reader in self._readers.values() if reader.pending is not None]:
            self._take(reader, until)
        waiting = [reader.next_at for reader in self._readers.values() if reader.pending is None]
        if any(reader.pending is not None for reader in self._readers.values()):
            return 0.0
        if not waiting:
            return 0.0 if self.is_last and self.lineage.is_finished else _MAX_PAUSE_SECONDS
        return max(0.0, min(waiting) - self.timing.now())

    def _ask(self, reader: _Reader) -> None:
        self.reads += 1
        reader.asked_at = self.timing.now()
        reader.pending = self.source.begin(reader.iterator)

    def _take(self, reader: _Reader, until: float | None) -> None:
        shard, pending = reader.shard, reader.pending
        reader.pending = None
        position = self.lineage.positions[shard.shard_id]
        try:
            body = b"" if pending is None else pending.result()
        except (ExpiredError, TrimmedError) as error:
            self._renew(reader, position, is_trimmed=isinstance(error, TrimmedError))
            return
        if body is None:
            reader.next_at = self.timing.now() + _LOOK_PAUSE
            return
        self.read_bytes += len(body)
        following = next_iterator(body)
        if following is not None:
            reader.iterator = following
        rows = self.log.decode(body)
        if rows is not None and position == LATEST:
            rows = rows.since(self.started_at + self.source.clock_offset_seconds)
        earliest = reader.asked_at + self.source.pause_after(len(body))
        if rows is None:
            reader.empties, reader.since = reader.empties + 1, reader.asked_at
            longest = _LOOK_PAUSE if self.source.pushes else _MAX_PAUSE_SECONDS
            pause = min(longest, _MIN_PAUSE_SECONDS * 2**reader.empties)
            reader.next_at = max(self.timing.now() + pause, earliest)
        else:
            reader.empties, reader.next_at = 0, earliest
            rows = self._gather(shard.shard_id, position, rows)
        if rows is not None:
            reader.since = reader.newest = rows.last_time
            # Large records of other producers are not part of the batch.
            self._bytes += len(body) if rows.texts is None else rows.texts.nbytes
        if following is None:
            self.lineage.advance(shard.shard_id, END)
            del self._readers[shard.shard_id]
            self._ended, self._looks = True, 0
            self._note_shard_change()
        elif rows is not None and self._reads_ahead(rows, until) and earliest <= self.timing.now():
            # The next reply arrives while others are decoded.
            self._ask(reader)

    def _renew(self, reader: _Reader, position: str, *, is_trimmed: bool) -> None:
        """Replace an iterator that is not valid any more."""
        if is_trimmed:
            if not reader.is_horizon or position not in {HORIZON, FIRST}:
                self._flush_and_record_gap(reader.shard, position)
            self.lineage.advance(reader.shard.shard_id, HORIZON)
            position = HORIZON
        reader.iterator = self.source.iterator(reader.shard, position)

    def _reads_ahead(self, rows: LogRows, until: float | None) -> bool:
        return not self._is_full() and (until is None or rows.last_time <= until)

    def _gather(self, shard_id: str, position: str, reply: LogRows) -> LogRows | None:
        """Add the new changes of a reply to the batch, and return them. Returns None if there are none."""
        rows, dropped = self.log.fresh(reply)
        if position == LATEST and not rows.rows.num_rows:
            # Changes from before the start of the capture. Later ones follow.
            return None
        self.lineage.advance(shard_id, rows.to)
        part = self._parts.get(shard_id)
        if rows.rows.num_rows:
            if not self._has_news():
                self._gathered_at = self.timing.now()
            part = self._parts.setdefault(shard_id, ShardRows(position, position))
            part.rows.append(rows)
        if part is not None:
            part.to = rows.to
            part.dropped += dropped
        return rows if rows.rows.num_rows else None

    def _note_shard_change(self) -> None:
        if not self._has_news():
            self._gathered_at = self.timing.now()
        self._shards_changed = True

    def _has_news(self) -> bool:
        """Return whether there is something to write in a batch."""
        return self._shards_changed or bool(self._parts)

    def _is_full(self) -> bool:
        records = sum(part.count for part in self._parts.values())
        return self._bytes >= self.limits.batch_bytes or records >= self.limits.batch_records

    def _is_due(self, now: float) -> bool:
        return self._is_full() or (self._has_news() and now - self._gathered_at >= self.limits.flush_seconds)

    @property
    def has_ended(self) -> bool:
        """Whether every shard of the stream was read to its end, and no shard followed."""
        return not self._readers and self.lineage.is_finished

    def _is_finished(self) -> bool:
        """Return whether every shard has ended and no new one appears: the stream was turned off."""
        if self._readers or not self.lineage.is_finished or (self.sharing is not None and self.sharing.is_open):
            return False
        self._looks += 1
        self._ended = True
        return self._looks > (1 if self.is_last else _LOOKS_AT_THE_END)

    def _is_caught_up(self, until: float) -> bool:
        """Return whether everything up to a time was read, as far as the replies show it."""
        if self.sharing is None and not self._readers:
            return False
        if self._ended or self.lineage.is_waiting:
            return False
        return all(reader.empties >= _EMPTY_REPLIES or reader.newest > until for reader in self._readers.values())
