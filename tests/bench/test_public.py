"""The public functions beside the loops under them, on very little data."""

from __future__ import annotations

import json

import pytest

from bench import figures, orders, public
from bench.e2e import public as case


@pytest.fixture(autouse=True)
def _little_data(monkeypatch):
    monkeypatch.setenv("BENCH_SCALE", "0.002")


def test_every_call_is_measured_beside_its_loops(tmp_path):
    """Each call has a speed, and a ratio to each other way, the loops among them; the table shows them."""
    measured = {name: case.measure(make(), rounds=1) for name, make in case.calls(tmp_path).items()}
    for each in measured.values():
        assert each["json_bytes"] > 0
        assert public.KERNEL in each["times_as_fast_as"]
        assert all(ratio > 0 for ratio in each["times_as_fast_as"].values())
    assert all(line.value > 0 for line in figures.CASES["public"]({"figures": measured}))


@pytest.mark.parametrize("kind", ["ascii", "mixed", "tailed"])
def test_orders_are_as_people_have_them(kind):
    """Items have about 650 bytes, NULL beside values, and optional members; text has scripts and escapes."""
    lines = orders.lines(kind, 500)
    items = [json.loads(line) for line in lines]
    assert 600 < sum(map(len, lines)) / len(lines) < 760
    assert {tag for item in items for tag in item["coupon"]} == {"NULL", "S"}
    assert 0 < sum("phone" in item for item in items) < len(items)
    text = " ".join(item["comment"]["S"] for item in items)
    assert text.isascii() == (kind == "ascii")
    assert {'"', "\n", "\\", "\x07"} <= set(text)
    tailed = sum(any(name.startswith("x_") for name in item) for item in items)
    assert tailed == 0 if kind != "tailed" else 0.55 < tailed / len(items) < 0.8


def test_bodies_hold_every_item_once():
    """Bodies, large or small, hold all items in their order."""
    for small in (False, True):
        bodies = orders.bodies("mixed", small=small)
        assert b"".join(bodies).splitlines() == list(orders.lines("mixed", 200))
