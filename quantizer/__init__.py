"""Conformance gate for quantized operators: one spec per operator, verdicts with derived bounds."""

__version__ = "0.1.0"
