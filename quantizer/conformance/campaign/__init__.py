"""Soaking: generated cases for hours, on any executor, with a journal that survives whatever ends the run."""
