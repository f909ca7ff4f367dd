"""The checks: one module each, every one a function from a trial to a verdict."""
