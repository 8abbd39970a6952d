"""Keep the records of a capture's batches: each is written once, and those of two hundred batches become one object.

Records that are folded are deleted. Whoever was suspended and writes one of them anew finds out by the object that has
them, before it writes anything else.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from typing import TypeAlias

    from ddbio.storage.job_state import JobState

    Record: TypeAlias = "dict[str, Any] | None"
    ReadAll: TypeAlias = Callable[[Callable[[int], Record], Iterable[int]], Iterable[Record]]

COMMITTED = "committed"
"""The record that has the number of the last batch whose files are written."""
FOLD_BATCHES = 200
# Of a log whose records were never folded, so many folds are made after a batch: the next ones go on.
_FOLDS_AT_ONCE = 5


@dataclass
class BatchRecords:
    """Read and write the records of one capture's batches; threads may read.

    Attributes
    ----------
    state
        The state of the capture.
    fold_batches
        So many batches become one object; the same for all who read and write a log.
    """

    state: JobState
    fold_batches: int = FOLD_BATCHES
    _own: dict[int, dict[str, Any]] = field(default_factory=dict)
    """Records that were written here and are not folded yet."""
    _fold: tuple[int, dict[int, dict[str, Any]]] = (0, {})
    """The last fold that was read."""

    @property
    def committed(self) -> int:
        """The number of the last batch whose files are written; 0 if there is none."""
        found: int = (self.state.read(COMMITTED) or {"batch": 0})["batch"]
        return found

    def commit(self, number: int) -> None:
        """Note that the files of a batch are written, and fold records if it is time to."""
        self.state.put(COMMITTED, {"batch": number})
        if number % self.fold_batches == 0:
            self.fold(number)

    def read(self, number: int) -> dict[str, Any] | None:
        """Return the record of a batch, or None if there is none."""
        if number in (known := self._fold[1]):
            return known[number]
        record = self.state.read(batch_name(number))
        # A record is folded before it is deleted, and what has its name after that is nobody's.
        folded = self._folded(self._end_of(number))
        return folded.get(number) if folded else record

    def between(self, first: int, last: int, read_all: ReadAll = map) -> list[dict[str, Any] | None]:
        """Return the records of batches from one to another; None stands for one that is not there.

        Parameters
        ----------
        read_all
            Applies a function to many numbers, as ``map`` does, perhaps by threads.
        """
        found = list[dict[str, Any] | None]()
        if first > last:
            return found
        for end in range(self._end_of(first), self._end_of(last) + 1, self.fold_batches):
            numbers = range(max(first, end - self.fold_batches + 1), min(last, end) + 1)
            if not self._folded(end):
                records = list(read_all(lambda number: self.state.read(batch_name(number)), numbers))
                if not self._folded(end):
                    found += records
                    continue
            found += [self._folded(end).get(number) for number in numbers]
        return found

    def last(self) -> dict[str, Any] | None:
        """Return the record of the last batch, or None if there is no batch."""
        number = self.committed
        found = self.read(number) if number else None
        # The note of what is committed may be older than the last batch.
        while (following := self.read(number + 1)) is not None:
            number, found = number + 1, following
        return found

    def written_at(self, record: Mapping[str, Any]) -> float:
        """Return when a record was written by the clock of the store, or the time that it notes if it is folded."""
        return self.state.listed(batch_name(record["batch"])).get(batch_name(record["batch"])) or float(record["at"])

    def add(self, number: int, record: Mapping[str, Any]) -> bool:
        """Write the record of a batch; return False if there is or was one."""
        name = batch_name(number)
        if not self.state.put_once(name, record):
            return False
        if self.state.read(_fold_name(self._end_of(number))) is not None:
            self.state.delete([name])
            return False
        self._own[number] = dict(record)
        return True

    def all(self) -> Iterator[dict[str, Any]]:
        """Yield all records in the order of their numbers."""
        names = self.state.listed()
        ends = {each for each in map(_fold_end, names) if each}
        singles = {int(each) for each in names if _is_batch(each)}
        starts = {end - self.fold_batches + 1: end for end in ends}
        for number in sorted({each for each in singles if self._end_of(each) not in ends} | starts.keys()):
            if number in starts:
                yield from self._folded(starts[number]).values()
                continue
            record = self.state.read(batch_name(number)) or self.read(number)
            if record is not None:
                yield record

    def fold(self, committed: int) -> None:
        """Fold the records of all batches up to one whose files are written, and delete what was folded."""
        names = self.state.listed()
        singles = sorted(int(each) for each in names if _is_batch(each) and int(each) <= committed)
        made, folded = 0, list[str]()
        for end in sorted({self._end_of(each) for each in singles}):
            if end > committed:
                break
            if _fold_name(end) not in names:
                records = self._whole(end, names)
                # Something removed a record: what is left stays as it is, for whoever looks into that.
                if records is None:
                    continue
                if made == _FOLDS_AT_ONCE:
                    break
                made += 1
                self.state.put_once(_fold_name(end), {"batches": records})
            folded += [batch_name(each) for each in singles if self._end_of(each) == end]
        self.state.delete(folded)
        self._own = {number: each for number, each in self._own.items() if number > committed}

    def _whole(self, end: int, names: Mapping[str, float]) -> list[dict[str, Any]] | None:
        """Return the records of a fold, or None if one is missing."""
        found = list[dict[str, Any]]()
        for number in range(end - self.fold_batches + 1, end + 1):
            record = self._own.get(number) or self.state.read(batch_name(number))
            if record is None:
                return None
            # Older versions did not note the time.
            found.append({"at": names.get(batch_name(number), 0.0), **record})
        return found

    def _folded(self, end: int) -> dict[int, dict[str, Any]]:
        known = self._fold
        if known[0] != end:
            stored = self.state.read(_fold_name(end))
            if stored is None:
                return {}
            known = self._fold = end, {each["batch"]: each for each in stored["batches"]}
        return known[1]

    def _end_of(self, number: int) -> int:
        return -(-number // self.fold_batches) * self.fold_batches


def batch_name(number: int) -> str:
    """Return the name of the record of a batch."""
    return f"{number:012}"


def _is_batch(name: str) -> bool:
    return name.isdecimal()


def _fold_name(end: int) -> str:
    return f"folded-{end:012}"


def _fold_end(name: str) -> int:
    """Return the last batch of a fold by its name, or 0 if it is none's."""
    return int(name.removeprefix("folded-")) if name.startswith("folded-") else 0
