"""Compiled loops that walk items once, write a tape of their values, and fill columns from it."""
