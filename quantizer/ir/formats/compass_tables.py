"""Tables in quantized Compass layers: powers of two and logarithms of a Softmax, both tables of a LogSoftmax."""

from __future__ import annotations

import torch
from torch import Tensor

from quantizer.numerics.qparams import QParams, Table
from quantizer.numerics.tables import linspace

LEAST_FRACTION = 8
"""With this many fractional bits or more, powers and logarithms are read from tables of 256 entries."""
FRACTION_BITS = 15
"""The number of bits after the point of an entry in [1, 2)."""
SEGMENTS = 512
"""The number of segments of the floating-point table of powers."""
LARGEST = 1 << 20
"""The largest exponential of a LogSoftmax: the sum of 2**12 of them fits 32 bits."""


def logarithms() -> Tensor:
    """Return log2(1 + i / 256) in units of 2**-15 for i from 0 to 255."""
    return torch.round(torch.log2(1 + torch.arange(256, dtype=torch.float64) / 256) * 2.0**FRACTION_BITS).long()


def powers() -> Tensor:
    """Return 2**(i / 256) in units of 2**-15 for i from 0 to 255."""
    return torch.round(torch.exp2(torch.arange(256, dtype=torch.float64) / 256) * 2.0**FRACTION_BITS).long()


def cut(values: Tensor) -> Tensor:
    """Return float32 *values* as floats of 24 bits: their last eight bits are cleared."""
    # -256 has all bits set but the last eight
    return (values.float().view(torch.int32) & -256).view(torch.float32)


def float_powers() -> Table:
    """Return 2**(i / 512) for i from 0 to 512, cut, in units of 2**-15."""
    entries = cut(torch.exp2(linspace(0, 1, SEGMENTS + 1).double()).float())
    unit = 2.0**-FRACTION_BITS
    return Table((entries.double() / unit).long(), first=0, step=1, unit=unit, bits=FRACTION_BITS + 2)


def log_softmax_tables(exponentials: Tensor, logs: Tensor, x: QParams, y: QParams) -> dict[str, Table]:
    """Return entries (int64) as tables over distances from the largest code, and over shares in as many codes."""
    codes = 1 << x.bits
    return {
        "exp": Table(exponentials, 1 - codes, max(1, codes // len(exponentials)), 1.0 / LARGEST, LARGEST.bit_length()),
        "log": Table(logs, 0, max(1, codes // len(logs)), float(y.scale), y.bits),
    }
