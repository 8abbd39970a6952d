"""Object stores, local and on S3, and the small files of state that ddbio keeps in them."""
