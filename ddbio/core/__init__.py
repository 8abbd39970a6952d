"""Compute: values in, values out; nothing here sleeps, reads or connects."""
