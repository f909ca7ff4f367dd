"""Number formats: the codes that a tensor can hold, and the numpy type that stores them."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import Literal

from quantizer.core.errors import GraphError
from quantizer.core.formats import EXPONENTS, FLOAT_LAYOUTS

Kind = Literal["int", "uint", "float", "bool"]


@dataclass(frozen=True)
class DType:
    """A number format of `bits` bits; `storage` is the numpy name of the container that holds one value."""

    name: str
    kind: Kind
    bits: int
    storage: str

    @property
    def is_integer(self) -> bool:
        """True for signed and unsigned integers."""
        return self.kind in ("int", "uint")

    @property
    def min(self) -> int:
        """The code of the smallest value: an integer's own value, a float's place below 0 (`core.formats`)."""
        if self.kind == "float":
            return 0 if self.name == EXPONENTS else -self.max
        return -(1 << (self.bits - 1)) if self.kind == "int" else 0

    @property
    def max(self) -> int:
        """The code of the largest value: for an integer the value itself, for a float its place above 0.

        GraphError for a float format whose values have no codes.
        """
        if self.kind == "float":
            return _last_of(self.name)
        return (1 << (self.bits - 1)) - 1 if self.kind == "int" else (1 << self.bits) - 1

    def __str__(self) -> str:
        return self.name


def _last_of(name: str) -> int:
    if name == EXPONENTS:
        # code 255 is NaN
        return 254
    if name not in FLOAT_LAYOUTS:
        raise GraphError(f"{name}: its values have no codes here. These have: {', '.join(FLOAT_LAYOUTS)}.")
    return FLOAT_LAYOUTS[name].last


_CONTAINERS = (8, 16, 32, 64)


def _integers() -> dict[str, DType]:
    found = {}
    for bits in (2, 3, 4, 5, 6, 7, 8, 12, 16, 32, 48, 64):
        container = next(size for size in _CONTAINERS if size >= bits)
        for kind in ("int", "uint"):
            found[f"{kind}{bits}"] = DType(f"{kind}{bits}", kind, bits, f"{kind}{container}")
    return found


def _floats() -> dict[str, DType]:
    rows = {
        "float64": (64, "float64"),
        "float32": (32, "float32"),
        "float16": (16, "float16"),
        # numpy has no types for this one and the narrower ones: their bits are stored in unsigned integers
        "bfloat16": (16, "uint16"),
        "float8_e4m3fn": (8, "uint8"),
        "float8_e5m2": (8, "uint8"),
        "float8_e4m3fnuz": (8, "uint8"),
        "float8_e5m2fnuz": (8, "uint8"),
        "float8_e8m0fnu": (8, "uint8"),
        "float6_e2m3fn": (6, "uint8"),
        "float6_e3m2fn": (6, "uint8"),
        "float4_e2m1fn": (4, "uint8"),
    }
    return {name: DType(name, "float", bits, storage) for name, (bits, storage) in rows.items()}


DTYPES: dict[str, DType] = _integers() | _floats() | {"bool": DType("bool", "bool", 1, "bool")}


def dtype(name: str) -> DType:
    """Return the format called *name*; an unknown one is a GraphError that names the nearest."""
    try:
        return DTYPES[name]
    except KeyError:
        close = difflib.get_close_matches(name, DTYPES, n=1)
        hint = f" Did you mean {close[0]!r}?" if close else f" Known: {', '.join(DTYPES)}."
        raise GraphError(f"dtype {name!r}: no such number format.{hint}") from None


def integer(bits: int, *, signed: bool) -> DType:
    """Return the smallest integer format that has at least *bits* bits."""
    kind = "int" if signed else "uint"
    for candidate in DTYPES.values():
        if candidate.kind == kind and candidate.bits >= bits:
            return candidate
    raise GraphError(f"bits={bits}: no integer format is that wide; the widest has 64 bits.")
