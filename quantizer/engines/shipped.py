"""The engines for which this package has workers; importing this module imports no engine.

Each is installed in its own environment (`quantizer engine install NAME`). It is judged on the platform with its
known arithmetic, or on `float32_any_order`.
"""

from __future__ import annotations

from pathlib import Path

from quantizer.core.levels import LEVELS
from quantizer.core.rooms import NONE, Engine, Pin, Pins

FOLDER = Path(__file__).parent
ANY_ORDER = "float32_any_order"


def _qdq(name: str, *distributions: str, pins: Pins = NONE) -> Engine:
    """Return an engine that runs ONNX files."""
    return Engine(
        name,
        "onnx-qdq",
        str(FOLDER / f"{name}.py"),
        distributions,
        {ANY_ORDER: "cpu"},
        extra="",
        pins=pins,
        guest=True,
        script=f"quantizer.engines.scripts:{name}",
    )


_AVX2, _AVX512, _VNNI, _AMX = LEVELS.values()
ONEDNN = Pins(
    (
        Pin(
            "ONEDNN_MAX_CPU_ISA",
            {"avx2": "AVX2", "avx512": "AVX512_CORE", "avx512_vnni": "AVX512_CORE_VNNI", "amx": "AVX512_CORE_AMX"},
            "onednn",
            {
                "sse41": ("sse4_1",),
                "avx": ("sse4_1", "avx"),
                "avx2": _AVX2,
                "avx2_vnni": (*_AVX2, "avx_vnni"),
                "avx512_core": _AVX512,
                "avx512_core_vnni": _VNNI,
            },
        ),
    )
)
"""oneDNN reads this variable: OpenVINO multiplies, convolves and pools with it. OpenVINO's own kernels ignore it."""
IREE = _qdq("iree", "iree-base-runtime", "iree-base-compiler", "onnx")
EXECUTORCH = Engine(
    "executorch",
    "npz",
    str(FOLDER / "executorch.py"),
    ("executorch", "torch"),
    {ANY_ORDER: "cpu"},
    extra="",
    guest=True,
    script="quantizer.engines.scripts:executorch",
)
JAX = Engine("jax", "npz", str(FOLDER / "jax.py"), ("jax",), {ANY_ORDER: "cpu"}, extra="", guest=True)
NCNN = Engine(
    "ncnn",
    "npz",
    str(FOLDER / "ncnn.py"),
    ("ncnn",),
    {ANY_ORDER: "cpu"},
    extra="",
    guest=True,
    script="quantizer.engines.scripts:ncnn",
)
MNN = Engine(
    "mnn",
    "npz",
    str(FOLDER / "mnn.py"),
    ("MNN",),
    {ANY_ORDER: "cpu"},
    extra="",
    guest=True,
    script="quantizer.engines.scripts:mnn",
)
ONNX_REFERENCE = _qdq("onnx_reference", "onnx")
OPENVINO = _qdq("openvino", "openvino", "onnx", pins=ONEDNN)
TFLITE_MICRO = Engine(
    "tflite_micro",
    "tflite",
    str(FOLDER / "tflite_micro.py"),
    ("tflite-micro",),
    {"tflite_ref": "reference"},
    extra="",
    guest=True,
    script="quantizer.engines.scripts:tflite_micro",
)
TRACT = _qdq("tract", "tract", "onnx")
TVM = _qdq("tvm", "apache-tvm", "onnx")
