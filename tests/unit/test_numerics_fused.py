"""The fused multiply-add against rationals."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import torch

from quantizer.conformance.generation.hashing import integers
from quantizer.numerics.fused import multiply_add


def nearest(exact: Fraction) -> float:
    """Return the float32 number nearest to *exact*, of two the even one."""
    start = np.float32(float(exact))
    near = [np.nextafter(start, np.float32(end)) for end in (-np.inf, np.inf)]
    return float(min([start, *near], key=lambda v: (abs(Fraction(float(v)) - exact), int(v.view(np.int32)) & 1)))


def test_a_product_and_a_sum_are_rounded_once() -> None:
    mantissas = [integers(seed, name, (4000,), -(2**24) + 1, 2**24 - 1) for seed, name in enumerate("abc")]
    places = [integers(seed, "places", (4000,), -30, 6) for seed in range(3)]
    a, b, c = (torch.from_numpy(m * 2.0 ** (p - 24)).float() for m, p in zip(mantissas, places, strict=True))
    found = multiply_add(a, b, c).tolist()
    exact = [
        Fraction(x) * Fraction(y) + Fraction(z) for x, y, z in zip(a.tolist(), b.tolist(), c.tolist(), strict=True)
    ]
    assert found == [nearest(value) for value in exact]


def test_float64_would_round_twice() -> None:
    """1 + 2**-24 + 2**-60 lies above a tie of float32, which it is no more once float64 has rounded it."""
    a, b = torch.tensor(2.0**-24 * (1 + 2.0**-12)), torch.tensor(1 - 2.0**-12 + 2.0**-24)
    c = torch.tensor(1.0)
    assert Fraction(float(a)) * Fraction(float(b)) > Fraction(1, 2**24)
    assert float((a.double() * b.double() + c.double()).float()) == 1.0
    assert float(multiply_add(a, b, c)) == 1 + 2.0**-23
