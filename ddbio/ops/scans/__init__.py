"""Read tables: survey, segments, lanes, tasks, and the files they become."""
