"""Write rows to tables: sources, lanes, retries, rejects, and the record a load resumes from."""
