"""Float32 error bounds of ONNX operators: the analyses of the check `float` (ADR 0007), else a running analysis."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import torch
from torch import Tensor

from quantizer.conformance.checks.float32 import UNIT, lost
from quantizer.conformance.checks.float_forward import TRANSCENDENTAL_ULPS
from quantizer.conformance.models.bounded_numbers import SMALLEST, NoAnalysisError
from quantizer.conformance.models.float32_rules import CUBIC, log_softmax_loss, softmax_loss
from quantizer.conformance.models.running import run_bounded
from quantizer.core.attributes import real, whole
from quantizer.ir.graph import Graph, Node
from quantizer.runtime.dispatch import FP32, find_handler
from quantizer.runtime.onnx.kernels import Context

OTHERS = 8
"""The number of roundings besides a sum's additions: of dequantized operands, products, a bias, a requantization."""
MOVED = frozenset(
    (
        "ArgMax ArgMin Cast Concat ConstantOfShape DepthToSpace Equal Expand Flatten Gather GatherElements GatherND "
        "Greater GreaterOrEqual Identity Less LessOrEqual Max MaxPool Min Neg Not And Or OneHot Pad Range ReduceMax "
        "ReduceMin Relu Clip Abs Reshape Shape Sign Size Slice SpaceToDepth Split Squeeze Tile TopK Transpose "
        "Unsqueeze Where GlobalMaxPool Dropout Floor Ceil Round Scatter ScatterElements ScatterND TensorScatter "
        "NonZero Hardmax CenterCropPad MaxUnpool MaxRoiPool Unique"
    ).split()
)
"""Operators that round nothing: their results are elements of operands, or integers."""
SCATTERED = ("ScatterElements", "ScatterND")
RESIZES = ("Resize", "Upsample")
STEPS = frozenset(["Floor", "Ceil", "Round", "Sign", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"])
"""Operators with steps: the last bit of a dequantized operand can change the result completely."""
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
        "Col2Im",
    ]
)
"""Operators whose error is gamma_n times their result on the magnitudes of their operands."""
PRODUCTS = frozenset(["Mul", "Div", "Reciprocal", "Sqrt"])
FUNCTIONS = frozenset(
    (
        "Acos Acosh Asin Asinh Atan Atanh Cos Cosh Erf Exp Gelu HardSigmoid HardSwish LeakyRelu Log "
        "PRelu Pow Sigmoid Sin Sinh Softplus Softsign Tan Tanh ThresholdedRelu"
    ).split()
)
"""Element-wise functions that a library computes."""


def radius_of(
    node: Node, operands: Sequence[Tensor | None], made: Sequence[Tensor], graph: Graph, *, rounded: bool
) -> list[Tensor] | str:
    """Return the largest float32 error of each result, or why there is none; *rounded*: operands were dequantized."""
    first = made[0]
    how = node.attrs.get("reduction", "none")
    if node.op in SCATTERED and how not in ("none", "max", "min"):
        return f"{node.op}: there is no analysis of the float32 error with reduction={how}"
    if rounded and node.op in STEPS:
        return _running(node, operands, graph, rounded=rounded)
    if not any(values.is_floating_point() for values in made):
        # integers and bools are exact
        return [torch.zeros(values.shape, dtype=torch.float64) for values in made]
    if node.op in MOVED or (node.op in RESIZES and node.attrs.get("mode", "nearest") == "nearest"):
        return [
            2 * UNIT * values.abs() * rounded if values.is_floating_point() else torch.zeros_like(values)
            for values in made
        ]
    if node.op in SUMS:
        return [_of_sum(node, operands, first, graph)]
    if node.op in PRODUCTS:
        return [lost(OTHERS) * first.abs() + SMALLEST]
    if node.op in FUNCTIONS:
        return [_of_function(node, operands, first, graph)]
    formula = FORMULAS.get(node.op)
    if formula is None or (node.op == "Mod" and rounded):
        return _running(node, operands, graph, rounded=rounded)
    found = formula(node, operands, first)
    # further results, such as a mean, have no analysis: anything is allowed there
    return found if isinstance(found, str) else [found, *(torch.full_like(v, float("inf")) for v in made[1:])]


def _of_sum(node: Node, operands: Sequence[Tensor | None], made: Tensor, graph: Graph) -> Tensor:
    magnitude = evaluated(node, [None if v is None else _magnitude(v) for v in operands], graph)[0]
    # a difference of magnitudes would cancel: the error goes with their sum
    if node.op == "Sub":
        magnitude = sum(v.abs() for v in present(operands)) + torch.zeros_like(made)
    return lost(_terms(node, operands, made) + OTHERS) * magnitude + SMALLEST


def _softmax(node: Node, operands: Sequence[Tensor | None], made: Tensor) -> Tensor:
    x, axis = present(operands)[0], _axis(node)
    return softmax_loss(x, axis) * made + x.shape[axis] * SMALLEST


def _log_softmax(node: Node, operands: Sequence[Tensor | None], made: Tensor) -> Tensor:
    return log_softmax_loss(present(operands)[0], _axis(node), made)


def _remainder(node: Node, operands: Sequence[Tensor | None], made: Tensor) -> Tensor:  # noqa: ARG001 - as every formula
    """A remainder is exact; if it must get the sign of the divisor, the divisor is added, rounded once."""
    return UNIT * present(operands)[1].abs() + torch.zeros_like(made)


def _batch_norm(node: Node, operands: Sequence[Tensor | None], made: Tensor) -> Tensor:  # noqa: ARG001 - as every formula
    x, gain, bias, mean, variance = present(operands)[:5]
    along = [-1 if i == 1 else 1 for i in range(x.dim())]
    epsilon = cast("float", node.attrs.get("epsilon", 1e-5))
    slope = (gain / torch.sqrt(variance + float(epsilon))).abs().reshape(along)
    return lost(2 * OTHERS) * (slope * (x.abs() + mean.abs().reshape(along)) + bias.abs().reshape(along))


