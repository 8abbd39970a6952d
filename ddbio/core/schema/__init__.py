"""Say what columns items have: DynamoDB's types, what samples showed, what a person declared."""
