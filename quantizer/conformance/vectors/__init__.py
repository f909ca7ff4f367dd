"""Test vectors: cases with the codes that are right, in files that no Python is needed for."""
