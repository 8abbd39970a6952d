"""The public functions, which ``ddbio`` offers: they check their keyword arguments and call ``ddbio.ops``."""
