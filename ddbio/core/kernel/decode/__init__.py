"""Scan DynamoDB JSON into the buffers of record batches, guided by a schema."""
