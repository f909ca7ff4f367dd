"""Engines that no room describes: one stand-alone worker each, and `shipped.py`, which names them for the entry points."""
