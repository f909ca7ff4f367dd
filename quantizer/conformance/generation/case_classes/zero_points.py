"""Cases whose zero points are exactly 0, or the first and the last code, with more elements than kernels block by.

Kernels have separate code for a zero point of 0: they leave out a correction, or copy codes. Drawn ranges seldom give
such a zero point, and then with few elements.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from quantizer.conformance.generation.builder import complete
from quantizer.conformance.generation.choice_sources import HashChoices
from quantizer.conformance.generation.dealing import dealt
from quantizer.conformance.generation.hashing import key
from quantizer.conformance.generation.ranges import activation_of
from quantizer.conformance.generation.units import Unit, bound_with, is_ours, units
from quantizer.conformance.target import Target
from quantizer.core.case import Case, Range
from quantizer.core.shapes import evaluate, infer_shapes
from quantizer.numerics.qparams import QParams

MIDDLE, ENDS = "middle", "ends"
KINDS = (MIDDLE, ENDS)
"""Cases of a platform, distributed over its targets with asymmetric codes.

middle: 0, or the middle of unsigned codes, for every operand and the output, which then have one zero point.
ends: the first code for the operands and the last one for the output, or another pair of SIDES.
"""
SIDES = (("first", "last"), ("last", "first"), ("last", "last"))
"""The ends of the codes that are the zero points of the operands and of the output."""
BLOCK = 64
"""Operands and output together have more elements than this: several vectors and a rest, or a block."""
TRIES = 64
"""The number of attempts: sizes may be illegal, too large, or leave an output with few elements."""


def zero_points(everything: Sequence[Target], target: Target) -> list[Case]:
    """Return the target's share of the KINDS that its platform's targets have among *everything*."""
    if not _is_asymmetric(target) or not is_ours(target.spec):
        return []
    kinds = dealt(filter(_is_asymmetric, everything), target, KINDS, "zero_points")
    return [case for kind in kinds if (case := _case(target, kind)) is not None]


def _is_asymmetric(target: Target) -> bool:
    """Return whether the rule gives activations a zero point other than 0."""
    part = target.scheme.activation
    return (
        part.format == "integer"
        and part.symmetry == "asymmetric"
        and part.rule != "power_of_two"
        and part.bits <= target.platform.parameters.symmetric_above_bits
    )


def _case(target: Target, kind: str) -> Case | None:
    spec, number = target.spec, key(0, target.id, kind)
    values = [n for n, item in spec.inputs.items() if n in spec.coded and item.kind == "value" and not item.domain]
    free = _free(target)
    if not free and (not values or kind == ENDS):
        return None
    chooser = HashChoices(number, {"data": "random", "tiles": "untiled", "activation": "none"})
    bound = _bound(target, number)
    if bound is None:
        return None
    present = list(spec.inputs)
    data = "random" if "random" in spec.data else spec.data[0]
    # first as drawn, since the requested ranges are as wide as the drawn ones
    drawn = complete(target, bound, present, data, number % (1 << 32), chooser)
    first, last = (MIDDLE, MIDDLE) if kind == MIDDLE else SIDES[number // 16 % len(SIDES)]
    asked = {name: _moved(target, drawn, name, first) for name in values}
    if kind == MIDDLE and not free and not _is_zero(activation_of(target, drawn.but(ranges=asked), values[0])):
        return None  # unsigned codes: no kernel that moves codes checks for their middle
    case = complete(target, bound, present, data, number % (1 << 32), chooser, asked)
    made = {name: _around(target, case, name, last) for name in free}
    return case.but(ranges={**case.ranges, **made})


def _free(target: Target) -> list[str]:
    """Return the outputs whose range the case decides."""
    spec, platform = target.spec, target.platform
    if spec.op in platform.fixed_outputs or spec.op in platform.fixed_ranges:
        return []
    if spec.quantization.family in (*platform.same_as_input, *platform.shared_parameters):
        return []
    return [n for n in spec.outputs if spec.quantization.outputs.get(n, "calibrated") == "calibrated"]


def _bound(target: Target, number: int) -> dict[str, Any] | None:
    """Return sizes and attributes with which operands and output have more than BLOCK elements."""
    spec, found = target.spec, [unit for unit in units(target) if _is_past_block(unit, target)]
    for step in range(TRIES if found else 0):
        unit = found[(number // 64 + step) % len(found)]
        bound = bound_with(spec, {unit.name: unit}, HashChoices(number + step, {"tiles": "untiled"}))
        if bound is not None and _has_many(target, bound):
            return bound
    return None


def _is_past_block(unit: Unit, target: Target) -> bool:
    domain = target.spec.dims.get(unit.name)
    is_size = domain is not None and (domain.type == "int" or unit.place is not None)
    return is_size and not unit.is_full and unit.value > BLOCK // 2


def _has_many(target: Target, bound: Mapping[str, Any]) -> bool:
    spec = target.spec
    shapes = {name: evaluate(item.axes, bound) for name, item in spec.inputs.items()}
    outputs = infer_shapes(spec, shapes, {name: bound[name] for name in spec.attrs})
    wide = [shapes[next(iter(spec.activations))], *outputs.values()]
    return all(math.prod(shape) > BLOCK for shape in wide)


def _moved(target: Target, case: Case, name: str, place: str) -> Range:
    """Return a range of *name* as wide as in the case, whose zero point is at *place*."""
    low, high = case.ranges[name]
    params = _codes(target, case, name, place)
    step = (high - low) / (params.qmax - params.qmin)
    return _range(params, step, _zero(params, place))


def _around(target: Target, case: Case, name: str, place: str) -> Range:
    """Return a range of an output with its zero point at *place* that ends where the results end.

    If no result lies on the side of 0 that the zero point leaves, the zero point is at the other end of the codes.
    """
    low, high = case.ranges[name]
    place = {"first": "first" if high > 0 else "last", "last": "last" if low < 0 else "first"}.get(place, place)
    params = _codes(target, case, name, place)
    zero = _zero(params, place)
    above, below = params.qmax - zero, zero - params.qmin
    # the smallest step with which both ends of the results have a code
    step = max(high / above if above else 0.0, -low / below if below else 0.0)
    return _range(params, step, zero) if step > 0 else case.ranges[name]


def _codes(target: Target, case: Case, name: str, place: str) -> QParams:
    """Return the parameters of a range of that kind; only its codes matter."""
    span = {"first": (0.0, 1.0), "last": (-1.0, 0.0)}.get(place, (-1.0, 1.0))
    return activation_of(target, case.but(ranges={**case.ranges, name: span}), name)


def _zero(params: QParams, place: str) -> int:
    middle = 0 if params.qmin < 0 else (params.qmax + 1) // 2
    return {"first": params.qmin, "last": params.qmax}.get(place, middle)


def _range(params: QParams, step: float, zero: int) -> Range:
    # float32, as a calibration run would report it
    low, high = (float(np.float32(step * (code - zero))) for code in (params.qmin, params.qmax))
    return low, high


def _is_zero(params: QParams) -> bool:
    return int(params.zero_point) == 0 and params.qmin < 0
