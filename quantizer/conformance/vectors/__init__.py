"""Test vectors: cases with their allowed codes, in files that can be used without Python."""
