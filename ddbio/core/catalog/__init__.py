"""Describe a folder of files as a table of a catalog: its definition, what to change in Glue, and its DDL."""
