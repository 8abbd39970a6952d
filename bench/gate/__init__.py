"""The gate: instructions that the pure kernels execute, by callgrind, against a stored baseline or another commit."""
