"""Command line. Its commands are generated from the table in ``commands.py``."""
