"""Engines without a room: a stand-alone worker for each, and `shipped.py`, which names them for the entry points."""
