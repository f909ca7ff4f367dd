"""Cases in which the element that decides the result is the last of a row longer than a vector.

Kernels compare whole vectors first and the rest of a row afterwards, or not at all. With random data, the last of n
elements is the largest in only one row of n. A softmax first subtracts the largest element.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch

from quantizer.conformance.generation.builder import complete
from quantizer.conformance.generation.choice_sources import HashChoices
from quantizer.conformance.generation.fillers import LAST_ALONE, PATTERNS
from quantizer.conformance.generation.hashing import key
from quantizer.conformance.generation.units import Unit, batch_of, bound_with, is_ours
from quantizer.conformance.target import Target
from quantizer.core.case import Case, Range
from quantizer.core.shapes import infer_shapes, variables

VECTOR = 32
SIZES = (33, 40, 47, 65)
"""Lengths of a row: vectors of 16 and a rest of one, of half a vector, of all but one; and vectors of 32 and one."""
TRIES = 8
"""Attempts for each long axis: a stride may skip the last element, and an attribute may name another axis."""
SIGNS = (1.0, -1.0)
"""The largest element decides, or the smallest."""
SHARE = 0.25
"""The other end of the range, as a share of the end at which the element lies."""
SELECTIONS = ("index", "movement")
PARTS = 4096
"""Steps of 1 in which the range of a softmax is rounded."""


def last_of_row(target: Target) -> list[Case]:
    """Return a case of a target whose operator selects an element of a row, or its index, or is softmax."""
    spec = target.spec
    values = [name for name in spec.activations if spec.inputs[name].kind == "value"]
    if spec.error_model.kind not in (*SELECTIONS, "softmax") or list(spec.inputs) != values or not is_ours(spec):
        return []
    return next(([case] for case, sign in _candidates(target) if decides(target, case, sign)), [])


def _candidates(target: Target) -> Iterator[tuple[Case, float]]:
    """Yield cases with one long axis, or a long kernel, whose row is longer than VECTOR."""
    spec = target.spec
    kernels = [Unit("kernel", 0, 2)] if "kernel" in spec.attrs else []
    axes = [Unit(n, 0, place) for n, domain in spec.dims.items() if domain.type == "shape" for place in (2, 0, 1)]
    sizes = [Unit(n, 0) for n, domain in spec.dims.items() if domain.type == "int" and n != batch_of(spec)]
    (name,) = spec.inputs
    for step, long in enumerate((kernels or [*axes, *sizes[::-1]]) * TRIES):
        number = key(step, target.id, "last_of_row")
        unit = Unit(long.name, SIZES[number % len(SIZES)], long.place)
        chooser = HashChoices(number, {"data": "patterns", "tiles": "untiled"})
        bound = bound_with(spec, {unit.name: unit}, chooser)
        if bound is None:
            continue
        # `patterns` chooses by the remainder of the seed: this one is LAST_ALONE
        seed = number % (1 << 31) // len(PATTERNS) * len(PATTERNS) + LAST_ALONE
        for sign, span in _spans(target, unit.value):
            case = complete(target, bound, [name], "patterns", seed, chooser, {name: span})
            if row_of(target, case) > VECTOR:
                yield case, sign


def _spans(target: Target, row: float) -> list[tuple[float, Range]]:
    """Return a range for each sign of the deciding element.

    For a softmax, it is the range in which the element gives half of the sum: there, one code of the input changes the
    result most.
    """
    if target.spec.error_model.kind == "softmax":
        # a fraction of few bits: the last bit of a logarithm may differ between processors
        top = round(math.log(row - 1) * PARTS) / PARTS
        return [(1.0, (-top, top))]
    return [(sign, (-SHARE, 1.0) if sign > 0 else (-1.0, SHARE)) for sign in SIGNS]


def row_of(target: Target, case: Case) -> int:
    """Return the number of elements that an output element is selected from, or that share one sum with it."""
    spec, (shape,) = target.spec, case.shapes.values()
    if spec.error_model.kind == "softmax":
        axis = spec.error_model.axis
        assert axis is not None, "a softmax has an axis"
        return shape[int(axis(variables(spec, case.shapes, case.attrs))) % len(shape)]
    kernel = case.attrs.get("kernel")
    if isinstance(kernel, tuple):
        return math.prod(kernel)
    out = next(iter(infer_shapes(spec, case.shapes, case.attrs).values()))
    return math.prod(shape) // max(math.prod(out), 1)


def decides(target: Target, case: Case, sign: float) -> bool:
    """Return whether both the last and the first element decide the result if all others are 0."""
    ((name, shape),) = case.shapes.items()
    made = []
    for place in (-1, 0):
        values = torch.zeros(math.prod(shape), dtype=torch.float64)
        values[place] = sign
        made.append(float(target.reference({name: values.reshape(shape)}, case).reshape(-1)[place]))
    if target.spec.error_model.kind == "softmax":
        return made[0] == made[1]
    expected = [row_of(target, case) - 1.0, 0.0] if target.spec.error_model.kind == "index" else [sign, sign]
    return made == expected
