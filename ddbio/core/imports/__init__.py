"""Hold what is known of imports and bulk puts: jobs, lines of files, reports."""
