"""Logarithm of the logistic function: an operator by table, which needs no integer code of its own."""

from __future__ import annotations

from torch import Tensor
from torch.nn.functional import logsigmoid

from quantizer.ops import operator


@operator("log_sigmoid")
def reference(x: Tensor) -> Tensor:
    """Return -log(1 + exp(-x))."""
    return logsigmoid(x)


@operator("log_sigmoid")
def function(x: Tensor) -> Tensor:
    """Return what the table holds, in the float type in which the platform builds it."""
    return logsigmoid(x)
