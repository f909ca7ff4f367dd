"""Whole models: what runs them, their edges, and their nodes apart from each other."""
