"""Expected parameters of normalisations: a second implementation that shares nothing with `numerics`."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quantizer.conformance.expected import multipliers as expected_multipliers
from quantizer.conformance.expected import parameters as expected_parameters
from quantizer.conformance.expected.parameters import Expected
from quantizer.core.platforms import Platform
from quantizer.core.schemes import Scheme

Array = NDArray[Any]
F32 = np.float32


def normalized(count: int, scheme: Scheme, platform: Platform) -> Expected:
    """Return the parameters of a value that is normalised over *count* elements: no such value leaves +-sqrt(count)."""
    reach = math.sqrt(count)
    return expected_parameters.activation((-reach, reach), scheme.activation, platform.parameters, signed=True)


def table_numbers(count: int, scheme: Scheme, platform: Platform, *, mean: bool = True) -> dict[str, int]:
    """Return the shifts and the multiplier for *count* elements.

    8 bits: the shift brings the largest possible sum of squares, about count * 2**14, to at most 2**18, so that its
    inverse root has 7 bits in units of 2**-15. The shift is rounded up to an even number, because half of it is undone
    after the root. 16 bits, or no *mean* to subtract: the multiplier of steps / 127.
    """
    bits = scheme.activation.bits
    if bits <= 8 and mean:
        shift = (count - 1).bit_length() - 4
        shift = shift + shift % 2
        return {"variance_shift": shift, "norm_multiplier": 1, "norm_shift": shift // 2}
    steps = normalized(count, scheme, platform).steps
    mantissa, places = expected_multipliers.float32_multiplier(
        F32(0 if steps is None else steps) / F32(127), min(15, bits)
    )
    own = {"norm_multiplier": int(mantissa), "norm_shift": places}
    return {"variance_shift": 0, **own} if mean else own


def effective(codes: Array, bits: int | None) -> Array:
    """Return the codes of a bias as the hardware reads them: the leading *bits* of the largest, in float32."""
    if bits is None or not codes.size:
        return codes
    largest = max(int(codes.max()) / (2 ** (bits - 1) - 1), -int(codes.min()) / 2 ** (bits - 1))
    if largest <= 1:
        return codes
    unit = 2 ** math.ceil(math.log2(largest))
    return np.asarray(np.floor_divide(codes, unit) * unit).astype(F32).astype(np.int64)


def inverse_roots(places: Array, unit: float) -> Array:
    """Return 1 / sqrt(m) in units, m = place / 64: the entries of the table of inverse roots, saturated to int16."""
    return np.asarray(np.minimum(1.0 / np.sqrt(places / 64.0) / unit, 2.0**15 - 1))
