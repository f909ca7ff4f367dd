"""Softmax in floats of 24 bits, which are float32 numbers whose last eight bits are cleared."""

from __future__ import annotations

import torch
from torch import Tensor

from quantizer.ir.formats.compass_tables import cut
from quantizer.numerics.qparams import Parameters, Staged, Table

LN2 = 0.6931471
FARTHEST = 126.9
"""Exponents of two are clamped to this magnitude."""
PLACE_BITS = 7
"""Bits of a position within a segment."""


def softmax(x: Tensor, parameters: Parameters, axis: int) -> Staged:
    """Return softmax codes: powers of two from a table times their sum's inverse, each cut to 24 bits; one rounding.

    Exponentials pass through float16 on their way to the product.
    """
    inp, output = parameters.inputs["x"], parameters.outputs["y"]
    codes = x.float().contiguous()  # torch adds in an order that depends on the memory layout
    # exp(d * s) = 2**(d * s / ln 2); steps are 1 / s
    factor = cut(-1 / (LN2 * inp.float32_steps))
    powers = _powers(cut((codes.amax(dim=axis, keepdim=True) - codes) * factor), parameters.tables["powers"])
    inverse = cut(1 / cut(powers.sum(dim=axis, keepdim=True)))
    # one rounding to a code; the cuts before it only truncate
    share = torch.round(cut(powers.half().float()) * output.float32_steps * inverse)
    return Staged((share.long() + output.zero_point).clamp(output.qmin, output.qmax), {})


def _powers(exponents: Tensor, table: Table) -> Tensor:
    """Return 2**exponent, interpolated linearly in the table and cut to 24 bits."""
    # so that 2**whole is a normal float32 number
    held = exponents.clamp(-FARTHEST, FARTHEST)
    whole = held.floor()
    # 16 bits: 9 choose the segment, 7 the place in it
    place = ((held - whole) * float((1 << 16) - 1)).long()
    entries = (table.entries.double() * table.unit).float()
    index = place >> PLACE_BITS
    chord = (entries[index + 1] - entries[index]) * (place & ((1 << PLACE_BITS) - 1))
    return cut((entries[index] + chord * 2.0**-PLACE_BITS) * torch.exp2(whole.double()).float())
