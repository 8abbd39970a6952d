"""Print the rows of record batches as DynamoDB JSON."""
