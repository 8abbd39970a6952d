"""Comparison of two sides, digests, and quality rules."""
