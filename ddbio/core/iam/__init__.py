"""The permissions that verbs need."""
