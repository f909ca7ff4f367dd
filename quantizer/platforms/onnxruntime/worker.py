"""ONNX Runtime on one thread that does not spin."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import onnxruntime
from numpy.typing import NDArray

OPTIONS = onnxruntime.SessionOptions()
OPTIONS.intra_op_num_threads = OPTIONS.inter_op_num_threads = 1
OPTIONS.log_severity_level = 4
# A single node cannot be optimized, and trying takes half the time of a session.
OPTIONS.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
OPTIONS.add_session_config_entry("session.intra_op.allow_spinning", "0")


def load(model: bytes, options: Mapping[str, str | int]) -> onnxruntime.InferenceSession:  # noqa: ARG001 - the worker has one variant
    """Return a session on the processor's own kernels."""
    return onnxruntime.InferenceSession(model, OPTIONS, providers=["CPUExecutionProvider"])


def run(session: onnxruntime.InferenceSession, feeds: Mapping[str, NDArray[Any]]) -> list[NDArray[Any]]:
    """Return every output of the graph."""
    found: list[NDArray[Any]] = session.run(None, dict(feeds))
    return found
