"""The scan of a whole job, on very little data."""

from __future__ import annotations

from bench import report, scanners, serving
from bench.e2e import scan


def test_scan_is_compared_with_every_method():
    """Each other method has a ratio, the inference a figure, and the report shows them."""
    table, fewer = serving.serve("orders", 40), serving.serve("orders", 20)
    figures = {"infer_cpu_seconds": scan.infer(table, rounds=1), **scan.measure(table, fewer, rounds=1)}
    serving.stop()
    assert figures["times_as_fast_as"].keys() == scanners.SCANNERS.keys() - {scanners.DDBIO}
    assert all(ratio > 0 for ratio in figures["times_as_fast_as"].values())
    assert figures["infer_cpu_seconds"] > 0
    assert list(report.CASES["scan"]({"figures": figures}))[-1].goal == ("≤", 50)
