"""The types of values in operator specs: expressions, attribute values, names."""

from __future__ import annotations

import math
from typing import Annotated, Literal

from pydantic import Discriminator, Field, PlainValidator, Tag, WithJsonSchema

from quantizer.core.errors import SpecError
from quantizer.core.expressions import Expression, parse, parse_axes
from quantizer.core.model_errors import IDENTIFIER
from quantizer.core.wording import got

Scalar = bool | int | float | str


def _to_expression(value: object) -> Expression:
    if isinstance(value, Expression):
        return value
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"must be a finite number or an expression, got {value!r}")
    # YAML reads 3 as a number: expressions start from text
    if isinstance(value, bool | int | float):
        value = repr(value)
    if not isinstance(value, str):
        # pydantic collects ValueError only
        raise ValueError(f"must be a number or an expression, got {got(value)}")  # noqa: TRY004
    try:
        return parse_axes(value) if value.startswith("*") else parse(value)
    except SpecError as err:
        raise ValueError(str(err).rstrip(".")) from None


def _to_value(value: object) -> Scalar | list[int]:
    if isinstance(value, bool | int | str) or (isinstance(value, float) and math.isfinite(value)):
        return value
    if isinstance(value, list) and all(type(item) is int for item in value):
        return value
    raise ValueError(f"must be a finite number, true, false, text or a list of integers, got {got(value)}")


def _to_end(value: object) -> Expression | float:
    return value if isinstance(value, float) and math.isinf(value) else _to_expression(value)


def _is_list(value: object) -> str:
    return "<list>" if isinstance(value, list) else "<expression>"


def _is_named(value: object) -> str:
    return "<names>" if isinstance(value, dict) else "<expression>"


_EXPRESSION_SCHEMA = {"type": ["string", "number", "boolean"]}
_VALUE_SCHEMA = {"type": ["string", "number", "boolean", "array"], "items": {"type": "integer"}}
Expr = Annotated[Expression, PlainValidator(_to_expression), WithJsonSchema(_EXPRESSION_SCHEMA)]
"""A number, or an expression over dimensions and attributes."""
ExprOrList = Annotated[
    Annotated[list[Expr], Tag("<list>")] | Annotated[Expr, Tag("<expression>")], Discriminator(_is_list)
]
"""A list of sizes, or one expression that yields them all."""
Value = Annotated[Scalar | list[int], PlainValidator(_to_value), WithJsonSchema(_VALUE_SCHEMA)]
"""The types of attributes and dimensions."""
Finite = Annotated[float, Field(allow_inf_nan=False)]
End = Annotated[Expression | float, PlainValidator(_to_end), WithJsonSchema(_EXPRESSION_SCHEMA)]
"""A number, infinity, or an expression over dimensions and attributes."""
Identifier = Annotated[str, Field(pattern=IDENTIFIER, max_length=40)]
Activation = Literal["relu", "relu6"]
"""Activations that a graph may fuse into an operator: relu is max(x, 0), relu6 is min(max(x, 0), 6)."""
StagedActivation = Literal["clip", "leakyrelu", "prelu"]
"""Activations that have arguments and round themselves. Layers of files have them, but no case of the gate."""
ExprOrNamed = Annotated[
    Annotated[dict[Identifier, Expr], Tag("<names>")] | Annotated[Expr, Tag("<expression>")], Discriminator(_is_named)
]
"""One expression, or one for each name."""
OneOrMoreKeys = Annotated[
    Annotated[list[str], Tag("<list>")] | Annotated[str, Tag("<expression>")], Discriminator(_is_list)
]
"""The key of an attribute, or one key for each entry of a list."""
