"""Delta, Iceberg and Hudi: what a lake table is, how its versions are read and committed, and its base load."""
