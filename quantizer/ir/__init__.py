"""Graphs, and the files they are stored in."""
