"""Turns the pytest plugin on for this repository."""

pytest_plugins = ["quantizer.conformance.run.plugin"]
