"""The order of a float32 sum is seen through masks, whatever adds it."""

from functools import reduce

import numpy as np
import pytest
import torch

from quantizer.conformance.probe.float_order import order_of
from quantizer.core.library import load_library

LIBRARY = load_library()
SINGLE = np.float32


def one_by_one(terms):
    return reduce(lambda total, term: SINGLE(total + term), terms)


def backwards(terms):
    return one_by_one(terms[::-1])


def lanes(count):
    def added(terms):
        return one_by_one([one_by_one(terms[lane::count]) for lane in range(min(count, len(terms)))])

    return added


def pairwise(terms):
    while len(terms) > 1:
        terms = [one_by_one(terms[place : place + 2]) for place in range(0, len(terms), 2)]
    return terms[0]


def at_once(terms):
    """Return a sum as a tensor core computes it: fixed point under the largest exponent, low bits cut off."""
    largest = max(abs(float(term)) for term in terms)
    unit = 2.0 ** (np.frexp(largest)[1] - 24)
    return SINGLE(sum(np.trunc(float(term) / unit) for term in terms) * unit)


def double(terms):
    return reduce(lambda total, term: total + np.float64(term), terms)


def exactly(terms):
    return float(sum(map(int, terms))) if all(float(term).is_integer() for term in terms) else double(terms)


class Adder:
    checks = ("float",)

    def __init__(self, added, *, fused=False):
        self.added, self.fused = added, fused

    def run_float(self, call, operands):
        del call
        rows, (weights,) = operands["x"].numpy(), operands["weight"].numpy()
        if self.fused:
            return torch.tensor([[self._fused(row, weights)] for row in rows])
        return torch.tensor(
            [[float(self.added([SINGLE(x * w) for x, w in zip(row, weights, strict=True)]))] for row in rows]
        )

    @staticmethod
    def _fused(row, weights):
        total = 0.0
        for x, w in zip(row, weights, strict=True):
            total = float(SINGLE(float(x) * float(w) + total))
        return total


def order(added, **options):
    return order_of(Adder(added, **options), LIBRARY.specs["fully_connected"], LIBRARY.platforms["ideal"])


@pytest.mark.parametrize(
    ("added", "kind", "words"),
    (
        (one_by_one, "float32", "one after the other"),
        (backwards, "float32", "one after the other, from the last to the first"),
        (lanes(8), "float32", "in 8 lanes, which are added at the end"),
        (lanes(4), "float32", "in 4 lanes, which are added at the end"),
        (pairwise, "float32", "pairwise, neighbours first"),
        (at_once, "float32", "32 at once"),
        (double, "float64", "one after the other"),
        (exactly, "a format wider than float64", "in an order that cannot be seen"),
    ),
)
def test_probing_finds_the_order_of_a_float32_sum(added, kind, words):
    found = order(added)
    assert (found.format, found.order) == (kind, words)


def test_a_fused_product_is_distinguished_from_a_rounded_one():
    assert order(None, fused=True).fused
    assert not order(one_by_one).fused


def test_an_order_without_a_name_is_shown_as_brackets():
    def halves(terms):
        return one_by_one([one_by_one(half) for half in (terms[:16], terms[16:]) if half])

    assert order(halves).order.startswith("as ((((((((((((((((0 1) 2)")


def test_an_engine_without_float_models_has_no_order():
    engine = Adder(one_by_one)
    engine.checks = ("arithmetic",)
    assert order_of(engine, LIBRARY.specs["fully_connected"], LIBRARY.platforms["ideal"]) is None
