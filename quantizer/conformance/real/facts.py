"""The variables that the condition of a report may use: shapes, attributes and provided numbers of a call."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from quantizer.core.errors import QuantizerError
from quantizer.core.shapes import infer_shapes, variables
from quantizer.core.spec import Spec
from quantizer.numerics.bitwise import bitwise_equal
from quantizer.numerics.qparams import Parameters, QParams

INT32_LIMIT = (1 << 31) - 1

NAMES = (
    "platform",
    "fused",
    "has_bias",
    "out",
    "elements",
    "rows",
    "terms",
    "bits",
    "weight_bits",
    "block",
    "per_channel",
    "weight_zero",
    "zero",
    "first",
    "last",
    "unsigned",
    "low",
    "high",
    "y_zero",
    "y_first",
    "y_last",
    "y_top",
    "same_scale",
    "same_inputs",
    "ratio_low",
    "ratio_high",
    "ratio_top",
    "bias_at_limit",
    "f32",
)
"""Names in addition to dimensions and attributes. An attribute of the same name takes precedence, as `low` of a clip.

zero, first, last, low, high: zero point, end codes and range of the first operand; y_*: those of the output. out,
elements: shape and size of the output; rows: its size without the last axis; terms: the number of terms in one sum.
ratio_low, ratio_high: the smallest and the largest multiplier, 1 without one. ratio_top: the largest multiplier as a
share of the next power of two. bias_at_limit: whether a bias code is at an end of 32 bits. f32: whether the
multiplier is a float32 number. block: the number of weights in a block that share a scale; 0 without blocks.
"""


def facts(
    spec: Spec,
    shapes: Mapping[str, tuple[int, ...]],
    attrs: Mapping[str, Any],
    provided: Parameters,
    ranges: Mapping[str, tuple[float, float]] | None = None,
) -> dict[str, Any]:
    """Return every name that a condition may use; QuantizerError if the operands do not fit together.

    *ranges*: the ranges given to the rule; by default the ranges that its codes cover.
    """
    bound = variables(spec, shapes, attrs)
    out = infer_shapes(spec, shapes, attrs)["y"]
    inputs, y = list(provided.inputs.values()), next(iter(provided.outputs.values()))
    x = inputs[0] if inputs else y
    ratio = _ratios(provided)
    held = [constant for name, constant in provided.constants.items() if spec.inputs[name].role == "weight"]
    biases = [constant for name, constant in provided.constants.items() if spec.inputs[name].role == "bias"]
    terms = spec.error_model.terms
    low, high = (ranges or {}).get(next(iter(spec.activations)), _span(x))
    return {
        "platform": provided.platform.platform,
        "fused": provided.activation,
        "has_bias": bool(biases),
        "out": out,
        "elements": math.prod(out),
        "rows": math.prod(out[:-1]),
        "terms": 1 if terms is None else int(terms(bound)),
        "bits": x.bits,
        "weight_bits": held[0].params.bits if held else 0,
        "block": next((c.params.blocks.size for c in provided.constants.values() if c.params.blocks is not None), 0),
        "per_channel": bool(held) and held[0].params.axis is not None,
        "weight_zero": int(held[0].params.zero_point.abs().max()) if held else 0,
        "zero": int(x.zero_point),
        "first": x.qmin,
        "last": x.qmax,
        "unsigned": x.qmin >= 0,
        "low": low,
        "high": high,
        "y_zero": int(y.zero_point),
        "y_first": y.qmin,
        "y_last": y.qmax,
        "y_top": _span(y)[1],
        "same_scale": _equal(x, y),
        "same_inputs": all(_equal(x, other) for other in inputs),
        "ratio_low": float(ratio.min()),
        "ratio_high": float(ratio.max()),
        "ratio_top": float(torch.frexp(ratio).mantissa.max()),
        "bias_at_limit": any(int(b.codes.abs().max()) >= INT32_LIMIT for b in biases if b.codes.numel()),
        "f32": provided.rescale is not None and provided.rescale.variant.startswith("f32"),
        # last, so that an attribute replaces a general name
        **bound,
    }


def holds(when: Any, known: Mapping[str, Any]) -> bool:
    """Return whether the condition is true; False if it uses a name that the operator does not have here."""
    try:
        return bool(when(known))
    except QuantizerError:
        return False


def _ratios(provided: Parameters) -> Tensor:
    rescale = provided.rescale
    if rescale is None:
        return torch.ones(1, dtype=torch.float64)
    return (rescale.mantissa.double() * torch.exp2(-rescale.shift.double()) / rescale.divisor).reshape(-1)


def _span(params: QParams) -> tuple[float, float]:
    scale, zero = float(params.scale.max()), int(params.zero_point.reshape(-1)[0])
    return scale * (params.qmin - zero), scale * (params.qmax - zero)


def _equal(one: QParams, other: QParams) -> bool:
    return bitwise_equal(one.scale, other.scale) and bitwise_equal(one.zero_point, other.zero_point)
