"""Schemas of items: inferred, declared, compared and saved."""
