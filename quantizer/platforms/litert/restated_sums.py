"""A second implementation of the 8-bit sums of LiteRT's optimized ADD, in numpy: whole vectors, and the rest of a row.

The results of 16-bit lanes for large numbers are not modelled: they are declared as a defect.
"""

from __future__ import annotations

import itertools
import math

import numpy as np

from quantizer.conformance.oracle import Array, Asked, high_multiplied
from quantizer.core.platform_settings import NARROW_BITS

ROW, SCALAR = 16, 8
"""Elements in a vector: of two rows, and of a row and a scalar."""
GROUPS = ("both", "scalar", "both", "other", "both")
"""Groups of axes, innermost first, for which vectors are used: along both operands, or along one."""


def addition(asked: Asked) -> Array | None:
    """Return the codes of an 8-bit sum, which depend on an element's position in the row.

    None for operators without vectors.
    """
    bits = asked.scheme.activation.bits
    # 16-bit ADD and XNNPACK's sums have no such vectors
    if bits > NARROW_BITS or asked.variant != "q31_double":
        return None
    assert asked.rescale is not None
    places, (one, two) = asked.platform.multiplier.places(bits), (codes.shape for codes in asked.codes.values())
    length, whole, scalar = row_of(one, two)
    # the sum in vectors, and in the rest of a row; Python integers, which cannot overflow
    sums = [np.zeros(asked.shape, dtype=object) for _ in range(2)]
    for name in asked.codes:
        fraction, exponent = math.frexp(asked.rescale.factors[name])
        centred, multiplier = asked.centred(name).astype(object), int(fraction * 2**31)
        left = places if scalar else places + exponent
        product = (centred << left if left >= 0 else centred >> -left) * multiplier
        # vqrdmulh of the lanes: half up
        rounded = (product + 2**30) >> 31
        # a row and a scalar: the right shift comes last and rounds down
        sums[0] = sums[0] + (rounded >> -exponent if scalar else rounded)
        # outside vectors: the scalar code, two roundings
        sums[1] = sums[1] + high_multiplied(centred << places, multiplier, 31 - exponent)
    index = np.arange(math.prod(asked.shape)).reshape(asked.shape)
    # by an element's place in its row
    total = np.where(index % max(length, 1) < whole, *sums)
    scaled = high_multiplied(total, int(asked.rescale.mantissa), int(asked.rescale.shift), wraps=False)
    return np.asarray(scaled + int(asked.output.zero_point), np.int64)


def row_of(one: tuple[int, ...], two: tuple[int, ...]) -> tuple[int, int, bool]:
    """Return the length of a row, how many of its elements lie in whole vectors, and whether an operand is scalar."""
    rank = max(len(one), len(two))
    a, b = ((1,) * (rank - len(shape)) + shape for shape in (one, two))
    # innermost first; an axis of one element on both sides does not end a group
    axes = [(x, y) for x, y in zip(reversed(a), reversed(b), strict=True) if (x, y) != (1, 1)]
    kinds = ["both" if x == y else "first" if x == 1 else "second" for x, y in axes]
    runs = [
        (kind, math.prod(max(pair) for _, pair in group))
        for kind, group in itertools.groupby(zip(kinds, axes, strict=True), key=lambda item: item[0])
    ]
    along = [kind for kind, _ in runs if kind != "both"]
    if not along:
        # nothing is broadcast: the whole tensor is one row
        size = math.prod(n for _, n in runs)
        return size, size // ROW * ROW, False
    allowed = ["both" if kind == "both" else "scalar" if kind == along[0] else "other" for kind, _ in runs]
    rest = iter(GROUPS)
    # `in` consumes the iterator: the groups must occur in this order, each at most once
    if not all(kind in rest for kind in allowed):
        # more groups than the kernel has loops: it takes the reference kernel, without vectors
        return 0, 0, False
    kind, length = runs[0]
    return (length, length // ROW * ROW, False) if kind == "both" else (length, length // SCALAR * SCALAR, True)
