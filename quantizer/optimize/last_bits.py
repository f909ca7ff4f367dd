"""Error bounds of float forwards that differ in a library's last bits, and their effect on ranges and similarities.

u = 2**-24, gamma_n = n u / (1 - n u). The error of a float32 sum of n products in any order is at most gamma_n times
the sum of their magnitudes (N. Higham, "Accuracy and stability of numerical algorithms", 2002, section 3.1); that of a
library's function is at most one unit in the last place, 2 u of its magnitude (oneMKL's high accuracy, SLEEF's u10).
Results of two machines may differ by twice as much. A later layer multiplies the difference by its derivatives.
Everything else has the same bits on both machines: its difference is 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import torch
from torch import Tensor

from quantizer.ir.graph import Graph, Node
from quantizer.optimize.measuring import dequantized
from quantizer.optimize.running import QUANTIZE, Runner
from quantizer.plugins.layers_without_spec import LoneLayer

UNIT, WIDE_UNIT = 2.0**-24, 2.0**-53
CALL = 2
"""The number of roundings that a library function counts as."""
PRODUCTS = {"fully_connected": 1, "matmul": -2}
"""Sums of products whose order a library chooses -> the axis of the second operand along which they run."""
FUNCTIONS = {
    "exp": CALL,
    "erf": CALL,
    "log": CALL,
    "sqrt": CALL,
    "tan": CALL,
    "atan": CALL,
    "tanh": CALL,
    "rsqrt": CALL + 1,
    "power": CALL,
    "sigmoid": CALL + 2,
    "silu": CALL + 2,
    "softplus": 2 * CALL + 1,
    "elu": CALL + 2,
    "celu": CALL + 3,
    "selu": CALL + 3,
    "mish": 3 * CALL + 1,
}
"""Operators that call a library function -> roundings of the result, relative to its magnitude."""
GELU = {"none": CALL + 3, "tanh": CALL + 8}
"""The number of roundings in gelu: the argument of erf or tanh, its value, 1 plus it, and the product."""
NORMS = {"layer_norm": CALL + 4, "instance_norm": CALL + 4, "group_norm": CALL + 4, "rms_norm": CALL + 4}
"""The roundings in a normalization: root, inverse, product, scaling and shift. Its sums have one order everywhere
(torch)."""
LONGEST = 1 << 22
"""The largest number of derivatives that are computed. After a layer with more, no difference is allowed."""
SECOND_ORDER = 1.01
"""The factor by which derivatives may change over distances of a few units in the last place."""


def gamma(count: int, unit: float = UNIT) -> float:
    """Return Higham's gamma_n."""
    return count * unit / (1.0 - count * unit)


@dataclass(frozen=True)
class Moved:
    """The allowed difference of one tensor in one batch, for each element, float64."""

    values: Tensor
    radius: Tensor


def distances(runner: Runner, graph: Graph, feeds: Mapping[str, Tensor]) -> dict[str, Moved]:
    """Return each tensor's real values, and how far another machine's values may lie from them."""
    found: dict[str, Moved] = {}
    codes: dict[str, Tensor] = {}
    for name, node, values in runner.forward_in_types(graph, feeds):
        codes[name] = values
        real = dequantized(graph, name, values).double()
        zero = torch.zeros_like(real)
        if node is None or name != node.outputs[0]:
            found[name] = Moved(real, zero)
            continue
        operands = [None if own is None else codes.get(own, graph.tensor(own).data) for own in node.inputs]
        radii = [found[own].radius if own in found else None for own in node.inputs]
        if node.op == QUANTIZE:
            radius = _of_codes(runner, graph, node, operands[0], radii[0])
        # integers round in no library, and a difference of their operands is not followed further: none is allowed
        elif node.parameters is not None and not isinstance(node.parameters, LoneLayer):
            radius = zero
        else:
            radius = _own(node, operands, real) + _provided_on(runner, graph, node, operands, radii, real)
        found[name] = Moved(real, radius)
    return found


def _of_codes(runner: Runner, graph: Graph, node: Node, x: Tensor | None, radius: Tensor | None) -> Tensor:
    """Return the distance after quantization: from the lowest to the highest code that is possible, in real numbers."""
    params = graph.tensor(node.outputs[0]).qparams
    assert params is not None
    assert x is not None
    assert radius is not None
    # quantization is monotonic, so the ends of an interval go to the ends of its codes
    low, high = (runner.codes(x.double() + sign * radius, params) for sign in (-1.0, 1.0))
    return (high - low).double() * params.along(params.scale, x.dim())


