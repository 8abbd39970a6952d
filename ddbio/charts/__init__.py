"""Show results as charts: one HTML page that needs nothing beside it, or a PNG."""
