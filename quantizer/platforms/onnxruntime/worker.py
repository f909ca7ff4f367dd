"""ONNX Runtime on one thread, or as many as are asked for; none spins."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import onnxruntime
from numpy.typing import NDArray


@functools.cache
def _options(threads: int) -> onnxruntime.SessionOptions:
    """Return the options of sessions of so many threads."""
    made = onnxruntime.SessionOptions()
    made.intra_op_num_threads, made.inter_op_num_threads = threads, 1
    # fatal errors only: a refused model is an answer here, not a warning
    made.log_severity_level = 4
    # A single node cannot be optimized, and trying takes half the time of a session.
    made.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    made.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return made


def load(model: bytes, options: Mapping[str, str | int]) -> onnxruntime.InferenceSession:
    """Return a session on the processor's own kernels."""
    made = _options(int(options.get("threads", 1)))
    return onnxruntime.InferenceSession(model, made, providers=["CPUExecutionProvider"])


def run(session: onnxruntime.InferenceSession, feeds: Mapping[str, NDArray[Any]]) -> list[NDArray[Any]]:
    """Return every output of the graph."""
    found: list[NDArray[Any]] = session.run(None, dict(feeds))
    return found
