"""The magnitudes of blocks: no processor may round them in its own way."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from quantizer.conformance.generation.weight_blocks import SMALLER, _between_powers


def test_the_magnitude_of_a_block_is_the_exact_value_of_its_formula() -> None:
    places = np.array([0.0, 2.0**-52, 0.5, 1.0 - 2.0**-53, 1.0, 3.25, SMALLER - 2.0**-50])
    for place, found in zip(places, _between_powers(places), strict=True):
        whole = int(place)
        wanted = (1 - (Fraction(place) - whole) / 2) / Fraction(2) ** whole
        assert Fraction(float(found)) == Fraction(float(wanted))
        assert wanted - Fraction(float(found)) in (0, Fraction(1, 2**54))


def test_powers_of_two_stay_powers_of_two() -> None:
    assert _between_powers(np.arange(7.0)).tolist() == [2.0**-n for n in range(7)]
