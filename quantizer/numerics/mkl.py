"""Selects MKL's code branch in this process before MKL's first call, the same branch on every processor.

torch's x86 builds compute exp, erf, log, sqrt, tanh, tan, their inverses and matrix products by MKL. By default MKL
chooses kernels by processor, and their last bits differ. Its conditional numerical reproducibility has one branch
that every processor supports: COMPATIBLE. Source: oneMKL Developer Reference, "Conditional Numerical Reproducibility
Functions".
"""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path
from typing import Literal

import torch

Branch = Literal["pinned", "absent", "too late"]

LIBRARIES = ("libtorch_cpu.so", "libtorch_cpu.dylib", "torch_cpu.dll")
SETTERS = ("mkl_serv_cbwr_set", "MKL_CBWR_Set")
"""The name of MKL's function in a torch that links MKL statically, and in MKL's own library."""
# MKL_CBWR_COMPATIBLE and MKL_CBWR_SUCCESS of mkl_types.h
COMPATIBLE = 3
SUCCESS = 0
SAID = {
    "pinned": "MKL on its COMPATIBLE branch",
    "absent": "no MKL: float32 functions are rounded from float64, products added in order",
    "too late": (
        "MKL was called before this package was imported, so that its branch could not be pinned:"
        " float32 functions are rounded from float64, products added in order"
    ),
}


@cache
def pin() -> Branch:
    """Select MKL's COMPATIBLE branch and return the result; called on import of this package.

    absent: this torch has no MKL. too late: MKL had been called, after which its branch stays. The variable MKL_CBWR
    has no effect.
    """
    setter = _setter()
    if setter is None:
        return "absent"
    return "pinned" if setter(COMPATIBLE) == SUCCESS else "too late"


def is_pinned() -> bool:
    """Return whether torch uses MKL and MKL runs on the COMPATIBLE branch."""
    return pin() == "pinned"


def _setter() -> ctypes._NamedFuncPointer | None:
    folder = Path(torch.__file__).parent / "lib"
    for path in (folder / name for name in LIBRARIES):
        try:
            # torch has loaded it already, so this is a second handle to the same library
            library = ctypes.CDLL(str(path))
        except OSError:
            continue
        for name in SETTERS:
            if hasattr(library, name):
                setter = getattr(library, name)
                setter.argtypes, setter.restype = [ctypes.c_int], ctypes.c_int
                return setter  # type: ignore[no-any-return]
    return None
