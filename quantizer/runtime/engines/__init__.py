"""Engines run cases: the built-in one, and real systems in separate processes."""
