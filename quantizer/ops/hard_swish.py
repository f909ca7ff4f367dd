"""Hard swish."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from quantizer.ops import operator

SLOPE, CENTRE = 1 / 6, 0.5


@operator("hard_swish")
def reference(x: Tensor) -> Tensor:
    """Return x * min(max(x / 6 + 1/2, 0), 1), as ONNX defines it. From 3 on the result is exactly x."""
    return x * (x * SLOPE + CENTRE).clamp(0, 1)


@operator("hard_swish")
def function(x: Tensor) -> Tensor:
    """Return the real values of table entries: a single torch call, in the type of x."""
    return F.hardswish(x)
