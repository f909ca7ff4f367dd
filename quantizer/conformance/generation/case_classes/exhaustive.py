"""Exhaustive cases for element-wise operators: every code, and every pair of 8-bit codes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from quantizer.conformance.generation.builder import complete
from quantizer.conformance.generation.case_classes.scaled import is_near, ranges_times
from quantizer.conformance.generation.choice_sources import HashChoices
from quantizer.conformance.generation.domains import draw
from quantizer.conformance.generation.hashing import key
from quantizer.conformance.generation.ranges import changed_range
from quantizer.conformance.target import Target
from quantizer.core.case import Case
from quantizer.core.domains import draw_order
from quantizer.core.errors import QuantizerError
from quantizer.core.shapes import evaluate, infer_shapes
from quantizer.core.spec import NoTiling, Spec

SET = "every_code"
WIDTHS = (1.0, 1.0, 2.0**-10, 2.0**10)
"""Factors of the operands' ranges, one case each; calibrations rarely give ranges as extreme as the last two."""
MOST_BITS = 16
"""If all operands of an element together have at most this many bits, one case holds every combination."""


def exhaustive_cases(target: Target) -> list[Case]:
    """Return cases that hold every combination of operand codes once, under narrow and wide scales.

    There are none if the operator is not element-wise, only moves codes, or if its operands together have more than
    MOST_BITS bits. It is element-wise if its one or two activations and its output have the same shape, and each output
    element depends only on the operand elements at the same place, so that tiles may cut every axis.
    """
    spec, bits = target.spec, target.scheme.activation.bits
    operands = list(spec.inputs.values())
    if not _is_pointwise(spec) or bits * len(operands) > MOST_BITS:
        return []
    cases = []
    for index, width in enumerate(WIDTHS):
        chooser = HashChoices(key(index, target.id, "whole"), {"tiles": "untiled"})
        bound = _bound(spec, bits * len(operands), chooser)
        if _is_one_shape(spec, bound):
            change = ranges_times(dict.fromkeys(spec.inputs, width))
            ranges = {name: changed_range(target, name, SET, chooser, bound, change) for name in spec.inputs}
            cases.append(complete(target, bound, list(spec.inputs), SET, index, chooser, ranges))
    return [case for case in cases if is_near(case)]


def _is_pointwise(spec: Spec) -> bool:
    activations = all(item.role == "activation" and item.kind == "value" for item in spec.inputs.values())
    if not activations or len(spec.inputs) > 2 or isinstance(spec.tiling, NoTiling) or list(spec.tiling) != ["*"]:
        return False
    rule, kind = spec.tiling["*"], spec.error_model.kind
    return rule.rule == "independent" and rule.when is None and kind != "movement"


def _bound(spec: Spec, bits: int, chooser: HashChoices) -> dict[str, Any]:
    """Return the values of dimensions and attributes, each shape of 2**bits elements."""
    bound: dict[str, Any] = {}
    for name in draw_order(spec):
        domain = spec.dims.get(name) or spec.attrs[name]
        if name in spec.dims and domain.type == "shape":
            least, most = domain.rank or (1, 2)
            # 16 bits as [256, 256]; one axis only where the shape cannot have a second
            sizes = (1 << bits // 2, 1 << bits - bits // 2) if most > 1 else (1 << bits,)
            bound[name] = (1,) * (least - len(sizes)) + sizes
        else:
            bound[name] = draw(name, domain, chooser, bound)
    return bound


def _is_one_shape(spec: Spec, bound: Mapping[str, Any]) -> bool:
    """Return whether all operands and outputs have one shape; False if the spec rejects these values."""
    shapes = {name: evaluate(item.axes, bound) for name, item in spec.inputs.items()}
    try:
        outputs = infer_shapes(spec, shapes, {name: bound[name] for name in spec.attrs})
    except QuantizerError:
        return False
    return len({*shapes.values(), *outputs.values()}) == 1
