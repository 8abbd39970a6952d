"""The pure half of what lies in files: partitions, staged and live files, statistics, compactions."""
