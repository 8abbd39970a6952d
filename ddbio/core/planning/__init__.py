"""What a job will take before it runs, and how it keeps to that: units, seconds, prices, limits, and pace."""
