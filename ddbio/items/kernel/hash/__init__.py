"""Compiled loops that hash items and keys."""
