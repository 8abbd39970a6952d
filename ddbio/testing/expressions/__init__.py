"""Parsers and evaluators of the expressions of requests: conditions, key conditions, projections."""
