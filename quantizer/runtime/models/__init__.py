"""Runs whole networks on engines: end to end, or part by part."""
