"""Float32 error bounds by ONNX operator: the error analyses of the check `float` (ADR 0007)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
from torch import Tensor

from quantizer.conformance.checks.float32 import UNIT, lost
from quantizer.conformance.checks.float_forward import TRANSCENDENTAL_ULPS
from quantizer.ir.graph import Graph, Node
from quantizer.runtime.dispatch import FP32, find_handler
from quantizer.runtime.onnx.kernels import Context

SMALLEST = float(torch.finfo(torch.float32).smallest_normal)
OTHERS = 8
"""Roundings in addition to those of a sum's terms: of dequantized operands, products, a bias, a requantization."""
MOVED = frozenset(
    (
        "ArgMax ArgMin Cast Concat ConstantOfShape DepthToSpace Equal Expand Flatten Gather GatherElements GatherND "
        "Greater GreaterOrEqual Identity Less LessOrEqual Max MaxPool Min Neg Not And Or OneHot Pad Range ReduceMax "
        "ReduceMin Relu Clip Abs Reshape Shape Sign Size Slice SpaceToDepth Split Squeeze Tile TopK Transpose "
        "Unsqueeze Where GlobalMaxPool Dropout Floor Ceil Round ScatterElements ScatterND NonZero"
    ).split()
)
"""Operators without rounding: their results are elements of operands, or integers."""
SUMS = frozenset(
    [
        "Conv",
        "ConvTranspose",
        "Gemm",
        "MatMul",
        "Add",
        "Sub",
        "AveragePool",
        "GlobalAveragePool",
        "ReduceMean",
        "ReduceSum",
        "CumSum",
        "Sum",
    ]
)
"""Operators whose error is gamma_n times their result on the magnitudes of their operands."""
PRODUCTS = frozenset(["Mul", "Div", "Reciprocal", "Sqrt"])
FUNCTIONS = frozenset(
    (
        "Acos Acosh Asin Asinh Atan Atanh Celu Cos Cosh Elu Erf Exp Gelu HardSigmoid HardSwish LeakyRelu Log Mish "
        "PRelu Pow Selu Sigmoid Silu Sin Sinh Softplus Softsign Swish Tan Tanh ThresholdedRelu"
    ).split()
)
"""Functions of a library, element by element."""


def radius_of(
    node: Node, operands: Sequence[Tensor | None], made: Sequence[Tensor], graph: Graph, *, rounded: bool
) -> list[Tensor] | str:
    """Return how far float32 may be from each result; *rounded*: operands are dequantized, which rounds once each."""
    if not made[0].is_floating_point():
        return [torch.zeros(values.shape, dtype=torch.float64) for values in made]
    first = made[0]
    if node.op in MOVED or (node.op == "Resize" and node.attrs.get("mode") == "nearest"):
        return [
            2 * UNIT * values.abs() * rounded if values.is_floating_point() else torch.zeros_like(values)
            for values in made
        ]
    if node.op in SUMS:
        magnitude = evaluated(node, [None if v is None else _magnitude(v) for v in operands], graph)[0]
        if node.op == "Sub":
            magnitude = sum(v.abs() for v in present(operands)) + torch.zeros_like(first)
        return [lost(_terms(node, operands, first) + OTHERS) * magnitude + SMALLEST]
    if node.op in PRODUCTS:
        return [lost(OTHERS) * first.abs() + SMALLEST]
    if node.op in FUNCTIONS:
        return [_of_function(node, operands, first, graph)]
    if node.op == "Softmax":
        return [_softmax(node, present(operands)[0], first)]
    if node.op == "LogSoftmax":
        return [_log_softmax(node, present(operands)[0], first)]
    if node.op == "Resize" and node.attrs.get("mode") == "linear":
        x = present(operands)[0]
        moved = 3 * UNIT * (sum(x.shape[2:]) + 2) * 2 * float(x.abs().max()) if x.numel() else 0.0
        return [lost(12 + OTHERS) * float(x.abs().max() if x.numel() else 0.0) + moved + torch.zeros_like(first)]
    if node.op == "BatchNormalization":
        x, gain, bias, mean, variance = present(operands)[:5]
        along = [-1 if i == 1 else 1 for i in range(x.dim())]
        epsilon = cast("float", node.attrs.get("epsilon", 1e-5))
        slope = (gain / torch.sqrt(variance + float(epsilon))).abs().reshape(along)
        return [lost(2 * OTHERS) * (slope * (x.abs() + mean.abs().reshape(along)) + bias.abs().reshape(along))]
    if node.op == "LayerNormalization":
        return [_layer_norm(node, operands, first), *(torch.full_like(v, float("inf")) for v in made[1:])]
    return f"{node.op}: there is no analysis of its float32 error"


