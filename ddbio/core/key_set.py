"""Tell which keys of a long stream came before, at 16 bytes a key; hold no key itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ddbio.core.identity import key_hashes
from ddbio.core.schema.arrow import RESCUE_NAME, name_of_field

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import TypeAlias

    import pyarrow as pa

    _Words: TypeAlias = np.ndarray[Any, np.dtype[np.uint64]]
    _Mask: TypeAlias = np.ndarray[Any, np.dtype[np.bool_]]


class Prints(NamedTuple):
    """Hold 128 bits of each row's key, in two words: what a hundred million rows share none of by chance."""

    high: _Words
    low: _Words

    @classmethod
    def joined(cls, parts: Sequence[Prints]) -> Prints:
        """Return the prints of several batches as one."""
        return cls(np.concatenate([each.high for each in parts]), np.concatenate([each.low for each in parts]))


def key_prints(batch: pa.RecordBatch, keys: Sequence[str]) -> Prints:
    """Return the prints of each row's key: equal for equal keys.

    Raises
    ------
    SchemaError, DecodeError
        As :func:`ddbio.core.identity.key_hashes`.
    """
    held = {*keys}
    rows = batch.select(
        [field.name for field in batch.schema if name_of_field(field) in held or field.name == RESCUE_NAME]
    )
    return Prints(key_hashes(rows, keys), key_hashes(rows, [*keys, *keys]))


class KeySet:
    """Remember the prints of keys in sorted runs, each twice the next one or longer."""

    def __init__(self) -> None:
        self._runs: list[Prints] = []

    def add(self, prints: Prints) -> _Mask:
        """Return which rows have a key that is new; of rows that share one, the first counts as new."""
        order = _order(prints)
        sorted_ = Prints(prints.high[order], prints.low[order])
        new = np.ones(len(order), bool)
        new[1:] = (sorted_.high[1:] != sorted_.high[:-1]) | (sorted_.low[1:] != sorted_.low[:-1])
        for run in self._runs:
            new &= ~_held(run, sorted_)
        self._keep(Prints(sorted_.high[new], sorted_.low[new]))
        mask = np.empty(len(order), bool)
        mask[order] = new
        return mask

    def _keep(self, run: Prints) -> None:
        while self._runs and len(self._runs[-1].high) < 2 * len(run.high):
            other = self._runs.pop()
            run = Prints.joined([other, run])
            order = _order(run)
            run = Prints(run.high[order], run.low[order])
        self._runs.append(run)


def _order(prints: Prints) -> np.ndarray[Any, np.dtype[np.intp]]:
    """Return the order of the prints; equal ones keep theirs."""
    order = np.argsort(prints.high, kind="stable")
    high = prints.high[order]
    if not (high[1:] == high[:-1]).any():
        return order
    # Equal words need not be equal prints.
    return np.lexsort((prints.low, prints.high))


def _held(run: Prints, prints: Prints) -> _Mask:
    """Return which of sorted prints a run holds."""
    if not len(run.high):
        return np.zeros(len(prints.high), bool)
    first = np.searchsorted(run.high, prints.high)
    held = np.zeros(len(first), bool)
    while True:
        # Where a run has several prints of one first word, each is looked at.
        place = np.minimum(first, len(run.high) - 1)
        same = (first < len(run.high)) & (run.high[place] == prints.high)
        held |= same & (run.low[place] == prints.low)
        if not (same & ~held).any():
            return held
        first = first + (same & ~held)
