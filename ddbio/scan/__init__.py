"""Scans of tables: plans, conditions, requests, pages, files."""
