"""Cases cut out of a model: codes, scales and zero points are the model's."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from quantizer.core.case import Case, Given
from quantizer.core.dtypes import dtype
from quantizer.core.errors import CaseError
from quantizer.core.platforms import Platform
from quantizer.core.schemes import Scheme
from quantizer.core.spec import Spec
from quantizer.numerics.provided_request import ProvidedRequest
from quantizer.numerics.qparams import Constant, QParams
from quantizer.numerics.quantize import dequantize

GIVEN = "given"
"""The data set of such a case."""
OF_RULES = ("parameters", "pipeline")
"""Checks of a quantize rule's results for calibrated ranges: the scales of such a case come from the model."""


def given_of(params: QParams, shape: tuple[int, ...], codes: Tensor | None) -> Given:
    """Return a tensor of a model as plain data; codes: None for a result."""
    scale, zero = params.scale.reshape(-1).tolist(), params.zero_point.reshape(-1).tolist()
    listed = () if codes is None else tuple(codes.reshape(-1).tolist())
    axis = None if params.axis is None or not params.scale.dim() else params.axis % max(len(shape), 1)
    return Given(str(params.dtype), (params.qmin, params.qmax), tuple(scale), tuple(zero), axis, shape, listed)


def params_of(given: Given, shape: tuple[int, ...] | None = None) -> QParams:
    """Return the parameters of a tensor; if it is cut to *shape*, only the remaining slices have parameters."""
    scale, zero = torch.tensor(given.scale, dtype=torch.float64), torch.tensor(given.zero_point)
    if given.axis is None:
        scale, zero = scale.reshape(()), zero.reshape(())
    low, high = given.codes_from_to
    params = QParams(dtype(given.dtype), scale, zero, low, high, given.axis)
    if given.axis is None or shape is None or len(shape) != len(given.shape):
        return params
    return params.sliced(0, shape[given.axis])


def codes_of(case: Case, name: str) -> Tensor:
    """Return the codes of an operand, int64: the first ones along every axis of a case that was made smaller.

    Elements that the case does not keep are 0. CaseError if the shape needs more codes than there are.
    """
    given, shape = case.data.given[name], case.shapes[name]
    codes = torch.tensor(given.codes, dtype=torch.int64).reshape(given.shape)
    if len(shape) == len(given.shape):
        codes = codes[tuple(slice(size) for size in shape)]
    else:
        codes = codes.reshape(-1)[: math.prod(shape)]
    if codes.numel() != math.prod(shape):
        raise CaseError(f"data.given.{name}: has shape {list(given.shape)}, the case asks for {list(shape)}.")
    codes = codes.reshape(shape).clone()
    if name not in case.data.kept:
        return codes
    params = params_of(given, shape)
    kept = params.along(params.zero_point, codes.dim()).expand(codes.shape).clone()
    for place in case.data.kept[name]:
        kept[place] = codes[place]
    return kept


def values_of(case: Case, name: str) -> Tensor:
    """Return the real values of an operand's codes, in float64."""
    return dequantize(codes_of(case, name), params_of(case.data.given[name], case.shapes[name]))


def provided_request(
    spec: Spec, scheme: Scheme, platform: Platform, case: Case, constants: Mapping[str, Tensor]
) -> ProvidedRequest:
    """Return the request for a quantize rule.

    The rule chooses multipliers and tables, the model has chosen everything else.

    A bias into which the platform folds zero points is folded by the rule, from its real numbers.
    """
    grids = {name: params_of(case.data.given[name], case.shapes[name]) for name in case.shapes}
    grids = {name: _with_steps(platform, params) for name, params in grids.items()}
    absorbs = spec.quantization.family in platform.absorbs_zero_point
    weights = {
        name: Constant(codes_of(case, name), grids[name])
        for name in constants
        if not (absorbs and spec.inputs[name].role == "bias")
    }
    inputs = {name: params for name, params in grids.items() if spec.inputs[name].role == "activation"}
    output = _with_steps(platform, params_of(case.data.given["y"]))
    return ProvidedRequest(
        spec,
        scheme,
        platform,
        case.shapes,
        case.attrs,
        case.ranges,
        constants,
        inputs,
        activation=case.activation,
        output_params=output,
        weights=weights,
    )


def _with_steps(platform: Platform, params: QParams) -> QParams:
    """Return parameters with codes per unit if the platform's arithmetic multiplies by that number."""
    if platform.parameters.scale != "float32_steps":
        return params
    return replace(params, steps=(1.0 / params.scale).float())


def cropped(case: Case) -> Case:
    """Return the same case without the codes that it does not read."""
    found = {}
    for name, given in case.data.given.items():
        if name == "y":
            found[name] = given
        elif name in case.shapes:
            shape = case.shapes[name]
            found[name] = given_of(params_of(given, shape), shape, codes_of(case, name))
    return case.but(data=replace(case.data, kept={}, given=found))


def check_given(case: Case) -> None:
    """Raise CaseError if a tensor of a case from a model is missing or contradicts itself."""
    if case.data.set != GIVEN or case.data.stack is not None or "y" not in case.data.given:
        raise CaseError(f"data: the set {GIVEN!r} has `given`, the result y in it, and no stack; other sets have none.")
    for name in (*case.shapes, "y"):
        given = case.data.given.get(name)
        if given is None:
            raise CaseError(f"data.given: has no tensor {name!r}. Give its codes and its grid.")
        scales = 1 if given.axis is None else (*given.shape, *[0] * 9)[given.axis]
        if not len(given.scale) == len(given.zero_point) == scales or min(given.scale) <= 0:
            raise CaseError(f"data.given.{name}: must have {scales} scales above 0 and as many zero points.")
        low, high = given.codes_from_to
        if name != "y" and len(given.codes) != math.prod(given.shape):
            raise CaseError(f"data.given.{name}: {len(given.codes)} codes for shape {list(given.shape)}.")
        if given.codes and not low <= min(given.codes) <= max(given.codes) <= high:
            raise CaseError(f"data.given.{name}: a code lies outside [{low}, {high}].")
