"""Hash values, items and keys: in columns, and in DynamoDB JSON."""
