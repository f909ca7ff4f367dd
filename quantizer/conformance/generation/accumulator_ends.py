"""Cases in which the last code that a saturating accumulator holds, and the one before it, give other output codes.

An accumulator that saturates one unit too early, such as a symmetric one, gives the same codes in all other cases,
because a unit of the sum is only a thousandth of a code.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray

from quantizer.conformance.generation.datasets import materialise
from quantizer.conformance.generation.near_sums import declared, exact_sums, factors_of_sums, provided_for
from quantizer.conformance.generation.ranges import activation_of, range_of
from quantizer.conformance.target import Target
from quantizer.core.case import Case
from quantizer.core.shapes import channel_axis, variables

CODES = range(8, 120, 2)
"""The distances from the zero point, in codes, at which the ends of the accumulator are tried."""


def at_the_end(target: Target, case: Case, end: int) -> Case | None:
    """Return *case*, which has sums beyond *end*, with an output range that tells the end from the sum before it.

    None if a multiplier of few bits shows no difference.
    """
    tensors = {name: values.double().numpy() for name, values in materialise(target, case).items()}
    sums = exact_sums(target, case, tensors, provided_for(target, case, tensors))
    axis = channel_axis(target.spec, variables(target.spec, case.shapes, case.attrs), sums.ndim) or 0
    rows = np.moveaxis(sums, axis, 0).reshape(sums.shape[axis], -1)
    before = end - 1 if end > 0 else end + 1
    # the channel whose sums go furthest beyond this end
    channel = int(np.argmax((rows * np.sign(end)).max(axis=1)))
    # half way between both sums, so that they lie on different sides of the change
    for tried in _tried(target, case, tensors, channel, len(rows), (end + before) / 2):
        asked = np.full((len(rows), 2), (end, before))
        parameters = provided_for(target, tried, tensors)
        codes = declared(parameters, asked, torch.zeros(len(rows), dtype=torch.int64))[channel]
        if codes[0] != codes[1]:
            return tried
    return None


def _tried(
    target: Target, case: Case, tensors: dict[str, NDArray[np.float64]], channel: int, channels: int, total: float
) -> Iterator[Case]:
    """Yield the case with output steps that put *total* where a code changes.

    That is half a code, or half a place beside it where sums are rounded to binary places first.
    """
    first = target.platform.first_rounding
    beside = (0.0,) if first is None else (0.5**first.fraction_bits / 2, -(0.5**first.fraction_bits) / 2)
    (name,) = target.spec.outputs
    known = activation_of(target, case, name)
    parameters = provided_for(target, case, tensors)
    if parameters.rescale is None:
        return
    unit = factors_of_sums(parameters, channels)[channel] * float(known.scale)
    for code in CODES:
        for place in beside:
            step = abs(total) * unit / (code + 0.5 + place)
            yield case.but(ranges={**case.ranges, name: range_of(target, step, int(known.zero_point))})
