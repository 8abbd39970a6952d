"""Offer the verbs as functions of keyword arguments; the names are public in ``ddbio``."""
