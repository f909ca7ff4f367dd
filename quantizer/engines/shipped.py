"""The engines that this package brings workers for; nothing of them is imported here.

Each is installed in an environment of its own (`quantizer engine install NAME`) and is judged on the platform that its
arithmetic is known to be, or on `float32_any_order`.
"""

from __future__ import annotations

from pathlib import Path

from quantizer.core.rooms import Engine

FOLDER = Path(__file__).parent
ANY_ORDER = "float32_any_order"


def _qdq(name: str, *distributions: str) -> Engine:
    """Return an engine that runs ONNX files."""
    return Engine(name, "onnx-qdq", str(FOLDER / f"{name}.py"), distributions, {ANY_ORDER: "cpu"}, extra="", guest=True)


IREE = _qdq("iree", "iree-base-runtime", "iree-base-compiler", "onnx")
ONNX_REFERENCE = _qdq("onnx_reference", "onnx")
OPENVINO = _qdq("openvino", "openvino")
TFLITE_MICRO = Engine(
    "tflite_micro", "tflite", str(FOLDER / "tflite_micro.py"), ("tflite-micro",), {"tflite_ref": "reference"}, extra="",
    guest=True,
)  # fmt: skip
TRACT = _qdq("tract", "tract")
TVM = _qdq("tvm", "apache-tvm", "onnx")
