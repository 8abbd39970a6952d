"""Typed columns from the output of ``pyarrow.json`` with an explicit tagged schema: the floor of decoding."""
