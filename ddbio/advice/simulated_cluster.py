"""Run tasks with lanes on executors in virtual time, over the real budget and pacer and a model of the table.

Each simulated request stands for ``scale`` of them: all times are multiplied by ``scale`` at the end.
"""

from __future__ import annotations

import heapq
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ddbio.advice.simulation import SimulatedTable
from ddbio.budget import LocalBudget
from ddbio.budget.pacing import full_jitter_seconds
from ddbio.budget.reservation import Grant
from ddbio.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ddbio.budget.pacing import Ramp
    from ddbio.jobs.table_limits import TableLimits

# Time has to pass, however little is left of rounding.
_LEAST_SECONDS = 1e-6
_MOST_ADMITTED = 0.5
# What is left of rounding is no request.
_NOTHING = 1e-9


@dataclass(frozen=True, slots=True)
class Piece:
    """Describe what one lane does in order: a segment of a scan, or its share of a task's rows.

    Attributes
    ----------
    requests
        How many requests of ``units`` it takes; the last one may be smaller.
    first, last
        Its partitions, as places between 0 and the number of them: it goes from the first to the last. Both None: each
        request goes to partitions by chance.
    spread
        Over how many partitions one request is spread by chance; each of its parts is admitted by itself.
    row_units
        What is admitted as a whole; default is a part.
    """

    requests: float
    units: float
    first: float | None = None
    last: float | None = None
    spread: int = 1
    row_units: float | None = None


@dataclass(frozen=True, slots=True)
class SimulatedTask:
    """Hold the pieces of a task, and how many of them are done at the same time."""

    pieces: tuple[Piece, ...]
    lanes: int


@dataclass(frozen=True)
class Cluster:
    """Describe what a job runs on, and how its requests are paced.

    Attributes
    ----------
    slots
        Tasks that run at the same time.
    rate
        Units a second of the job.
    static_shares
        Give each slot a fixed share of the rate, instead of leases.
    request_seconds, spread
        Median time of a request of ``full_units``, and how much times vary; smaller requests take less.
    changes
        Times at which slots come (more than 0) or are lost.
    resumes
        Whether a task that was lost goes on where it was; else it begins again.
    """

    slots: int
    rate: float
    static_shares: bool
    request_seconds: float
    full_units: float
    spread: float
    changes: tuple[tuple[float, int], ...] = ()
    resumes: bool = False
    ramp: Ramp | None = None


@dataclass(slots=True, eq=False)
class _Run:
    """One execution of a task on a slot."""

    task: int
    budget: LocalBudget
    pieces: list[tuple[Piece, float]]
    lanes: list[_Lane] = field(default_factory=list)
    done_units: float = 0.0
    is_dead: bool = False


@dataclass(slots=True, eq=False)
class _Lane:
    run: _Run
    piece: Piece | None = None
    left: float = 0.0
    units: float = 0.0
    position: float = 0.0
    attempt: int = 0
    admitted: float = 0.0


class _Event(NamedTuple):
    at: float
    order: int
    lane: _Lane | None
    is_answer: bool


@dataclass
class Outcome:
    """Hold what a simulated job did, in the clock of its cluster.

    Attributes
    ----------
    consumed
        Times and units of all requests.
    running
        Times, and the tasks that ran from then on.
    throttled
        Throttled requests, by the limit.
    repeated_units
        Units of tasks that had to begin again.
    """

    finished_at: float = 0.0
    consumed: list[tuple[float, float]] = field(default_factory=list)
    running: list[tuple[float, int]] = field(default_factory=list)
    throttled: Counter[str] = field(default_factory=Counter)
    repeated_units: float = 0.0
    lost_tasks: int = 0
    peak_ratio: float | None = None
    splits: int = 0


