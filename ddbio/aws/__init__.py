"""Access to AWS: the only package that imports boto3. It neither plans jobs nor opens files."""
