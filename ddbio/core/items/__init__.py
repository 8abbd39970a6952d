"""Items as rows and back: decoding, encoding, keys, sizes, and items that pass by as the bytes they came as."""
