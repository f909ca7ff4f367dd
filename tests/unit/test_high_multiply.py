"""The high multiply of oracles: 64-bit words and Python integers give the same numbers."""

from __future__ import annotations

import numpy as np
import pytest

from quantizer.conformance.oracle import high_multiplied


@pytest.mark.parametrize("wraps", [True, False])
@pytest.mark.parametrize("shift", [-3, 0, 20, 31, 33, 60, 95])
@pytest.mark.parametrize("multiplier", [0, 2**30, 2**31 - 1, 2**31])
def test_words_and_python_integers_agree(multiplier: int, shift: int, wraps: bool) -> None:
    values = np.array([0, 1, -1, 127, -(2**16), 2**31 - 1, -(2**31), 2**45 + 3, -(2**62)], np.int64)
    for chosen in (values, values[:5]):
        found = high_multiplied(chosen, multiplier, shift, wraps=wraps)
        expected = high_multiplied(chosen.astype(object), multiplier, shift, wraps=wraps)
        assert found.tolist() == expected.tolist()
        assert found.dtype == object
