"""Write the files that the service imports itself, and drive its jobs."""
