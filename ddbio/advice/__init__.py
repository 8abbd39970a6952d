"""Advice: ways to keep a copy, capacity, simulations, checks of settings, IAM policies."""
