"""Reach AWS: the only package that imports boto3; it plans nothing and opens no file."""
