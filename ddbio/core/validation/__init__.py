"""The pure half of validations: keys that differ, quality rules, and the comparison of two sides."""
