"""No real system: float32 operations in any order."""
