"""Folders of files: layout, compaction, publication, vacuum."""
