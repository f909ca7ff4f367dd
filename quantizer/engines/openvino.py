"""OpenVINO's CPU plugin, on one thread, in float32 where it does not compute in integers."""

from __future__ import annotations

from typing import Any

import openvino

NAME, VERSION, FORM, FLOATS = "openvino", openvino.__version__.split("-")[0], "onnx-qdq", True
CORE = openvino.Core()
CONFIG = {"INFERENCE_NUM_THREADS": 1, "INFERENCE_PRECISION_HINT": "f32"}
DEVICE = "cpu"


def load(model: bytes, options: dict[str, Any]) -> Any:
    """Return a compiled model."""
    return CORE.compile_model(CORE.read_model(model, b""), "CPU", CONFIG)


def run(session: Any, feeds: dict[str, Any]) -> list[Any]:
    """Return every output of the graph; copies, since the next run writes into the same memory."""
    return [values.copy() for values in session(feeds).values()]
