"""Bugs that others reported, planted with the conditions under which they were seen."""
