"""Cases of products of matrices: every class of rows, terms and columns together, as kernels block all three.

One row has a kernel of its own, and so have whole blocks of rows and the rest of them, beside whole vectors of columns
or a rest, for sums within a block or past it.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

from quantizer.conformance.generation.dealing import share
from quantizer.conformance.generation.fixed_sizes import drawn_with, plain_choices
from quantizer.conformance.generation.hashing import key
from quantizer.conformance.generation.input_ranges import with_input_range
from quantizer.conformance.generation.units import ROOM, is_cheap, is_ours
from quantizer.conformance.target import Target
from quantizer.core.case import Case
from quantizer.core.spec import Spec

ROWS, TERMS, COLUMNS = (1, 4, 6), (16, 67, 132, 400), (16, 19, 36)
"""Sizes: one row, a block of four, and a block and a rest; a vector of terms, and past blocks of 64, 128 and 256 with
or without a rest of a quarter; whole vectors of columns, and two rests of them."""

FEW, TILE, WIDE = (1, 2, 8), (32,), (64, 160)
"""Rows below a tile by one tile of terms and several whole tiles of columns: two, and more than four."""


def matrices(everything: Sequence[Target], target: Target, *, strong: bool = False) -> list[Case]:
    """Return the target's share of the cases that its operator's targets have, or its platform's if *strong*."""
    names = _names(target.spec) if is_ours(target.spec) else ()
    kinds = [*itertools.product(ROWS, TERMS, COLUMNS), *itertools.product(FEW, TILE, WIDE)] if names else []
    found = [
        _case(target, dict(zip(names, sizes, strict=True)))
        for sizes in share(everything, target, kinds, "matrices", strong=strong)
    ]
    return [case for case in found if case is not None]


def _names(spec: Spec) -> tuple[str, ...]:
    """Return the dimensions of rows, terms and columns; none unless the operator is a product of two matrices."""
    terms = spec.error_model.terms
    if spec.error_model.kind != "bilinear" or terms is None or len(spec.inputs) < 2 or "stride" in spec.attrs:
        return ()
    operands = list(spec.inputs.values())[:2]
    first, second = ([axis.text for axis in item.axes] if isinstance(item.axes, list) else [] for item in operands)
    if len(first) < 2 or first[-1] not in terms.names or first[-1] not in second:
        return ()
    return first[-2], first[-1], next(name for name in reversed(second) if name != first[-1])


def _case(target: Target, fixed: Mapping[str, int]) -> Case | None:
    spec, number = target.spec, key(0, target.id, "matrices", *map(str, fixed.values()))
    chooser = plain_choices(number)
    bound = drawn_with(spec, fixed, chooser)
    if bound is None or not is_cheap(spec, bound, ROOM):
        return None
    present = [name for name, item in spec.inputs.items() if number // 64 % 4 or not item.optional]
    return with_input_range(target, bound, present, number, chooser)
