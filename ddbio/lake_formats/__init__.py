"""Delta, Iceberg and Hudi: the interface of a lake table, reads and commits of its versions, and its base load."""
