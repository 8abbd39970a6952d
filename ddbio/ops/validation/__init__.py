"""Validate that two sides hold the same items: open them, read each once, compare, and show what differs."""
