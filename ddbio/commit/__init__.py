"""Atomic commit of the files of a job."""
