"""Parse and evaluate the expressions of requests: conditions, key conditions, projections."""
