"""Compiled loops that encode rows."""
