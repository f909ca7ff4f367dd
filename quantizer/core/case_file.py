"""Reading stored cases: every field checked, sizes bounded."""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin

from pydantic import BeforeValidator, Field, ValidationError

from quantizer.core.case import AttrValue, Case, DataRecipe, Given, Stack, TilePlan
from quantizer.core.errors import CaseError
from quantizer.core.model import Model
from quantizer.core.model_errors import explain
from quantizer.core.rooms import UNRELEASED_ENGINE
from quantizer.core.yaml_source import shown_location

MAX_ELEMENTS = 1 << 24  # a stored case is data of others: these bounds keep one file from exhausting memory
MAX_WHOLE = 1 << 31
MAX_LIST = 8
MAX_TEXT = 200
MAX_CODE = 1 << 32
MAX_GIVEN = 1 << 18
"""The largest number of codes of a stored tensor."""
MAX_PARTS = 1 << 12
"""Data sets of a stack."""
FIRST = "1.0.0rc1"
"""The first release. Names that only builds before it used are refused."""

Size = Annotated[int, Field(ge=0, le=1 << 24)]


def _finite(value: Any) -> Any:
    # True is an int in Python and would become 1.0
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"must be a finite number, got {value!r}")
    return float(value)


def _attribute(value: Any) -> Any:
    """Bound an attribute: 32-bit integers, finite real numbers, short texts, lists of up to eight numbers."""
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
    """The dimension along which the data sets lie one after the other."""
    parts: Annotated[list[Annotated[tuple[str, Seed], Field(strict=False)]], Field(min_length=1, max_length=MAX_PARTS)]
    """Name and seed of each data set."""


Code = Annotated[int, Field(ge=-MAX_CODE, le=MAX_CODE)]


class GivenModel(Model):
    """A tensor of a stored case whose codes a model file provides."""

    dtype: Annotated[str, Field(max_length=MAX_TEXT)]
    """Number format of the codes."""
    range: Annotated[list[Code], Field(min_length=2, max_length=2)]
    """Smallest and largest code."""
    scale: Annotated[list[Real], Field(min_length=1, max_length=MAX_GIVEN)]
    """One scale, or one for each slice along `axis`."""
    zero_point: Annotated[list[Code], Field(min_length=1, max_length=MAX_GIVEN)]
    """One zero point, or one for each slice along `axis`."""
    axis: Annotated[int, Field(ge=0, le=8)] | None = None
    """Axis of the scales and zero points; absent if one scale holds for the whole tensor."""
    shape: Annotated[list[Size], Field(max_length=8)]
    """Sizes of the tensor."""
    codes: Annotated[list[Code], Field(max_length=MAX_GIVEN)]
    """The codes in row-major order; no codes for a result."""

    def to_given(self) -> Given:
        """Return the tensor as the dataclass that the rest of the package uses."""
        low, high = self.range
        lists = tuple(self.scale), tuple(self.zero_point)
        return Given(self.dtype, (low, high), *lists, self.axis, tuple(self.shape), tuple(self.codes))


class DataModel(Model):
    """The data recipe of a stored case."""

    set: str
    """Name of the data set."""
    seed: Seed
    """Seed of the values."""
    kept: dict[str, list[list[Size]]] = {}
    """Tensor -> coordinates whose values shrinking kept; all others are replaced."""
    stack: StackModel | None = None
    """The data sets of a stack; absent for a single one."""
    given: dict[str, GivenModel] = {}
    """Tensor -> scales, zero points and codes from a model."""

    def to_stack(self) -> Stack | None:
        """Return the stack, if the recipe is one."""
        return None if self.stack is None else Stack(self.stack.axis, tuple(self.stack.parts))


class CaseModel(Model):
    """The JSON content of a stored case."""

    version: Literal[1]
    """Version of the file format."""
    op: str
    """Operator."""
    scheme: str
    """Scheme of `schemes.yaml`."""
    platform: str
    """Platform."""
    shapes: dict[str, Annotated[list[Size], Field(max_length=8)]]
    """Operand -> its sizes, in the order of the operator."""
    attrs: dict[str, Attribute]
    """Attribute -> value."""
    ranges: dict[str, Annotated[list[Real], Field(min_length=2, max_length=2)]]
    """Tensor -> calibrated range."""
    order: Literal["channels_first", "channels_last"]
    """Order of axes in which the graph holds its operands."""
    activation: Literal["none", "relu", "relu6"] = "none"
    """Fused activation."""
    tiles: dict[str, Annotated[int, Field(ge=1)]]
    """Dimension -> size of a tile."""
    data: DataModel
    """How the operands are filled."""

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


def refuse_later(raw: object, known: int, where: str) -> None:
    """Raise CaseError if *raw* states a later version than *known*.

    Called first, so that new keys are not reported instead.
    """
    version = raw.get("version") if isinstance(raw, dict) else None
    if isinstance(version, int) and version > known:
        raise CaseError(
            f"{where}: version {version} of this kind of file. This quantizer reads up to version {known}. "
            "Use the one that wrote it."
        )


def refuse_unreleased(raw: object, where: str) -> None:
    """Raise CaseError if *raw* has a word that only builds before the first release wrote; the version is the same."""
    if not isinstance(raw, dict):
        return
    checks = raw.get("checks")
    # a record has its counts at the top and under each check
    counts = [raw, *(checks.values() if isinstance(checks, dict) else ())]
    old = next(
        (word for word in ("holes", "hole") for count in counts if isinstance(count, dict) and word in count), None
    )
    if old is None and raw.get("engine") == UNRELEASED_ENGINE:
        old = f"engine {UNRELEASED_ENGINE}"
    if old is not None:
        text = f"holds `{old}`, a word of a build before {FIRST}, whose files no release reads"
        raise CaseError(f"{where}: {text}. Run again and write it anew.")


def read_model(model: type[M], raw: object, where: str) -> M:
    """Validate *raw*; CaseError lists every wrong field with its value, or says that the file has another version."""
    field = model.model_fields.get("version")
    # the schema names the versions that it reads as a Literal
    if field is not None and get_origin(field.annotation) is Literal:
        refuse_later(raw, max(get_args(field.annotation)), where)
    refuse_unreleased(raw, where)
    try:
        return model.model_validate(raw)
    except ValidationError as err:
        lines = [
            f"{where}: {shown_location(finding.location) or 'the file'}: {finding.text}"
            for finding in explain(err, model, raw)
        ]
        raise CaseError("\n".join(lines)) from None
