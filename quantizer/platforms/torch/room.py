"""Declaration of the room of PyTorch."""

from __future__ import annotations

from pathlib import Path

from quantizer.core.levels import LEVELS
from quantizer.core.rooms import Engine, Pin, Pins, Room

_AVX2, _AVX512, _VNNI, _AMX = LEVELS.values()
_PINS = Pins(
    (
        Pin(
            "ATEN_CPU_CAPABILITY",
            {"avx2": "avx2", "avx512": "avx512", "avx512_vnni": "avx512", "amx": "avx512"},
            "aten",
            {"default": ("sse4_1",), "avx2": _AVX2},
        ),
        Pin(
            "ONEDNN_MAX_CPU_ISA",
            {
                "avx2": "AVX2",
                "avx512": "AVX512_CORE",
                "avx512_vnni": "AVX512_CORE_VNNI",
                "amx": "AVX512_CORE_AMX",
            },
            "onednn",
            {
                "sse41": ("sse4_1",),
                "avx": ("sse4_1", "avx"),
                "avx2": _AVX2,
                "avx2_vnni": (*_AVX2, "avx_vnni"),
                "avx512_core": _AVX512,
                "avx512_core_vnni": _VNNI,
                "avx512_core_bf16": (*_VNNI, "avx512_bf16"),
                "avx512_core_fp16": (*_VNNI, "avx512_bf16", "avx512_fp16"),
            },
        ),
        Pin(
            "FBGEMM_ENABLE_INSTRUCTIONS",
            {"avx2": "AVX2", "avx512": "AVX512", "avx512_vnni": "AVX512_E1", "amx": "AVX512_E1"},
            "fbgemm",
            {"avx2": _AVX2, "avx512": _AVX512, "avx512_256": _AVX512},
        ),
        # MKL multiplies the float matrices of quantized::matmul. Only this branch is the same on every processor.
        Pin("MKL_CBWR", dict.fromkeys(LEVELS, "COMPATIBLE")),
    ),
    {"x86": ("avx512_vnni", "fbgemm")},
)
ROOM = Room(
    Path(__file__).parent,
    platforms=("torch_fbgemm", "torch_qnnpack", "torch_x86"),
    functions=("quantizer.platforms.torch.rules", "quantizer.platforms.torch.kernels"),
    engines=(
        Engine(
            "torch",
            "torch-quantized",
            "quantizer.platforms.torch.worker",
            ("torch",),
            {"torch_x86": "x86", "torch_qnnpack": "qnnpack", "torch_fbgemm": "fbgemm"},
            pins=_PINS,
            threads=True,
            script="quantizer.platforms.torch.script:script",
        ),
    ),
    forms={"torch-quantized": "quantizer.platforms.torch.engine"},
    policies="quantizer.platforms.torch.policies:POLICIES",
)
