"""Read and write text Ion, the other format of exports and imports."""
