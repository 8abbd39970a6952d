"""Tables of catalogs: Glue, Hive and DDL."""
