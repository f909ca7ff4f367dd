"""Cases of operators that work along an axis: a long one in each position, or one of size 1 beside a long one.

Sizes that are drawn one by one often make another axis long than the one that the operator works along, and only an
axis of the output exceeds a counter of 16 bits there. Kernels have separate loops for a table of many rows, a row
beyond all counters, and many rows of one element. An operator's targets share the cases: lengths do not depend on a
platform's numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from quantizer.conformance.generation.case_classes.joint_sizes import SUMMED, axes_shape, is_axis, joins, runs
from quantizer.conformance.generation.case_classes.past_counter import COUNTED
from quantizer.conformance.generation.dealing import spread
from quantizer.conformance.generation.fixed_sizes import of_fixed
from quantizer.conformance.generation.hashing import key
from quantizer.conformance.generation.units import is_ours
from quantizer.conformance.target import Target
from quantizer.core.case import Case, Range
from quantizer.core.spec import Spec

BLOCK, ROW, PAGE = 513, 1025, 4097
"""Exceed every block, a group of threads, and a counter of 12 bits."""
ABOVE = (0.0, 4.0)
"""Range of numbers whose mean is not 0, where the operator subtracts the mean."""


@dataclass(frozen=True)
class Kind:
    """A shape and the axis that the operator works along, as it is written."""

    shape: tuple[int, ...]
    axis: int


KINDS = (
    Kind((BLOCK, 3), 0),
    Kind((2, BLOCK, 3), 1),
    Kind((2, 3, PAGE), -1),
    Kind((2, 3, BLOCK), 2),
    Kind((COUNTED + 65, 2), 0),
    Kind((1, 2 * COUNTED + 65), -1),
    Kind((1, COUNTED + 65, 1), 2),
    Kind((1, 1, 1, ROW), -1),
)
"""The long axis is the first, an inner or the last one, counted from either end. Then: a table of more rows than 16
bits count; a row that exceeds 16 bits even if a step takes two elements; many rows of
one element; and one row behind axes of size 1, as networks end in."""


def long_rows(everything: Sequence[Target], target: Target) -> list[Case]:
    """Return the target's share of the cases that its operator's targets have."""
    spec = target.spec
    shape = axes_shape(spec)
    name = _axis_of(spec, shape) if shape else ""
    if not name or joins(spec)[0] or not is_ours(spec):
        return []
    kinds = [kind for kind in KINDS if kind.shape[kind.axis] <= _most(spec)]
    sharing = [each for each in everything if _beside_zero(each)] or everything
    made = [_case(target, shape, name, kind) for kind in spread(sharing, target, kinds, "long_rows")]
    return [case for case in made if case is not None]


def _axis_of(spec: Spec, shape: str) -> str:
    """Return the name of the first attribute that holds an axis or several axes; empty without one."""
    named = (name for name, domain in spec.attrs.items() if domain.type == "axes" or is_axis(domain, shape))
    return next(named, "")


def _most(spec: Spec) -> int:
    """Return the longest row: sums stay within an accumulator, and products within a format."""
    model = spec.error_model
    if model.terms is None or not model.terms.names or model.kind == "softmax":
        return max(max(kind.shape) for kind in KINDS)
    if model.kind == "product":
        return 1
    return BLOCK if model.kind in SUMMED and not runs(spec) else PAGE


def _case(target: Target, shape: str, name: str, kind: Kind) -> Case | None:
    is_list = target.spec.attrs[name].type == "axes"
    axis: Any = (kind.axis % len(kind.shape),) if is_list else kind.axis  # a list counts from the front
    number = key(0, target.id, "long_rows", str(kind))
    fixed = {shape: kind.shape, name: axis}
    return of_fixed(target, fixed, number, _beside_zero(target))


def _beside_zero(target: Target) -> dict[str, Range] | None:
    """Return a range on one side of 0 for the first operand of an operator that subtracts the mean; None for others.

    None if the scheme is symmetric about 0. Elements that a kernel adds behind a row are 0: they have no effect on a
    mean of 0.
    """
    spec, part = target.spec, target.scheme.activation
    is_shifted = spec.error_model.kind == "normalization" and part.symmetry != "symmetric"
    return {next(iter(spec.activations)): ABOVE} if is_shifted else None
