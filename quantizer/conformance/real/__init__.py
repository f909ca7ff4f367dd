"""Bugs from public trackers, planted under the conditions in which they were reported."""
