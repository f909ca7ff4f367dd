"""Cutting an operator's output into tiles and putting the tiles together."""
