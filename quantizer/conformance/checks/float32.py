"""Error bound of a sequence of float32 roundings."""

UNIT = 2.0**-24  # unit roundoff of float32: half the distance of 1 to the next number


def lost(operations: int) -> float:
    """Return n*u / (1 - n*u), the relative error bound of *operations* float32 roundings (Higham 2002, 3.1)."""
    return operations * UNIT / (1 - operations * UNIT)