def _own(node: Node, operands: Sequence[Tensor | None], y: Tensor) -> Tensor:
    """Return the distance that the layer itself adds."""
    given = [None if values is None else values.double() for values in operands]
    x = given[0]
    assert x is not None
    if node.op in PRODUCTS and given[1] is not None:
        w, along = given[1], PRODUCTS[node.op]
        size = x.abs() @ (w.abs().T if node.op == "fully_connected" else w.abs())
        if len(given) > 2 and given[2] is not None:
            size = size + given[2].abs()
        # one more for the bias; twice, because each of two machines may be off by this much
        return 2.0 * gamma(w.shape[along] + 1) * size
    if node.op in FUNCTIONS:
        return _relative(FUNCTIONS[node.op], y.abs())
    if node.op == "gelu":
        return _relative(GELU[str(node.attrs["approximate"])], x.abs())
    if node.op in NORMS:
        # y = scaled + shift: where both cancel, y alone would be too small a magnitude
        shift = given[2].abs().max() if len(given) > 2 and given[2] is not None else 0.0
        return _relative(NORMS[node.op], y.abs() + shift)
    if node.op in ("softmax", "log_softmax"):
        axis = int(cast("int", node.attrs["axis"]))
        # log_softmax subtracts a logarithm from x - max(x), so that magnitude counts as well
        size = y.abs() if node.op == "softmax" else y.abs() + (x - x.amax(axis, keepdim=True)).abs()
        return _relative(x.shape[axis] + 2 * CALL + 2, size)
    return torch.zeros_like(y)


def _relative(roundings: int, size: Tensor) -> Tensor:
    """Return the relative distance of two results after this many roundings.

    The size is at least the smallest normal number.
    """
    return 2.0 * (gamma(roundings) * size + roundings * float(np.finfo(np.float32).smallest_subnormal))


def _provided_on(
    runner: Runner,
    graph: Graph,
    node: Node,
    operands: Sequence[Tensor | None],
    radii: Sequence[Tensor | None],
    y: Tensor,
) -> Tensor:
    """Return the distances after a layer: magnitudes of derivatives times distances of operands; none if too many."""
    total = torch.zeros_like(y)
    for place, radius in enumerate(radii):
        x = operands[place]
        if radius is None or x is None or not bool(radius.any()):
            continue
        # no distance means that no difference is forgiven, which is the safe side
        if x.numel() * y.numel() > LONGEST or not x.is_floating_point():
            return torch.zeros_like(y)

        def layer(values: Tensor, place: int = place) -> Tensor:
            return runner.layer(graph, node, [values if i == place else other for i, other in enumerate(operands)])[0]

        # [elements of y, elements of x]
        slopes = torch.autograd.functional.jacobian(layer, x).double().abs().reshape(y.numel(), x.numel())
        total += SECOND_ORDER * (slopes @ radius.reshape(-1)).reshape(y.shape) + gamma(2) * y.abs()
    return total


def reach_of_ranges(runner: Runner, graph: Graph, batches: Iterable[Mapping[str, Tensor]]) -> dict[str, float]:
    """Return how far each tensor's calibrated ends may differ: as its values do, plus three roundings a batch."""
    found: dict[str, float] = {}
    sizes: dict[str, float] = {}
    count = 0
    for feeds in batches:
        count += 1
        for name, own in distances(runner, graph, feeds).items():
            found[name] = max(found.get(name, 0.0), float(own.radius.max()) if own.radius.numel() else 0.0)
            sizes[name] = max(sizes.get(name, 0.0), float(own.values.abs().max()) if own.values.numel() else 0.0)
    # a radius of 0 stays 0: averages of equal ends are equal; otherwise a moving average rounds three times a batch
    return {name: radius and radius + 2.0 * gamma(3 * count) * sizes[name] for name, radius in found.items()}


def reach_of_similarity(a: Moved, b: Moved) -> tuple[float, float]:
    """Return by how much cosine and mean squared error of two tensors may differ: by derivatives and their own sums."""
    x, y = a.values.reshape(-1), b.values.reshape(-1)
    rx, ry = a.radius.reshape(-1), b.radius.reshape(-1)
    size_x, size_y, count = float(x.norm()), float(y.norm()), x.numel()
    # the similarity itself is computed in float64
    cosine = 2.0 * gamma(count + 3, WIDE_UNIT)
    if size_x and size_y:
        near = float(x @ y) / (size_x * size_y)
        for own, size, other, size_other, radius in ((x, size_x, y, size_y, rx), (y, size_y, x, size_x, ry)):
            # the derivative of the cosine with respect to one of the two vectors
            slopes = (other / size_other - near * own / size).abs() / size
            cosine += SECOND_ORDER * float(slopes @ radius) + float(radius.norm() / size) ** 2
    error, radius = (x - y).abs(), rx + ry
    # |(e + r)^2 - e^2| is at most 2 |e| r + r^2
    squares = float((2.0 * error * radius + radius**2).mean()) if count else 0.0
    return cosine, squares + 2.0 * gamma(count + 2) * float((error**2).mean() if count else 0.0)
