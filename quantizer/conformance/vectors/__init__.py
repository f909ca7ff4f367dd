"""Test vectors: cases with their right codes, in files that are used without Python."""
