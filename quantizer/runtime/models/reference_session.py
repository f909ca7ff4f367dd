"""A worker's session of ONNX's own evaluator."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx.reference import ReferenceEvaluator


def load(model: bytes, options: Mapping[str, str | int]) -> ReferenceEvaluator:  # noqa: ARG001 - the worker has one variant
    """Return an evaluator of the model."""
    return ReferenceEvaluator(onnx.load_model_from_string(model))


def run(session: ReferenceEvaluator, feeds: Mapping[str, NDArray[Any]]) -> list[NDArray[Any]]:
    """Return every output of the graph."""
    return [np.asarray(values) for values in session.run(None, dict(feeds))]
