"""Hold what the fake's tables are and have: keys, items, capacity, what was written and consumed."""
