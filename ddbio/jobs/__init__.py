"""Shared parts of all jobs: engines, plans and their estimates, prices, staging, reports."""