class SimulatedCluster:
    """Execute tasks until all are done.

    Parameters
    ----------
    scale
        How many requests each simulated one stands for.
    """

    def __init__(self, cluster: Cluster, limits: TableLimits, scale: int, rng: np.random.Generator) -> None:
        self._cluster, self._rng = cluster, rng
        self._table, self._partitions = SimulatedTable(limits, scale), limits.partitions
        self._now, self._order, self._scale = 0.0, 0, scale
        self._events: list[_Event] = []
        self._times: list[float] = []
        self._draws: list[float] = []
        self._shared = None if cluster.static_shares else self._budget(cluster.rate)
        self._slots: list[LocalBudget] = []
        self._tasks: list[SimulatedTask] = []
        self._waiting: list[tuple[int, list[tuple[Piece, float]]]] = []
        self._running: list[_Run] = []
        self.outcome = Outcome()

    def run(self, tasks: Sequence[SimulatedTask]) -> Outcome:
        """Run all tasks in their order, as slots become free.

        Raises
        ------
        OptionError
            If all executors are lost before the end.
        """
        self._tasks = list(tasks)
        self._waiting = [
            (number, [(piece, piece.requests) for piece in task.pieces]) for number, task in enumerate(tasks)
        ]
        self._waiting.reverse()
        for at, _ in self._cluster.changes:
            self._at(at / self._scale, None)
        changes = list(self._cluster.changes)
        self._add_slots(self._cluster.slots)
        while self._events:
            self._now, _, lane, is_answer = heapq.heappop(self._events)
            if lane is None:
                _, change = changes.pop(0)
                if self._running or self._waiting:
                    self._change_slots(change)
            elif not lane.run.is_dead:
                if is_answer:
                    self._receive(lane)
                else:
                    self._try_to_send(lane)
        if self._waiting:
            raise OptionError(f"all executors are lost after {self._now * self._scale:,.0f} s: let others join")
        self.outcome.splits = self._table.splits
        if self._shared is not None:
            self.outcome.peak_ratio = self._shared.usage().peak_10s_ratio
        return self.outcome

    def _budget(self, rate: float) -> LocalBudget:
        return LocalBudget(rate, ramp=self._cluster.ramp, clock=lambda: self._now)

    def _change_slots(self, change: int) -> None:
        if change > 0:
            self._add_slots(change)
            return
        for _ in range(min(-change, len(self._running) + len(self._slots))):
            place = int(self._rng.integers(len(self._running) + len(self._slots)))
            if place < len(self._running):
                self._lose(self._running[place])
            else:
                self._slots.pop()
        self._start_tasks()

    def _add_slots(self, count: int) -> None:
        for _ in range(count):
            share = self._cluster.rate / self._cluster.slots
            self._slots.append(self._shared if self._shared is not None else self._budget(share))
        self._slots.reverse()
        self._start_tasks()

    def _lose(self, run: _Run) -> None:
        """End a task with its slot; another slot does it again, or what it has left."""
        run.is_dead = True
        self._running.remove(run)
        self.outcome.lost_tasks += 1
        if self._cluster.resumes:
            begun = [(lane.piece, lane.left) for lane in run.lanes if lane.piece is not None]
            self._waiting.append((run.task, [*begun, *reversed(run.pieces)]))
        else:
            self.outcome.repeated_units += run.done_units
            self._waiting.append((run.task, [(piece, piece.requests) for piece in self._tasks[run.task].pieces]))

    def _start_tasks(self) -> None:
        while self._slots and self._waiting:
            number, pieces = self._waiting.pop()
            # The lanes of a task take its pieces in their order, as they become free.
            run = _Run(number, self._slots.pop(), list(reversed(pieces)))
            self._running.append(run)
            run.lanes = [_Lane(run) for _ in range(min(self._tasks[number].lanes, len(pieces)))]
            for lane in list(run.lanes):
                self._begin(lane)
        self.outcome.running.append((self._now, len(self._running)))

    def _begin(self, lane: _Lane) -> None:
        """Let a lane do the next piece of its task; the last lane without one ends the task."""
        run = lane.run
        while run.pieces:
            lane.piece, lane.left = run.pieces.pop()
            if lane.left > _NOTHING:
                self._reserve(lane)
                return
        run.lanes.remove(lane)
        if not run.lanes:
            self._running.remove(run)
            self._slots.append(run.budget)
            self._start_tasks()

    def _reserve(self, lane: _Lane) -> None:
        self._enqueue(lane)
        self._try_to_send(lane)

    def _enqueue(self, lane: _Lane) -> None:
        piece = lane.piece
        assert piece is not None  # noqa: S101 - a lane reserves for its piece
        # The last request is not full.
        lane.units = piece.units * min(1.0, max(lane.left, 0.5 / piece.units))
        lane.position = lane.run.budget.enqueue(lane.units)

    def _try_to_send(self, lane: _Lane) -> None:
        budget = lane.run.budget
        wait_seconds, _ = budget.check(lane.position)
        if wait_seconds > 0:
            # Real lanes ask again each quarter of a second; settlements hardly move the queue, so once is enough here.
            self._at(self._now + max(wait_seconds, _LEAST_SECONDS), lane)
            return
        lane.admitted = self._admit(lane)
        if lane.admitted:
            seconds = self._request_time() * max(0.1, min(1.0, lane.units / self._cluster.full_units))
            self._at(self._now + seconds, lane, is_answer=True)
            return
        budget.settle(Grant(lane.units, self._now), 0.0)
        self._pause(lane)

    def _admit(self, lane: _Lane) -> float:
        """Return the share of a request that the table admits."""
        piece = lane.piece
        assert piece is not None  # noqa: S101 - a lane sends requests of its piece
        admitted, part = 0.0, lane.units / piece.spread
        throttled = None
        for number in range(piece.spread):
            place = self._place(lane, piece, number)
            taken, scope = self._table.admits(place, part, min(part, piece.row_units or part), self._now)
            admitted += taken
            throttled = scope or throttled
        if throttled is not None:
            self.outcome.throttled[throttled.value] += 1
            if not admitted:
                lane.run.budget.throttled(throttled, "simulated")
        return 1.0 if throttled is None else admitted / lane.units

    def _place(self, lane: _Lane, piece: Piece, number: int) -> float:
        """Return the place of a part of a request: by chance, each in its own part of the partitions."""
        if piece.first is None or piece.last is None:
            if not self._draws:
                self._draws = self._rng.random(10_000).tolist()
            return (number + self._draws.pop()) / piece.spread * self._partitions
        done = 1 - lane.left / piece.requests
        return min(piece.first + done * (piece.last - piece.first), self._partitions - 1e-9)

    def _receive(self, lane: _Lane) -> None:
        consumed = lane.units * lane.admitted
        lane.run.budget.settle(Grant(lane.units, self._now), consumed)
        lane.run.done_units += consumed
        self.outcome.consumed.append((self._now, consumed))
        self.outcome.finished_at = self._now
        lane.left -= lane.admitted * min(1.0, lane.left)
        if lane.left <= _NOTHING:
            lane.attempt = 0
            self._begin(lane)
        elif lane.admitted < 1:
            # As real lanes do: what came back goes out with others at once, or after a short pause if it was most.
            lane.attempt = 0
            if lane.admitted >= _MOST_ADMITTED:
                self._reserve(lane)
            else:
                self._pause(lane)
        else:
            lane.attempt = 0
            self._reserve(lane)

    def _pause(self, lane: _Lane) -> None:
        self._enqueue(lane)
        pause = full_jitter_seconds(lane.attempt, float(self._rng.random()))
        lane.attempt += 1
        self._at(self._now + pause, lane)

    def _request_time(self) -> float:
        if not self._times:
            drawn = np.exp(self._rng.normal(0.0, self._cluster.spread, 10_000))
            self._times = (self._cluster.request_seconds * drawn).tolist()
        return self._times.pop()

    def _at(self, time: float, lane: _Lane | None, *, is_answer: bool = False) -> None:
        # The order decides between events of one time: lanes are never compared.
        self._order += 1
        heapq.heappush(self._events, _Event(time, self._order, lane, is_answer))
