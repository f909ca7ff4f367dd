"""float32 arithmetic in which a product and a sum are rounded once, as on processors with FMA."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def multiply_add(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    """Return float32 `a * b + c` with one rounding, half to even; operands are float32 and broadcast.

    The product is exact in float64; an inexact sum is rounded to odd in float64, so that the rounding to float32 is the
    only effective one (S. Boldo, G. Melquiond, "Emulation of FMA and correctly rounded sums", 2008).
    """
    product, addend = a.double() * b.double(), c.double()
    total = product + addend
    back = total - product
    lost = (product - (total - back)) + (addend - back)
    toward = torch.where(lost > 0, math.inf, -math.inf).to(torch.float64)
    even = (total.view(torch.int64) & 1) == 0
    return torch.where((lost != 0) & even, torch.nextafter(total, toward), total).float()
