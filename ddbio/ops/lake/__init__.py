"""The verbs about tables of a lake."""
