"""Outline a job for those who follow it: its name, how many rows it is expected to have, and the rate it may use."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class JobOutline:
    """What is known of a job's extent before it runs.

    Attributes
    ----------
    name
        What runs, like ``scan orders``.
    unit
        ``RCU`` or ``WCU``; empty for a job that consumes no capacity.
    goal
        How many items or rows it will have brought at its end, those of earlier runs included; None if unknown.
    units_per_second
        Its budget, or None.
    done
        Rows that earlier runs have brought.
    """

    name: str
    unit: str
    goal: int | None
    units_per_second: float | None
    done: int = 0
