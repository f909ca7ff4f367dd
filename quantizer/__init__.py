"""Conformance gate for quantized operators: one spec per operator, verdicts with derived bounds."""

from pathlib import Path

from quantizer_conformance import refuse_clash

__version__ = "1.0.0rc1"

refuse_clash(Path(__file__).parent)
