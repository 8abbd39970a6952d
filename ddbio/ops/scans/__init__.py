"""Scan tables: plan, stream of pages, and what the pages become: files, Arrow data or a digest."""
