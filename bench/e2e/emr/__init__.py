"""The EMR DynamoDB connector as a peer: built at run time, never part of this repository."""
