"""Running error analysis (Wilkinson): an operator's definition runs on `Bounded` tensors, numbers with error bounds."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from quantizer.conformance.checks.float32 import UNIT
from quantizer.conformance.models import float32_rules  # noqa: F401 - registers the rules
from quantizer.conformance.models.bounded_numbers import Bounded, NoAnalysisError, bounded, exact
from quantizer.ir.graph import Graph, Node
from quantizer.runtime.onnx.kernels import KERNELS, Context, special

OF_INTEGERS = frozenset(["CastLike", "EyeLike"])
"""Operators that make real numbers from integers with at most one rounding."""


def run_bounded(node: Node, operands: Sequence[Tensor | None], graph: Graph, *, dequantized: bool) -> list[Bounded]:
    """Return the results of a node's own definition; NoAnalysisError names a function without a rule.

    *dequantized*: whether the operands are products of codes and scales, which an engine may round once each.
    """
    kernel = KERNELS.get(node.op)
    if kernel is None or kernel.own is None:
        raise NoAnalysisError("there is no analysis of its float32 error")
    given = [
        bounded(v, 2 * UNIT * v.abs() * dequantized) if v is not None and v.is_floating_point() else v for v in operands
    ]
    made = kernel.own(*given, **node.attrs, **special(kernel.own, node, Context(graph, torch.device("cpu"))))
    return [_result(value, node.op) for value in (made if isinstance(made, list | tuple) else [made])]


def _result(found: Tensor, op: str) -> Bounded:
    """Return one result of a definition; NoAnalysisError if a function without a rule computed it from integers."""
    if isinstance(found, Bounded):
        return found
    if found.is_floating_point() and op not in OF_INTEGERS:
        raise NoAnalysisError("there is no analysis of numbers that it makes of integers")
    return exact(found)
