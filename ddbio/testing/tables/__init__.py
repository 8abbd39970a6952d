"""The tables of the fake: definitions, items, capacity and jobs."""
