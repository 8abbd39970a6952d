"""Read the expressions of requests: names, conditions, key conditions, projections."""
