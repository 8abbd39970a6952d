"""Benchmarks: asv classes, one file per subject, and whole jobs in ``bench.e2e``; see docs/benchmarks.md."""
