"""Loads: rows from files and memory into tables, copies of tables, files for imports."""
