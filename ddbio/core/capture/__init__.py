"""The pure half of change capture: which shards are read next, what a record becomes, what a batch is."""
