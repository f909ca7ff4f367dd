"""The environment variables that hold an engine's libraries to a level of instructions, and what they leave of them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from quantizer.core.levels import HOST, LEVELS, UNPINNED, left_by

_AVX2, _AVX512, _VNNI, _AMX = LEVELS.values()


@dataclass(frozen=True)
class Pin:
    """One variable of a worker's environment, read when the library is first used."""

    variable: str
    values: Mapping[str, str]
    """Level -> the value that holds the library to it."""
    library: str = ""
    """As defects name it; empty where a value says nothing about instruction sets."""
    leaves: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Value in lower case -> the instruction sets that are left; another value leaves all."""


@dataclass(frozen=True)
class Pins:
    """What an engine lets us pin."""

    pins: tuple[Pin, ...]
    handed_on: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """Variant -> the instruction set without which the system hands its work to another variant, and that variant.

    The system asks the processor, not a variable: at a level below we call the other variant as it would.
    """


_TORCH = Pins(
    (
        Pin(
            "ATEN_CPU_CAPABILITY",
            {"avx2": "avx2", "avx512": "avx512", "avx512_vnni": "avx512", "amx": "avx512"},
            "aten", {"default": ("sse4_1",), "avx2": _AVX2},
        ),
        Pin(
            "ONEDNN_MAX_CPU_ISA",
            {
                "avx2": "AVX2", "avx512": "AVX512_CORE", "avx512_vnni": "AVX512_CORE_VNNI",
                "amx": "AVX512_CORE_AMX",
            },
            "onednn",
            {
                "sse41": ("sse4_1",), "avx": ("sse4_1", "avx"), "avx2": _AVX2, "avx2_vnni": (*_AVX2, "avx_vnni"),
                "avx512_core": _AVX512, "avx512_core_vnni": _VNNI, "avx512_core_bf16": (*_VNNI, "avx512_bf16"),
                "avx512_core_fp16": (*_VNNI, "avx512_bf16", "avx512_fp16"),
            },
        ),
        Pin(
            "FBGEMM_ENABLE_INSTRUCTIONS",
            {"avx2": "AVX2", "avx512": "AVX512", "avx512_vnni": "AVX512_E1", "amx": "AVX512_E1"},
            "fbgemm", {"avx2": _AVX2, "avx512": _AVX512, "avx512_256": _AVX512},
        ),
        # MKL multiplies the float matrices behind quantized::matmul. The only branch that is the same on every processor.
        Pin("MKL_CBWR", dict.fromkeys(LEVELS, "COMPATIBLE")),
    ),
    {"x86": ("avx512_vnni", "fbgemm")},
)  # fmt: skip
PINS: Mapping[str, Pins] = {"torch": _TORCH}
"""Engine -> its variables. Another engine has none: ONNX Runtime, LiteRT and TOSA's model take what the processor has."""


def held_to(backend: str, level: str) -> str:
    """Return the level that an engine which is asked for *level* runs at: itself, or `unpinned`."""
    return level if backend in PINS else UNPINNED


def variables(backend: str, level: str) -> dict[str, str]:
    """Return what the environment of a worker must hold so that *backend* stays at *level*; nothing for `host`."""
    if backend not in PINS or level == HOST:
        return {}
    return {pin.variable: pin.values[level] for pin in PINS[backend].pins}


def instruction_sets(
    backend: str, level: str, available: Collection[str], environment: Mapping[str, str]
) -> frozenset[str]:
    """Return what kernels of *backend* are chosen by: sets of a processor with *available* at *level*, and of each library.

    A library's are named after it, onednn.avx512_vnni; *environment* may hold it further down where nothing is pinned.
    """
    left = left_by(level, available)
    set_to = {**environment, **variables(backend, level)}
    found = set(left)
    for pin in PINS[backend].pins if backend in PINS else ():
        most = pin.leaves.get(set_to.get(pin.variable, "").lower(), left)
        found |= {f"{pin.library}.{name}" for name in left & frozenset(most) if pin.library}
    return frozenset(found)


def running_variant(backend: str, variant: str, left: Collection[str]) -> str:
    """Return the variant that *backend* itself takes for *variant* on a processor with the instruction sets *left*."""
    handed = PINS[backend].handed_on.get(variant) if backend in PINS else None
    return variant if handed is None or handed[0] in left else handed[1]
