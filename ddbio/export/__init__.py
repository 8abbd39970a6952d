"""Native exports: read and folded. Jobs of the service: exports, imports, bulk puts, backups."""
