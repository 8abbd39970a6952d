"""Tables of a lake that hold the state of a DynamoDB table: their columns, and how changes are merged into them."""