def _terms(node: Node, operands: Sequence[Tensor | None], made: Tensor) -> int:
    """Return the largest number of terms in one element's sum."""
    given = present(operands)
    match node.op:
        case "Conv":
            return given[1][0].numel()
        case "ConvTranspose":
            return given[1].numel() // given[1].shape[1]
        case "Gemm":
            return int(given[0].shape[0 if node.attrs.get("transA") else 1])
        case "MatMul":
            return int(given[0].shape[-1])
        case "Add" | "Sub" | "Sum":
            return len(given)
    return max(1, given[0].numel() // max(1, made.numel())) if node.op != "AveragePool" else _window(node)


def _window(node: Node) -> int:
    count = 1
    for size in node.attrs.get("kernel_shape", ()):  # type: ignore[union-attr]
        count *= int(size)  # type: ignore[arg-type]
    return count


def _of_function(node: Node, operands: Sequence[Tensor | None], made: Tensor, graph: Graph) -> Tensor:
    """The library's ulps, those of the largest term that may cancel, and the effect of the operand's last bit."""
    ulps = lost(2 * TRANSCENDENTAL_ULPS)
    moved = torch.zeros_like(made)
    for step in (1 + 2 * UNIT, 1 - 2 * UNIT):
        near = [
            None if v is None else v * step if i == 0 and v.is_floating_point() else v for i, v in enumerate(operands)
        ]
        moved = torch.maximum(moved, (evaluated(node, near, graph)[0] - made).abs().nan_to_num(posinf=0.0))
    largest = evaluated(
        node, [None if v is None else _magnitude(v) if i == 0 else v for i, v in enumerate(operands)], graph
    )[0].abs()
    bounded = torch.where(
        largest.isfinite(), torch.minimum(largest, torch.maximum(made.abs(), torch.ones_like(made))), made.abs()
    )
    x = present(operands)[0]
    cancels = torch.maximum(bounded, x.abs().clamp(max=1.0) if x.shape == made.shape else bounded)
    return moved + ulps * torch.maximum(made.abs(), cancels) + SMALLEST


def _softmax(node: Node, x: Tensor, made: Tensor) -> Tensor:
    axis = int(node.attrs.get("axis", -1))  # type: ignore[arg-type]
    distance = (x - x.amax(axis, keepdim=True)).abs()
    spread = distance.amax(axis, keepdim=True)
    relative = (
        distance + spread + 4 * TRANSCENDENTAL_ULPS + x.shape[axis] + 2 + 2 * x.abs().amax(axis, keepdim=True)
    ) * UNIT
    return relative * made + x.shape[axis] * SMALLEST


def _log_softmax(node: Node, x: Tensor, made: Tensor) -> Tensor:
    """Differences from a rounded maximum, their sum's logarithm, one subtraction."""
    axis = int(node.attrs.get("axis", -1))  # type: ignore[arg-type]
    distance = (x - x.amax(axis, keepdim=True)).abs()
    spread, largest = distance.amax(axis, keepdim=True), x.abs().amax(axis, keepdim=True)
    sums = (2 * distance + spread + 2 * largest + 4 * TRANSCENDENTAL_ULPS + x.shape[axis]) * UNIT
    return sums + 4 * TRANSCENDENTAL_ULPS * UNIT * made.abs()


def _layer_norm(node: Node, operands: Sequence[Tensor | None], made: Tensor) -> Tensor:
    """Differences from a rounded mean, the root of a rounded mean of their squares, a product and a sum."""
    x = present(operands)[0]
    axis = int(node.attrs.get("axis", -1)) % x.dim()  # type: ignore[arg-type]
    axes = list(range(axis, x.dim()))
    count = x[(0,) * axis].numel() if axis else x.numel()
    centre = x - x.mean(axes, keepdim=True)
    epsilon = cast("float", node.attrs.get("epsilon", 1e-5))
    deviation = torch.sqrt((centre * centre).mean(axes, keepdim=True) + float(epsilon))
    off = lost(count + OTHERS) * x.abs().mean(axes, keepdim=True) + 2 * UNIT * x.abs()
    normal = (centre / deviation).abs()
    relative = lost(count + OTHERS) + off.pow(2).mean(axes, keepdim=True).sqrt() / deviation
    radius = off / deviation + normal * relative
    gain = operands[1]
    bias = operands[2] if len(operands) > 2 else None
    scaled = radius if gain is None else radius * gain.abs()
    held = made.abs() if bias is None else made.abs() + bias.abs()
    return scaled + lost(OTHERS) * held


def evaluated(node: Node, operands: Sequence[Tensor | None], graph: Graph) -> list[Tensor]:
    """Return the results of a node for float64 operands, in float64."""
    handler: Callable[..., Any] | None = find_handler(node.op, FP32)
    if handler is None:
        raise ValueError(f"nothing runs {node.op}")
    outcome = handler(node, list(operands), Context(graph, torch.device("cpu")))
    found = list(outcome) if isinstance(outcome, list | tuple) else [outcome]
    return [values.double() if values.is_floating_point() else values for values in found]


def _magnitude(values: Tensor) -> Tensor:
    return values.abs() if values.is_floating_point() else values


def present(operands: Sequence[Tensor | None]) -> list[Tensor]:
    """Return the operands that are there."""
    return [values for values in operands if values is not None]
