"""Compiled loops that decode items."""
