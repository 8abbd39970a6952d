"""Windows over the test endpoint's record of consumed units."""

from __future__ import annotations

SLOT_SECONDS = 0.1


def windows(record, seconds):
    """Return the units of every window of ``seconds`` within a record of times and units."""
    first, last = round(record[0][0] / SLOT_SECONDS), round(record[-1][0] / SLOT_SECONDS)
    slots = [0.0] * (last - first + 1)
    for at, units in record:
        slots[round(at / SLOT_SECONDS) - first] += units
    width = round(seconds / SLOT_SECONDS)
    return [sum(slots[start : start + width]) for start in range(len(slots) - width + 1)]
