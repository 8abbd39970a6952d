"""The commit: how the files of a job become visible, all together or not at all."""
