"""The public functions, compared with their loops, on very little data."""

from __future__ import annotations

import json

import pytest

from bench import figures, orders, public
from bench.e2e import public as case


@pytest.fixture(autouse=True)
def _little_data(monkeypatch):
    monkeypatch.setenv("BENCH_SCALE", "0.002")


def test_every_call_is_compared_with_its_loops(tmp_path):
    """Each call has a speed, and a ratio to each other method including the loops. The table shows them."""
    measured = {name: case.measure(make(), rounds=1) for name, make in case.calls(tmp_path).items()}
    for call_figures in measured.values():
        assert call_figures["json_bytes"] > 0
        assert public.KERNEL in call_figures["times_as_fast_as"]
        assert all(ratio > 0 for ratio in call_figures["times_as_fast_as"].values())
    assert all(line.value > 0 for line in figures.CASES["public"]({"figures": measured}))


@pytest.mark.parametrize("kind", ["ascii", "mixed", "tailed"])
def test_orders_are_realistic(kind):
    """Items have about 650 bytes, NULL in addition to values, and optional members. Text has scripts and escapes."""
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
    """Bodies, large or small, contain all items in order."""
    for small in (False, True):
        bodies = orders.bodies("mixed", small=small)
        assert b"".join(bodies).splitlines() == list(orders.lines("mixed", 200))
