"""Print text Ion as DynamoDB JSON."""
