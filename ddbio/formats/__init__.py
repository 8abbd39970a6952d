"""File formats, and the writers that roll and partition files."""
