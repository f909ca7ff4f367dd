"""Soak tests: generated cases for hours, on any executor, with a journal that survives a crash of the run."""
