"""TOSA, as its reference model computes it."""
