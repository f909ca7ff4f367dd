"""The enclosure of a part of a network for given operands: its exact result, and a bound of the float32 error.

Exact is the operator in float64 on the real values of codes and floats. The radius is the error analysis of the check
`float` (ADR 0007): for sums gamma_n times the operator on magnitudes, for functions 4 ulps and the rounding of the
operands, and 0 for operators that only move values. A quantized result may be any code that a number within the
radius rounds to.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from quantizer.conformance.checks.float32 import UNIT
from quantizer.conformance.models.bounded_numbers import LARGEST
from quantizer.conformance.models.radius import MOVED, evaluated, radius_of
from quantizer.core.attributes import whole
from quantizer.core.errors import QuantizerError
from quantizer.ir.graph import Graph, Node
from quantizer.runtime.models.parts import CLIPS, DEQUANTIZE, QUANTIZE, Part


@dataclass(frozen=True)
class Enclosure:
    """One result of a part: its float64 value, the radius of the float32 error, and the grid if it is quantized."""

    exact: Tensor
    radius: Tensor
    quantized: Quantized | None

    @property
    def decided(self) -> bool:
        """Whether each element of a quantized result has only one possible code under any float32 rounding."""
        if self.quantized is None:
            return False
        first, last = self.quantized.codes(self.exact, self.radius)
        return bool((first == last).all())

    def outside(self, got: Tensor) -> Judged:
        """Judge a result: how many elements lie outside, and the largest error, in steps of a quantized result."""
        if self.quantized is not None:
            return self.quantized.judge(got, self.exact, self.radius)
        values = got.double()
        if values.shape != self.exact.shape:
            return Judged(values.numel(), float("inf"), float("inf"), ())
        allowed = self.radius + _half_ulp(self.exact)
        # NaN and infinities are right where the exact result has them, or overflows in float32
        same = (values == self.exact) | (values.isnan() & self.exact.isnan()) | self._overflowed(values, allowed)
        error = torch.where(same, 0.0, (values - self.exact).abs()).nan_to_num(nan=float("inf"))
        return _judged(error, torch.where(same, 0.0, error / allowed), error > allowed)

    def _overflowed(self, values: Tensor, allowed: Tensor) -> Tensor:
        """Return where a result is infinite and the allowed interval contains numbers that round to infinity."""
        beyond = self.exact.abs() + allowed >= LARGEST
        return values.isinf() & beyond & (values.sign() == self.exact.sign())


@dataclass(frozen=True)
class Judged:
    """How a result lies relative to its enclosure."""

    outside: int
    """The number of elements outside."""
    error: float
    """The largest distance, in steps of a quantized result, or absolute for a real one."""
    ratio: float
    """The largest error divided by the allowed error; above 1 if an element is outside."""
    worst: tuple[int, ...]


@dataclass(frozen=True)
class Quantized:
    """The numbers of a QuantizeLinear, as tensors that broadcast."""

    scale: Tensor
    zero: Tensor
    low: int
    high: int

    def codes(self, exact: Tensor, radius: Tensor) -> tuple[Tensor, Tensor]:
        """Return the first and the last code that a number within the radius rounds to."""
        place = exact / self.scale + self.zero
        # float32 rounds the quotient by the scale, and an inverse of the scale where a kernel multiplies by it
        slack = (radius + 2 * UNIT * exact.abs()) / self.scale
        first, last = (torch.round(end).clamp(self.low, self.high) for end in (place - slack, place + slack))
        return first, last

    def judge(self, got: Tensor, exact: Tensor, radius: Tensor) -> Judged:
        """Judge codes: each must lie between the codes of exact - radius and exact + radius."""
        if got.shape != exact.shape:
            return Judged(got.numel(), float("inf"), float("inf"), ())
        codes, place = got.double(), exact / self.scale + self.zero
        slack = (radius + 2 * UNIT * exact.abs()) / self.scale
        first, last = self.codes(exact, radius)
        error = (codes - place.clamp(self.low, self.high)).abs()
        beyond = (codes < first) | (codes > last)
        ratio = error / (0.5 + slack)
        # the ratio agrees with the verdict, which the rounding to codes decides
        ratio = torch.where(beyond, ratio.clamp(min=1.0 + 1e-12), ratio.clamp(max=1.0))
        return _judged(error, ratio, beyond)


def enclosures(part: Part, graph: Graph, operands: Mapping[str, Tensor]) -> dict[str, Enclosure] | str:
    """Return the enclosure of each result of a part, or the reason why there is none."""
    known: dict[str, Tensor] = {}
    for node in part.nodes:
        for name in node.reads:
            tensor = graph.tensor(name)
            held = operands.get(name, tensor.data)
            if held is not None:
                known.setdefault(name, held)
    work = _Work(part, graph, operands, known)
    try:
        why = work.run()
    except (QuantizerError, RuntimeError, IndexError, KeyError, ValueError, TypeError) as err:
        return f"{part.op} in float64: {str(err).splitlines()[0]}"
    if why:
        return why
    found = {}
    for name in part.results:
        exact = work.real.get(name, known.get(name))
        if exact is None or name not in work.radii:
            return f"{part.op}: result {name!r} is not computed"
        found[name] = Enclosure(exact.double(), work.radii[name].double(), work.grids.get(name))
    return found


@dataclass
class _Work:
    """A part under computation: tensors in float64, radii, and the real values of quantized results."""

    part: Part
    graph: Graph
    fed: Mapping[str, Tensor]
    known: dict[str, Tensor]
    radii: dict[str, Tensor] = field(default_factory=dict)
    grids: dict[str, Quantized] = field(default_factory=dict)
    real: dict[str, Tensor] = field(default_factory=dict)

    def run(self) -> str:
        """Compute every node in order; return the reason why there is no enclosure, or an empty text."""
        for node in self.part.nodes:
            if node.op == DEQUANTIZE:
                values = self.known[node.outputs[0]] = _dequantized(node, self.known)
                # the product of code and scale is rounded to float32 once
                self.radii[node.outputs[0]] = UNIT * values.abs()
            elif node.op == QUANTIZE:
                source, made = str(node.inputs[0]), node.outputs[0]
                values = self.real[made] = self.known[source].double()
                self.grids[made] = _grid(node, self.known, self.graph)
                # quantizing alone: its operand is what the engine got, without an error
                self.radii[made] = torch.zeros_like(values) if node is self.part.core else self.radii[source]
            elif why := self._computed(node):
                return why
        return ""

    def _computed(self, node: Node) -> str:
        """Compute a node in float64, and its radius; return the reason if no radius is known."""
        if self.graph.bodies_of(node):
            return f"{node.op}: there is no analysis of bodies of control flow"
        if node.op not in MOVED and (narrow := self._narrow(node)):
            return f"{node.op}: there is no analysis of arithmetic in {narrow}"
        operands = [None if name is None else _double(self.known[name]) for name in node.inputs]
        made = evaluated(node, operands, self.graph)
        if node.op in CLIPS and node is not self.part.core:
            # a clip after the operator changes no error
            radius: list[Tensor] | str = [self.radii[str(node.inputs[0])]]
        else:
            rounded = any(
                name is not None and name not in self.fed and self.graph.tensor(name).data is None
                for name in node.inputs
            )
            radius = radius_of(node, operands, made, self.graph, rounded=rounded)
        if isinstance(radius, str):
            return radius
        self.known |= dict(zip(node.outputs, made, strict=False))
        self.radii |= dict(zip(node.outputs, radius, strict=False))
        return ""

    def _narrow(self, node: Node) -> str:
        """Return a floating-point format of fewer than 32 bits that a node reads or makes; empty without one."""
        formats = (self.graph.tensor(name).dtype for name in (*node.reads, *node.outputs))
        return next((str(dtype) for dtype in formats if dtype.kind == "float" and dtype.bits < 32), "")


def _dequantized(node: Node, known: Mapping[str, Tensor]) -> Tensor:
    """Return (code - zero) * scale in float64: the real values of codes."""
    codes, scale = known[str(node.inputs[0])].double(), known[str(node.inputs[1])].double()
    zero = (
        known[str(node.inputs[2])].double() if len(node.inputs) > 2 and node.inputs[2] is not None else torch.zeros(())
    )
    return (codes - _along(node, zero, codes)) * _along(node, scale, codes)


def _grid(node: Node, known: Mapping[str, Tensor], graph: Graph) -> Quantized:
    values = known[str(node.inputs[0])]
    dtype = graph.tensor(node.outputs[0]).dtype
    zero = (
        known[str(node.inputs[2])].double() if len(node.inputs) > 2 and node.inputs[2] is not None else torch.zeros(())
    )
    scale = known[str(node.inputs[1])].double()
    return Quantized(_along(node, scale, values), _along(node, zero, values), dtype.min, dtype.max)


def _along(node: Node, numbers: Tensor, values: Tensor) -> Tensor:
    if numbers.numel() == 1:
        return numbers.reshape(())
    axis = whole(node.attrs, "axis", 1) % values.dim()
    if block := whole(node.attrs, "block_size", 0):
        return numbers.repeat_interleave(block, axis).narrow(axis, 0, values.shape[axis])
    if numbers.dim() != 1:
        raise ValueError("scales of several axes")
    return numbers.reshape([-1 if i == axis else 1 for i in range(values.dim())])


def _half_ulp(exact: Tensor) -> Tensor:
    # 2**-150 is half of the smallest float32 number
    return exact.abs() * UNIT + 2.0**-150


def _judged(error: Tensor, ratio: Tensor, beyond: Tensor) -> Judged:
    if not error.numel():
        return Judged(0, 0.0, 0.0, ())
    place = int(ratio.reshape(-1).argmax())
    worst = tuple(int(i) for i in torch.unravel_index(torch.tensor(place), error.shape)) if error.dim() else ()
    return Judged(int(beyond.sum()), float(error.max()), float(ratio.max()), worst)


def _double(values: Tensor) -> Tensor:
    return values.double() if values.is_floating_point() else values
