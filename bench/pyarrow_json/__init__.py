"""Make typed columns of what ``pyarrow.json`` parses under an explicit tagged schema: the floor of decoding."""
