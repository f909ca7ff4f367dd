"""Checks whether a stored case still fits its operator's spec, and finds its target."""

from __future__ import annotations

import math

import numpy as np

from quantizer.conformance.generation.datasets import check_sets
from quantizer.conformance.target import Target
from quantizer.core.case import AttrValue, Case
from quantizer.core.case_file import MAX_ELEMENTS
from quantizer.core.domains import fits, wanted
from quantizer.core.errors import CaseError, QuantizerError
from quantizer.core.library import Library, near_operator
from quantizer.core.roles import applies
from quantizer.core.shapes import infer_shapes
from quantizer.core.spec import Spec
from quantizer.tiling.stacks import cut_along
from quantizer.tiling.windows import tileable_axes

FLOAT32_MAX = float(np.finfo(np.float32).max)


def target_of(library: Library, case: Case, where: str) -> Target:
    """Return the target of a stored case; CaseError with *where* if the case no longer validates."""
    if case.op not in library.specs:
        near = near_operator(case.op, library.specs)
        raise CaseError(f"{where}: operator {case.op!r}: no spec is known. Name its folder with --op-specs.{near}")
    try:
        spec = library.spec(case.op)
        target = Target(spec, library.scheme(case.scheme), library.platform(case.platform))
        if not applies(spec, target.scheme, target.platform):
            if (target.scheme.weight is not None) == spec.has_weights:
                raise CaseError(f"scheme {case.scheme!r}: {case.op} has no such numbers on {case.platform}.")
            raise CaseError(f"scheme {case.scheme!r}: {case.op} {'needs' if spec.has_weights else 'has no'} weights.")
        check_case(spec, case)
    except QuantizerError as err:
        # of any kind: a user sees which file no longer fits
        raise CaseError(f"{where}: {err}") from None
    return target


def check_case(spec: Spec, case: Case) -> None:
    """Raise CaseError for a case that does not fit *spec*: attributes, shapes, ranges, data set, tiles."""
    for name, domain in spec.attrs.items():
        if name not in case.attrs or not fits(_plain(case.attrs[name]), domain):
            shown = repr(case.attrs[name]) if name in case.attrs else "nothing"
            raise CaseError(f"attrs.{name}: must be {wanted(domain)}, got {shown}.")
    shapes = infer_shapes(spec, case.shapes, case.attrs)
    for name, shape in {**case.shapes, **shapes}.items():
        if math.prod(shape) > MAX_ELEMENTS:
            raise CaseError(f"tensor {name!r}: shape {list(shape)} has more than {MAX_ELEMENTS} elements.")
    for name in [*case.shapes, *(n for n in spec.outputs if spec.quantization.outputs.get(n) is None)]:
        # a missing range is replaced by one that fails the comparison below
        low, high = case.ranges.get(name, (1.0, 0.0))
        if not -FLOAT32_MAX <= low <= high <= FLOAT32_MAX:
            raise CaseError(
                f"ranges.{name}: must be [smallest, largest] in float32, got {list(case.ranges.get(name, ()))}."
            )
    if case.activation not in ("none", *spec.fuses):
        raise CaseError(f"activation {case.activation!r}: must be one of {', '.join(('none', *spec.fuses))}.")
    _check_kept(case)
    check_sets(case)
    if case.data.stack is not None:
        cut_along(spec, case.shapes, case.attrs, case.data.stack.axis)
    legal = tileable_axes(spec, case.shapes, case.attrs)
    for axis in case.tiles.sizes:
        if axis not in legal:
            raise CaseError(f"tiles.{axis}: cannot be cut here; these can: {', '.join(legal) or 'none'}.")


def _check_kept(case: Case) -> None:
    for name, coordinates in case.data.kept.items():
        shape = case.shapes.get(name, ())
        for place in coordinates:
            if len(place) != len(shape) or any(i >= size for i, size in zip(place, shape, strict=True)):
                raise CaseError(f"data.kept.{name}: {list(place)} lies outside shape {list(shape)}.")


def _plain(value: AttrValue) -> object:
    return list(value) if isinstance(value, tuple) else value
