"""Finds and loads plugins: operator functions from outside this package."""
