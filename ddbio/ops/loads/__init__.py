"""Write rows into tables: sources, the scheduler of requests, rejects, and checkpoints to continue from."""
