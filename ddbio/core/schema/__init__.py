"""Schemas of items: inferred from samples, declared by a person, saved as files, compared."""
