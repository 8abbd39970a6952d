"""Hash values, items and keys, in columns and on the wire."""
