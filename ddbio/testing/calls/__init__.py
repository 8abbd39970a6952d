"""Answer the operations of the service, one module for each family."""
