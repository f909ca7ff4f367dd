"""A worker's session of ONNX Runtime for whole models: one thread, optimizations on or off."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import onnxruntime
from numpy.typing import NDArray


def load(model: bytes, options: Mapping[str, str | int]) -> onnxruntime.InferenceSession:
    """Return a session on the processor's own kernels."""
    chosen = onnxruntime.SessionOptions()
    chosen.intra_op_num_threads = chosen.inter_op_num_threads = 1
    chosen.log_severity_level = 4
    levels = onnxruntime.GraphOptimizationLevel
    chosen.graph_optimization_level = levels.ORT_ENABLE_ALL if options["optimized"] else levels.ORT_DISABLE_ALL
    chosen.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return onnxruntime.InferenceSession(model, chosen, providers=["CPUExecutionProvider"])


def run(session: onnxruntime.InferenceSession, feeds: Mapping[str, NDArray[Any]]) -> list[NDArray[Any]]:
    """Return every output of the graph."""
    found: list[NDArray[Any]] = session.run(None, dict(feeds))
    return found
