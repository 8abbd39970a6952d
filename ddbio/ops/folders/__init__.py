"""The verbs about folders of files: list, compact, vacuum, publish."""
