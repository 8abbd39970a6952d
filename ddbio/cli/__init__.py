"""The command line: one module for the commands of a kind, which parse flags, call ``ddbio.ops`` and print."""
