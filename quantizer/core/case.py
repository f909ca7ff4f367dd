"""A case: one single-operator graph with everything that decides its numbers, as plain data."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from quantizer.core.errors import CaseError

AxisOrder = Literal["channels_first", "channels_last"]
AttrValue = bool | int | float | str | tuple[int, ...]
Range = tuple[float, float]
VERSION = 1


@dataclass(frozen=True)
class TilePlan:
    """Tile sizes per tiled axis; an axis that is not named stays whole."""

    sizes: Mapping[str, int]

    def __str__(self) -> str:
        return "x".join(f"{axis}{size}" for axis, size in sorted(self.sizes.items())) or "untiled"


@dataclass(frozen=True)
class Stack:
    """Several data sets of one structure under the same constants and parameters, one after another along an axis."""

    axis: str
    """The name of an axis that the operator's tiling rules declare `independent`."""
    parts: tuple[tuple[str, int], ...]
    """The data set and the seed of each part. They fill the activations that have this axis; the recipe fills the
    others."""


@dataclass(frozen=True)
class Given:
    """A tensor that a model file provides: its codes, scale and zero point."""

    dtype: str
    codes_from_to: tuple[int, int]
    """The smallest and the largest code of the grid."""
    scale: tuple[float, ...]
    zero_point: tuple[int, ...]
    """One zero point for each scale."""
    axis: int | None
    """The axis of the scales; None for a single scale."""
    shape: tuple[int, ...]
    codes: tuple[int, ...]
    """Codes in row-major order; None for a result."""

    def to_dict(self) -> dict[str, Any]:
        """Return the tensor as JSON values."""
        return {
            "dtype": self.dtype,
            "range": list(self.codes_from_to),
            "scale": list(self.scale),
            "zero_point": list(self.zero_point),
            "axis": self.axis,
            "shape": list(self.shape),
            "codes": list(self.codes),
        }


@dataclass(frozen=True)
class DataRecipe:
    """How the tensors of a case are filled: `value(name, coordinates)` hashed from the seed, shaped by the set."""

    set: str
    seed: int
    kept: Mapping[str, tuple[tuple[int, ...], ...]] = field(default_factory=dict)
    """Tensor -> coordinates that keep their value; all others are zero. A tensor that is not named keeps all."""
    stack: Stack | None = None
    """The data sets of a stack; None for a single data set."""
    given: Mapping[str, Given] = field(default_factory=dict)
    """Codes and grids of operands and result, for a case that was cut out of a model. The data set is then `given`."""

    @property
    def sets(self) -> tuple[str, ...]:
        """The data sets of the activations: one for each part of a stack, else a single one."""
        return (self.set,) if self.stack is None else tuple(name for name, _ in self.stack.parts)


@dataclass(frozen=True)
class Case:
    """One drawn single-operator graph + scheme + platform + calibrated ranges + tile plan + data recipe."""

    op: str
    scheme: str
    platform: str
    shapes: Mapping[str, tuple[int, ...]]
    """Input -> shape in the operator's own axis order. Absent optional inputs are left out."""
    attrs: Mapping[str, AttrValue]
    ranges: Mapping[str, Range]
    """Activation or output -> calibrated (smallest, largest) real value."""
    order: AxisOrder
    tiles: TilePlan
    data: DataRecipe
    activation: str = "none"
    """The fused activation."""

    def to_json(self) -> str:
        """Return the one text form of this case: sorted keys, no spaces, floats by repr."""
        # the digest is computed from this text, so that it must not depend on the order of dicts
        return json.dumps(self.to_dict(), sort_keys=True, separators=(",", ":"))

    def to_dict(self) -> dict[str, Any]:
        """Return the case as JSON values."""
        stack = self.data.stack
        return {
            "version": VERSION,
            "op": self.op,
            "scheme": self.scheme,
            "platform": self.platform,
            "shapes": {name: list(shape) for name, shape in self.shapes.items()},
            "attrs": {name: list(v) if isinstance(v, tuple) else v for name, v in self.attrs.items()},
            "ranges": {name: list(pair) for name, pair in self.ranges.items()},
            "order": self.order,
            **({"activation": self.activation} if self.activation != "none" else {}),
            "tiles": dict(self.tiles.sizes),
            "data": {
                "set": self.data.set,
                "seed": self.data.seed,
                **({"kept": {k: [list(c) for c in v] for k, v in self.data.kept.items()}} if self.data.kept else {}),
                **({"given": {k: v.to_dict() for k, v in self.data.given.items()}} if self.data.given else {}),
                **({} if stack is None else {"stack": {"axis": stack.axis, "parts": [list(p) for p in stack.parts]}}),
            },
        }

    @property
    def digest(self) -> str:
        """The first twelve hexadecimal digits of the SHA-256 of `to_json`: the name of this case."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()[:12]

    def but(self, **changes: Any) -> Case:
        """Return this case with some fields changed; TypeError for a name that is not a field."""
        if not changes.keys() <= self.__dict__.keys():
            return replace(self, **changes)  # raises an error that names the field
        other = object.__new__(Case)  # ten times faster than `replace`; called some twenty times per case
        other.__dict__.update(self.__dict__ | changes)
        return other

    @staticmethod
    def from_dict(raw: object, where: str) -> Case:
        """Read the output of `to_dict`; CaseError with *where* and the first wrong field."""
        # case_file describes this class, so it imports this module
        from quantizer.core.case_file import CaseModel, read_model

        model = read_model(CaseModel, raw, where)
        return model.to_case()

    @staticmethod
    def from_json(text: str, where: str) -> Case:
        """Read the output of `to_json`; CaseError with *where* and the first wrong field."""
        try:
            raw = json.loads(text)
        except (ValueError, RecursionError) as err:
            raise CaseError(f"{where}: not JSON: {err}.") from None
        return Case.from_dict(raw, where)
