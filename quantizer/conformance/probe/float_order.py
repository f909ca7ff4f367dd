"""Infers the order and the format in which an engine adds float32 numbers, by masks of large numbers.

Two of n ones are replaced by M and -M. M is so large that adding 1 to it changes nothing. The result counts the ones
that are added after M and -M cancel. It is n minus the number of leaves below the node of the addition tree where the
two meet. Source: FPRev (Xie et al., 2024).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from quantizer.conformance.probe.question import Array
from quantizer.core.errors import QuantizerError
from quantizer.core.platforms import Platform
from quantizer.core.spec import Spec
from quantizer.runtime.engines.protocol import Call, Engine

TERMS = 32
MASKS: Mapping[str, float] = {"float32": 2.0**31, "float64": 2.0**60}
"""Format of a sum -> M. In this format, M absorbs as many ones as a row may have terms; in a wider format it does
not."""
Tree = int | tuple["Tree", ...]
SMALL = 2.0**-12


@dataclass(frozen=True)
class Order:
    """How a row is added."""

    format: str
    """Format of the sum; `wider than float64` if no mask absorbs a one."""
    order: str
    """In words, or as brackets."""
    fused: bool
    """Whether a product is added without first being rounded to float32."""

    def __str__(self) -> str:
        products = "products not rounded before they are added" if self.fused else "products rounded to float32 first"
        return f"sums in {self.format}, {self.order}, {products}"


def order_of(engine: Engine, spec: Spec, platform: Platform) -> Order | None:
    """Return how *engine* adds the float32 products of `fully_connected`; None if it runs no float models.

    One call for all masks, a row each: rows of other numbers may go to another kernel.
    """
    if "float" not in engine.checks:
        return None

    def product(rows: Array, weights: Array) -> Array:
        call = Call(spec, {}, "channels_first", "none", platform.places)
        operands = {
            "x": torch.from_numpy(rows.astype(np.float32)),
            "weight": torch.from_numpy(weights.astype(np.float32)),
        }
        found: Array = engine.run_float(call, operands).numpy().astype(np.float64).reshape(-1)
        return found

    try:
        fused = _fused(product)
        for kind, mask in MASKS.items():
            meets = _meets(product, mask)
            if meets is not None:
                return Order(kind, worded(tree_of(meets, range(TERMS))), fused)
    except QuantizerError:
        return None
    return Order("a format wider than float64", "in an order that cannot be seen", fused)


def _fused(product: Callable[[Array, Array], Array]) -> bool:
    # a * a = 1 + 2 s + s**2, and float32 rounds s**2 = 2**-24 away: it remains only if the product is not rounded
    a = 1.0 + SMALL
    rows = np.zeros((4, 2))
    rows[0], rows[1] = (-(1.0 + 2.0 * SMALL), a), (a, -(1.0 + 2.0 * SMALL))
    # with the product in second and in first place, because a kernel may round the first product
    first = product(rows, np.array([[1.0, a]]))[0]
    second = product(rows, np.array([[a, 1.0]]))[1]
    return SMALL * SMALL in (first, second)


def _meets(product: Callable[[Array, Array], Array], mask: float) -> Array | None:
    """Return, for each pair of terms, the number of terms below the node where they meet.

    None if *mask* does not absorb all ones in the format of the sum.
    """
    pairs = list(itertools.combinations(range(TERMS), 2))
    rows = np.ones((len(pairs), TERMS))
    for row, (i, j) in zip(rows, pairs, strict=True):
        row[i], row[j] = mask, -mask
    left = product(rows, np.ones((1, TERMS)))
    whole = np.round(left)
    if bool((left != whole).any()) or bool((whole < 0).any()) or bool((whole > TERMS - 2).any()):
        return None
    # no one was lost anywhere: the sum's format is wider than the mask is meant for
    if bool((whole == TERMS - 2).all()):
        return None
    found = np.zeros((TERMS, TERMS), dtype=int)
    for (i, j), count in zip(pairs, whole, strict=True):
        found[i, j] = found[j, i] = TERMS - int(count)
    return found


def tree_of(meets: Array, leaves: Sequence[int]) -> Tree:
    """Return the tree of additions over *leaves*; a node of more than two numbers adds them in one operation."""
    first, *rest = leaves
    tree: Tree = first
    for size in sorted({int(meets[first, other]) for other in rest}):
        # the leaves that join the first one at a node of this size; those that met before are one part of it
        group = [other for other in rest if meets[first, other] == size]
        parts: list[list[int]] = []
        for leaf in group:
            known = next((part for part in parts if meets[part[0], leaf] < size), None)
            if known is None:
                parts.append([leaf])
            else:
                known.append(leaf)
        tree = (tree, *(tree_of(meets, part) for part in parts))
    return tree


def worded(tree: Tree) -> str:
    """Return the tree in words (sequential, in lanes, pairwise), or in brackets if no words fit."""
    if isinstance(tree, int):
        return "of one term"
    if _chain(tree, list(range(TERMS))):
        return "one after the other"
    if _chain(tree, list(reversed(range(TERMS)))):
        return "one after the other, from the last to the first"
    # the sets of terms that are summed somewhere, in whatever order
    groups = {frozenset(_leaves(node)) for node in _nodes(tree)}
    for lanes in (16, 8, 4, 2):
        if all(frozenset(range(lane, TERMS, lanes)) in groups for lane in range(lanes)):
            return f"in {lanes} lanes, which are added at the end"
    if len(tree) > 2:
        return f"{len(tree)} at once"
    halves = [frozenset(range(start, start + 2)) for start in range(0, TERMS, 2)]
    if all(half in groups for half in halves):
        return "pairwise, neighbours first"
    return f"as {_brackets(tree)}"


def _chain(tree: Tree, leaves: list[int]) -> bool:
    """Return whether terms are added one after the other: each of *leaves* to the sum of the earlier ones."""
    for leaf in reversed(leaves[1:]):
        if isinstance(tree, int) or len(tree) != 2 or leaf not in tree:
            return False
        tree = tree[0] if tree[1] == leaf else tree[1]
    return tree == leaves[0]


def _nodes(tree: Tree) -> list[Tree]:
    return [tree] if isinstance(tree, int) else [tree, *(node for part in tree for node in _nodes(part))]


def _leaves(tree: Tree) -> list[int]:
    return [tree] if isinstance(tree, int) else [leaf for part in tree for leaf in _leaves(part)]


def _brackets(tree: Tree) -> str:
    return str(tree) if isinstance(tree, int) else f"({' '.join(map(_brackets, tree))})"
