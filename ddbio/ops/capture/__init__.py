"""Change capture: a table's changes from its stream to a log of files, each exactly once."""
