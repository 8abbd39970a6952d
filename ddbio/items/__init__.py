"""Items of DynamoDB: as JSON, Arrow, Ion and Python values; their keys, sizes and digests."""
