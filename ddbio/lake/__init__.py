"""Tables of a lake in their formats: the only importers of deltalake and pyiceberg."""
