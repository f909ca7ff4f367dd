"""Cases with an axis longer than 16 bits can count, and with as many outputs or terms: one per operator and platform.

Kernels for small processors keep sizes and offsets in 16 bits, and kernels for large ones take another path for large
tensors. All other cases are too small for either.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from quantizer.conformance.generation.builder import complete
from quantizer.conformance.generation.case_classes.last_of_row import row_of
from quantizer.conformance.generation.case_classes.usual_windows import filters_of
from quantizer.conformance.generation.choice_sources import HashChoices
from quantizer.conformance.generation.dealing import dealt, spread
from quantizer.conformance.generation.hashing import key
from quantizer.conformance.generation.units import MOST_TERMS, Unit, batch_of, bound_with, is_ours
from quantizer.conformance.target import Target
from quantizer.core.case import Case
from quantizer.core.shapes import evaluate, infer_shapes, variables
from quantizer.core.spec import Input, Spec

COUNTED = 1 << 16
"""The number of values that 16 bits hold."""
SIZES = (COUNTED + 65, COUNTED + 96, COUNTED + 127)
"""So far beyond it that some code differs; vectors of 32 leave a rest of one, none, or all but one."""
TRIES = 16
"""Attempts for each axis: other sizes, windows and attributes may be too large beside it, or cut it off."""
BYTE = 8
"""The most bits of codes whose sum over that many terms stays within 32 bits."""
MOST = (1 << 18, 1 << 19)
"""Most elements of all operands and the output, and most terms of all sums: three tensors of the largest size, and
short sums."""


def past_counter(everything: Sequence[Target], target: Target) -> list[Case]:
    """Return the case if *target* is the one of its platform's targets that has it.

    The long axis is one of the output, and no sum goes along it. An operator without such an axis has no case.
    """
    if not is_ours(target.spec) or not dealt(everything, target, ["long"], "past_counter"):
        return []
    units = _units(target.spec)
    turn = key(0, target.id, "past_counter")
    found = (_case(target, units[(turn + step) % len(units)], step) for step in range(TRIES * len(units)))
    return next(([case] for case in found if case is not None), [])


def past_counter_of_outputs(everything: Sequence[Target], target: Target) -> list[Case]:
    """Return the case with more outputs than 16 bits count, if *target* is the one of its operator's that has it.

    Where each input channel has its own outputs, there are as many inputs: engines count the outputs of one input in
    16 bits.
    """
    spec = target.spec
    name = filters_of(spec)
    if not is_ours(spec) or not name or not spread(everything, target, ["long"], "past_counter_of_outputs"):
        return []
    step_of = spec.dims[name].multiple_of
    # outputs that must be a multiple of another dimension, as in a depthwise convolution, are long together with it
    tied = tuple(other for other in (step_of.names if step_of is not None else ()) if other in spec.dims)
    found = (_case(target, Unit(name, 0), step, tied=tied) for step in range(TRIES))
    return next(([case] for case in found if case is not None), [])


def past_counter_of_sums(everything: Sequence[Target], target: Target) -> list[Case]:
    """Return the mean of more terms than 16 bits count, if *target* is the one of its operator's that has it.

    Its codes have at most 8 bits, so that the sum exceeds the 24 bits of float32 and stays within 32.
    """
    spec, terms = target.spec, target.spec.error_model.terms
    able = [each for each in everything if each.scheme.activation.bits <= BYTE]
    if not is_ours(spec) or spec.error_model.kind != "mean" or terms is None:
        return []
    units = [Unit(name, 0, 2 if spec.dims[name].type == "shape" else None) for name in spec.dims if name in terms.names]
    if not spread(able, target, ["long"], "past_counter_of_sums"):
        return []
    found = (_case(target, units[step % len(units)], step, is_sum=True) for step in range(TRIES * len(units)))
    return next(([case] for case in found if case is not None), [])


def _units(spec: Spec) -> list[Unit]:
    """Return the axes that may be long: sizes of a shape, or dimensions that no weight has.

    The batch is taken only if there is no other. Channels of weights have a case of their own.
    """
    shapes = [
        Unit(name, 0, place) for name, domain in spec.dims.items() if domain.type == "shape" for place in (0, 1, 2)
    ]
    held = {name for item in spec.inputs.values() if item.role != "activation" for name in _names(item)}
    sizes = [Unit(name, 0) for name, domain in spec.dims.items() if domain.type == "int" and name not in held]
    return shapes + ([unit for unit in sizes if unit.name != batch_of(spec)] or sizes)


def _names(item: Input) -> set[str]:
    """Return the dimensions by which the axes of an operand are computed."""
    return {name for axis in item.axes for name in axis.names} if isinstance(item.axes, list) else set(item.axes.names)


def _case(target: Target, axis: Unit, step: int, *, is_sum: bool = False, tied: tuple[str, ...] = ()) -> Case | None:
    """Return the case whose *axis* and *tied* dimensions are long in a result, or in a sum; None if too large."""
    number = key(step, target.id, "past_counter", axis.name)
    unit = replace(axis, value=SIZES[number % len(SIZES)])
    chooser = HashChoices(number, {"data": "random", "tiles": "untiled"})
    usual = {name: domain.default for name, domain in target.spec.attrs.items() if domain.type == "int"}
    asked = {name: Unit(name, value) for name, value in usual.items() if isinstance(value, int)} | {unit.name: unit}
    asked |= {name: Unit(name, unit.value) for name in tied}
    # twice the elements where a second dimension is long
    bound = bound_with(target.spec, asked, chooser, (MOST[0] << bool(tied), MOST[1]))
    if bound is None or not (_is_long_sum if is_sum else _is_long)(target.spec, bound):
        return None
    case = complete(target, bound, list(target.spec.inputs), "random", number % (1 << 32), chooser)
    # a row of a softmax is a sum, which must stay short, too
    return case if target.spec.error_model.kind != "softmax" or row_of(target, case) <= MOST_TERMS else None


def _is_long(spec: Spec, bound: Mapping[str, Any]) -> bool:
    """Return whether the output has the long axis, and sums are short."""
    shapes = {name: evaluate(item.axes, bound) for name, item in spec.inputs.items()}
    attrs = {name: bound[name] for name in spec.attrs}
    outputs, terms = infer_shapes(spec, shapes, attrs), spec.error_model.terms
    each = int(terms(variables(spec, shapes, attrs))) if terms is not None else 1
    return each <= MOST_TERMS and any(math.prod(shape) > COUNTED for shape in outputs.values())


def _is_long_sum(spec: Spec, bound: Mapping[str, Any]) -> bool:
    shapes = {name: evaluate(item.axes, bound) for name, item in spec.inputs.items()}
    terms = spec.error_model.terms
    known = variables(spec, shapes, {name: bound[name] for name in spec.attrs})
    return terms is not None and int(terms(known)) > COUNTED
