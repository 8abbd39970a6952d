"""The gate: instructions of the pure kernels, counted by callgrind, compared with a baseline or another commit."""
