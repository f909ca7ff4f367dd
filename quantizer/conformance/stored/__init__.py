"""Stored cases: goldens, regressions, and smallest cases of declared defects."""
