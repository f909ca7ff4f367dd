"""The checks: one module each. A check is a function from a trial to a verdict."""
