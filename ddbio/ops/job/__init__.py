"""What the verbs share: reports, stores, staged files, rows set aside between phases, waiting for the service."""
