"""Read and write the text Ion of exports and imports."""
