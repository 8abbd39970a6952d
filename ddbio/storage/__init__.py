"""Object stores, local and on S3, and the small state files of jobs in them."""
