"""Whole jobs, one process per case: ``python -m bench.e2e.CASE`` appends a row to ``results/e2e/CASE.jsonl``."""
