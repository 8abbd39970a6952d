"""Charts of results: one self-contained HTML page, or a PNG."""
