"""CPU features of this machine by which real engines select kernels."""

from __future__ import annotations

import platform
from functools import cache
from pathlib import Path

CPUINFO = Path("/proc/cpuinfo")
INSTRUCTIONS = tuple(
    (
        "sse4_1 avx f16c fma avx2 avx_vnni avx512f avx512bw avx512dq avx512vl avx512_vnni avx512_bf16 avx512_fp16 "
        "amx_int8 amx_bf16 asimd asimddp i8mm sve bf16"
    ).split()
)
"""Instruction sets by which engines select kernels, under Linux's names."""


def processor() -> str:
    """Return the architecture, and the instruction sets by which engines select kernels."""
    return f"{platform.machine()}: {' '.join(instructions()) or 'flags not known here'}"


@cache
def instructions() -> tuple[str, ...]:
    """Return the entries of INSTRUCTIONS that this processor has; no entry if Linux does not report them."""
    try:
        lines = CPUINFO.read_text(encoding="utf-8").splitlines()
    except OSError:
        return ()
    # x86 calls them flags, ARM Features; all processors of a machine have the same
    words = next((line.partition(":")[2].split() for line in lines if line.startswith(("flags", "Features"))), [])
    return tuple(name for name in INSTRUCTIONS if name in words)
