"""Consumers of records; imports no torch."""
