"""Decode DynamoDB JSON by compiled loops; the only place that imports numba."""
