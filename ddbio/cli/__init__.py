"""The command line: commands made from the table ``commands.py``."""
