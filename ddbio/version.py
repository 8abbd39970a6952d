"""The version of ddbio."""

__version__ = "0.1.0.dev0"
