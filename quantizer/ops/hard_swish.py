"""Hard swish."""

from __future__ import annotations

import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from quantizer.ops import operator


@operator("hard_swish")
def reference(x: Tensor) -> Tensor:
    """Return x * min(max(x + 3, 0), 6) / 6."""
    return F.hardswish(x)


@operator("hard_swish")
def function(x: Tensor) -> Tensor:
    """Return what tables hold; Compass calls the same."""
    return F.hardswish(x)
