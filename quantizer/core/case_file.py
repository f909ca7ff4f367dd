"""Reading stored cases: every field checked, sizes bounded."""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BeforeValidator, Field, ValidationError

from quantizer.core.case import AttrValue, Case, DataRecipe, Given, Stack, TilePlan
from quantizer.core.errors import CaseError
from quantizer.core.model import Model
from quantizer.core.model_errors import explain

MAX_ELEMENTS = 1 << 24  # a stored case is data of others: these bounds keep one file from exhausting memory
MAX_WHOLE = 1 << 31
MAX_LIST = 8
MAX_TEXT = 200
MAX_CODE = 1 << 32
MAX_GIVEN = 1 << 18
"""Codes of a stored tensor."""
MAX_PARTS = 1 << 12
"""Data sets of a stack."""

Size = Annotated[int, Field(ge=0, le=1 << 24)]


def _finite(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"must be a finite number, got {value!r}")
    return float(value)


def _attribute(value: Any) -> Any:
    """Bound an attribute: whole numbers of 32 bits, finite real ones, short texts, lists of up to eight numbers."""
    items = value if isinstance(value, list) else [value]
    if len(items) > MAX_LIST or (isinstance(value, str) and len(value) > MAX_TEXT):
        raise ValueError(f"must be a short text or at most {MAX_LIST} numbers")
    for item in items:
        if isinstance(item, int) and abs(item) > MAX_WHOLE:
            raise ValueError(f"must lie within +-{MAX_WHOLE}")
        if isinstance(item, float):
            _finite(item)
    return value


Real = Annotated[float, BeforeValidator(_finite)]
Attribute = Annotated[bool | int | float | str | list[int], BeforeValidator(_attribute)]


Seed = Annotated[int, Field(ge=0, lt=1 << 64)]


class StackModel(Model):
    """The parts of a stored stack."""

    axis: Annotated[str, Field(min_length=1, max_length=MAX_TEXT)]
    parts: Annotated[list[Annotated[tuple[str, Seed], Field(strict=False)]], Field(min_length=1, max_length=MAX_PARTS)]


Code = Annotated[int, Field(ge=-MAX_CODE, le=MAX_CODE)]


class GivenModel(Model):
    """A tensor of a stored case whose codes a model file provides."""

    dtype: Annotated[str, Field(max_length=MAX_TEXT)]
    range: Annotated[list[Code], Field(min_length=2, max_length=2)]
    scale: Annotated[list[Real], Field(min_length=1, max_length=MAX_GIVEN)]
    zero_point: Annotated[list[Code], Field(min_length=1, max_length=MAX_GIVEN)]
    axis: Annotated[int, Field(ge=0, le=8)] | None = None
    shape: Annotated[list[Size], Field(max_length=8)]
    codes: Annotated[list[Code], Field(max_length=MAX_GIVEN)]

    def to_given(self) -> Given:
        """Return the tensor as the dataclass that the rest of the package uses."""
        low, high = self.range
        lists = tuple(self.scale), tuple(self.zero_point)
        return Given(self.dtype, (low, high), *lists, self.axis, tuple(self.shape), tuple(self.codes))


class DataModel(Model):
    """The data recipe of a stored case."""

    set: str
    seed: Seed
    kept: dict[str, list[list[Size]]] = {}
    stack: StackModel | None = None
    given: dict[str, GivenModel] = {}

    def to_stack(self) -> Stack | None:
        """Return the stack, if the recipe is one."""
        return None if self.stack is None else Stack(self.stack.axis, tuple(self.stack.parts))


class CaseModel(Model):
    """A stored case."""

    version: Literal[1]
    op: str
    scheme: str
    platform: str
    shapes: dict[str, Annotated[list[Size], Field(max_length=8)]]
    attrs: dict[str, Attribute]
    ranges: dict[str, Annotated[list[Real], Field(min_length=2, max_length=2)]]
    order: Literal["channels_first", "channels_last"]
    activation: Literal["none", "relu", "relu6"] = "none"
    tiles: dict[str, Annotated[int, Field(ge=1)]]
    data: DataModel

    def to_case(self) -> Case:
        """Return the case as the dataclass that the rest of the package uses."""
        attrs: dict[str, AttrValue] = {k: tuple(v) if isinstance(v, list) else v for k, v in self.attrs.items()}
        return Case(
            op=self.op,
            scheme=self.scheme,
            platform=self.platform,
            shapes={name: tuple(shape) for name, shape in self.shapes.items()},
            attrs=attrs,
            ranges={name: (pair[0], pair[1]) for name, pair in self.ranges.items()},
            order=self.order,
            tiles=TilePlan(dict(self.tiles)),
            data=DataRecipe(
                self.data.set,
                self.data.seed,
                {name: tuple(tuple(c) for c in coordinates) for name, coordinates in self.data.kept.items()},
                self.data.to_stack(),
                {name: tensor.to_given() for name, tensor in self.data.given.items()},
            ),
            activation=self.activation,
        )


M = TypeVar("M", bound=Model)


def read_model(model: type[M], raw: object, where: str) -> M:
    """Validate *raw*; CaseError lists every field that is wrong, with its value."""
    try:
        return model.model_validate(raw)
    except ValidationError as err:
        lines = [
            f"{where}: {'.'.join(map(str, finding.location)) or 'the file'}: {finding.text}"
            for finding in explain(err, model, raw)
        ]
        raise CaseError("\n".join(lines)) from None
