"""ONNX's own reference evaluator: it defines the operators, and is a system under test like the others."""

from __future__ import annotations

from typing import Any

import onnx
from onnx import version_converter
from onnx.reference import ReferenceEvaluator

NAME, VERSION, FORM, FLOATS = "onnx_reference", onnx.__version__, "onnx-qdq", True
OPSET = 21
"""The evaluator has no DequantizeLinear of earlier opsets."""


def load(model: bytes, options: dict[str, Any]) -> ReferenceEvaluator:
    """Return an evaluator of *model*."""
    made = onnx.load_from_string(model)
    old = made.opset_import[0].version < OPSET
    return ReferenceEvaluator(version_converter.convert_version(made, OPSET) if old else made)


def run(session: ReferenceEvaluator, feeds: dict[str, Any]) -> list[Any]:
    """Return every output of the graph."""
    found: list[Any] = session.run(None, feeds)
    return found
