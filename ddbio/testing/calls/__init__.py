"""Answer the calls of the service, one module a family."""
