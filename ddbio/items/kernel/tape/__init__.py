"""Walk items once and write a tape of their values; fill columns from it."""
