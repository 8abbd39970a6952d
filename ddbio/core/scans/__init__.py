"""The pure half of reads: which items, by which conditions, in how many segments; and look-ups by key."""
