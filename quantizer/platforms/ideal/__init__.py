"""No real system: one exact sum, one rounding half to even."""
