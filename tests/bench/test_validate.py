"""The cases of validation and layout, on very little data."""

from __future__ import annotations

from bench import report, serving
from bench.e2e import layout, validate


def test_validation_is_compared_with_the_scan(tmp_path):
    """The changed value is found before anything is timed, and the report shows both figures."""
    figures = validate.measure(serving.serve("orders", 40), tmp_path, rounds=1)
    serving.stop()
    assert figures["times_the_scan"] > 0
    assert [line.goal for line in report.CASES["validate"]({"figures": figures})] == [("≤", 1.15), None]


def test_layout_is_compared_with_the_footers(tmp_path):
    """Every file is in the report, and its time is shown."""
    figures = layout.measure(tmp_path, 20, rounds=1)
    assert figures["files"] == 20
    assert [line.goal for line in report.CASES["layout"]({"figures": figures})] == [("≤", 20)]