def _running(node: Node, operands: Sequence[Tensor | None], graph: Graph, *, rounded: bool) -> list[Tensor] | str:
    """Return the radii of the running error analysis, or the name of the function that has no rule."""
    try:
        return [value.radius for value in run_bounded(node, operands, graph, dequantized=rounded)]
    except NoAnalysisError as err:
        return f"{node.op}: {err}"


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
        case "Col2Im":
            return int(given[2].prod())
    return max(1, given[0].numel() // max(1, made.numel())) if node.op != "AveragePool" else _window(node)


def _axis(node: Node) -> int:
    return whole(node.attrs, "axis", -1)


def _interpolated(node: Node, operands: Sequence[Tensor | None], made: Tensor) -> Tensor | str:
    """A place that is off by e along an axis moves a result by the slope of the neighbours' weights times e."""
    x, mode, attrs = present(operands)[0], node.attrs.get("mode"), node.attrs
    jumps = [name for name in ("antialias", "exclude_outside") if attrs.get(name)]
    if attrs.get("coordinate_transformation_mode") == "tf_crop_and_resize":
        jumps.append("tf_crop_and_resize")
    if jumps or (mode == "cubic" and real(attrs, "cubic_coeff_a", -0.75) != -0.75):
        return f"{node.op}: there is no analysis of the float32 error with {' and '.join(jumps) or 'cubic_coeff_a'}"
    if not x.numel():
        return torch.zeros_like(made)
    largest, axes = float(x.abs().max()), max(1, x.dim() - 2) if mode == "cubic" else 1
    total, slope = CUBIC if mode == "cubic" else (1.0, 2.0)
    sizes = x.shape if x.dim() < 3 else x.shape[2:]
    weight = total ** x.dim() if mode == "cubic" else 1.0
    moved = 3 * UNIT * (sum(sizes) + 2) * slope * weight * largest
    return lost(12 * axes + OTHERS) * weight * largest + moved + torch.zeros_like(made)


def _spectrum(node: Node, operands: Sequence[Tensor | None], made: Tensor) -> Tensor:
    """Sums of products with roots of unity, in any order: gamma_n of the sum of magnitudes along the axis."""
    given = operands[2] if len(operands) > 2 else None
    x = present(operands)[0]
    last = cast("int", node.attrs.get("axis", -2))
    axis = last if given is None else int(given)
    axis %= x.dim()
    count = made.shape[axis] if node.attrs.get("inverse") else 1
    terms = max(x.shape[axis], made.shape[axis])
    both = 2 if node.attrs.get("onesided") else 1
    total = both * x.abs().sum(axis, keepdim=True).sum(-1, keepdim=True) + torch.zeros_like(made)
    return lost(2 * terms + 2 * TRANSCENDENTAL_ULPS + OTHERS) * total / count


def _window(node: Node) -> int:
    count = 1
    for size in node.attrs.get("kernel_shape", ()):  # type: ignore[union-attr]
        count *= int(size)  # type: ignore[arg-type]
    return count


def _of_function(node: Node, operands: Sequence[Tensor | None], made: Tensor, graph: Graph) -> Tensor:
    """Return the library's error, plus ulps of the largest term that may cancel, plus the effect of the last bit."""
    ulps = lost(2 * TRANSCENDENTAL_ULPS)
    moved = torch.zeros_like(made)
    # how much a rounded operand moves the result: the function itself says it, up or down
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
    # a library may subtract numbers of up to min(1, |x|), as in exp(x) - 1
    cancels = torch.maximum(bounded, x.abs().clamp(max=1.0) if x.shape == made.shape else bounded)
    return moved + ulps * torch.maximum(made.abs(), cancels) + SMALLEST


def _layer_norm(node: Node, operands: Sequence[Tensor | None], made: Tensor) -> Tensor:
    """Differences from a rounded mean, the root of a rounded mean of their squares, a product and a sum."""
    x = present(operands)[0]
    axis = whole(node.attrs, "axis", -1) % x.dim()
    axes = list(range(axis, x.dim()))
    count = x[(0,) * axis].numel() if axis else x.numel()
    centre = x - x.mean(axes, keepdim=True)
    epsilon = cast("float", node.attrs.get("epsilon", 1e-5))
    deviation = torch.sqrt((centre * centre).mean(axes, keepdim=True) + float(epsilon))
    # error of the differences: that of the mean, and one rounding each
    off = lost(count + OTHERS) * x.abs().mean(axes, keepdim=True) + 2 * UNIT * x.abs()
    normal = (centre / deviation).abs()
    relative = lost(count + OTHERS) + off.pow(2).mean(axes, keepdim=True).sqrt() / deviation
    radius = off / deviation + normal * relative
    gain = operands[1]
    bias = operands[2] if len(operands) > 2 else None
    scaled = radius if gain is None else radius * gain.abs()
    held = made.abs() if bias is None else made.abs() + bias.abs()
    return scaled + lost(OTHERS) * held


Formula = Callable[[Node, Sequence["Tensor | None"], Tensor], "Tensor | str"]
FORMULAS: Mapping[str, Formula] = {
    "Softmax": _softmax,
    "LogSoftmax": _log_softmax,
    "Resize": _interpolated,
    "Upsample": _interpolated,
    "DFT": _spectrum,
    "Mod": _remainder,
    "BatchNormalization": _batch_norm,
    "LayerNormalization": _layer_norm,
}
"""Analyses of the first result of single operators; all other operators run their definition on numbers with errors."""


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
