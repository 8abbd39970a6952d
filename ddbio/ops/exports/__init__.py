"""Start, read and fold native exports; write tables in their shape."""
