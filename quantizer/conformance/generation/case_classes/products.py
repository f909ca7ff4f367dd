"""Cases of products of matrices: equal sizes past a block, whole blocks of a longer sum, and a batch of single rows.

Kernels take square matrices for the case that they were tuned with, add up a sum in several whole parts, and merge a
batch of rows into one matrix. Drawn sizes are seldom equal, and seldom one just where a batch meets a shared operand.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from quantizer.conformance.generation.dealing import spread
from quantizer.conformance.generation.fixed_sizes import of_fixed
from quantizer.conformance.generation.hashing import key
from quantizer.conformance.generation.units import is_ours, is_window
from quantizer.conformance.target import Target
from quantizer.core.case import Case
from quantizer.core.spec import Spec

PAST_BLOCK, RESTS = 65, 7
"""The smallest equal size, past a block of 64, and how many of them there are. None is a multiple of 8."""
BATCH = (5,)
"""Axes before the matrices of the first operand; the second has none."""
BLOCKS: Mapping[str, int] = {"whole blocks of 16": 16, "whole blocks of 32": 32}
"""Cases with one whole block of rows and of columns, whose sums have PARTS blocks."""
PARTS = (2, 3, 4)
EQUAL, ROWS = "equal sizes", "a batch of rows"


def products(everything: Sequence[Target], target: Target) -> list[Case]:
    """Return the target's share of the cases that its operator's targets have."""
    spec = target.spec
    sizes = _sizes(spec)
    if not sizes or not is_ours(spec):
        return []
    has_batch = any(domain.broadcasts_to for domain in spec.dims.values())
    kinds = spread(everything, target, (EQUAL, ROWS) if has_batch else (EQUAL,), "products")
    kinds += spread(everything, target, tuple(BLOCKS), "blocks of products")
    made = [_case(target, sizes, kind) for kind in kinds]
    return [case for case in made if case is not None]


def _sizes(spec: Spec) -> list[str]:
    """Return the sizes of an operator whose terms are counted by one of several sizes, without windows."""
    names = [name for name, domain in spec.dims.items() if domain.type == "int"]
    terms = spec.error_model.terms
    counted = terms is not None and any(name in terms.names for name in names)
    is_product = spec.error_model.kind == "bilinear" and counted and not any(is_window(spec, name) for name in names)
    return names if is_product and len(names) > 1 else []


def _case(target: Target, sizes: Sequence[str], kind: str) -> Case | None:
    number = key(0, target.id, "products", kind)
    shapes = [name for name, domain in target.spec.dims.items() if domain.type == "shape"]
    fixed: dict[str, Any] = dict.fromkeys(shapes, ())
    if kind == EQUAL:
        fixed |= dict.fromkeys(sizes, PAST_BLOCK + number % RESTS)
    elif kind in BLOCKS:
        block, terms = BLOCKS[kind], target.spec.error_model.terms
        counted = terms.names if terms is not None else ()
        fixed |= {name: block * (PARTS[number % len(PARTS)] if name in counted else 1) for name in sizes}
    else:
        fixed |= {shapes[0]: BATCH, sizes[0]: 1}
    return of_fixed(target, fixed, number)
