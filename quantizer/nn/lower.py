"""Turns a network's values into nodes of a quantized graph. Each result waits until the grid after it is known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import torch

from quantizer.core.attributes import whole
from quantizer.core.case import AttrValue, AxisOrder
from quantizer.core.dtypes import dtype
from quantizer.core.errors import GraphError, UnsupportedError
from quantizer.core.platforms import Platform
from quantizer.core.spec import Spec
from quantizer.ir.formats.compass_mapping import FORMAT
from quantizer.ir.graph import Graph, Node, Tensor, container
from quantizer.ir.verify import verify
from quantizer.nn.graph_parameters import parameters
from quantizer.numerics.qparams import Constant, Parameters, QParams
from quantizer.numerics.rules import same_numbers

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Coded:
    """A tensor of codes of the graph. Its shape has channels at axis 1, whatever the axis order of the graph."""

    name: str
    shape: Shape
    params: QParams


@dataclass(frozen=True)
class Moved:
    """A movement after an operator without a grid yet: rounding before or after the movement is the same."""

    op: str
    attrs: Mapping[str, AttrValue]
    shape: Shape
    label: str


@dataclass(frozen=True)
class Waiting:
    """An exact result that has no grid yet; *own*: a grid on which it lies already, if there is one."""

    op: str
    label: str
    operands: Mapping[str, Coded]
    shape: Shape
    attrs: Mapping[str, AttrValue] = field(default_factory=dict)
    constants: Mapping[str, Constant] = field(default_factory=dict)
    activation: str = "none"
    own: QParams | None = None
    after: tuple[Moved, ...] = ()


Value = Coded | Waiting
INPUT = "input"


class Builder:
    """Collects the nodes and tensors of one graph."""

    def __init__(self, specs: Mapping[str, Spec], platform: Platform, order: AxisOrder) -> None:
        self.specs, self.platform, self.order = specs, platform, order
        self.nodes: list[Node] = []
        self.tensors: dict[str, Tensor] = {}
        self.inputs: list[str] = []
        self._made: list[tuple[Waiting, QParams, Coded]] = []

    def coded(self, value: Value) -> Coded:
        """Return codes of *value*; GraphError if it lies on no grid."""
        if isinstance(value, Coded):
            return value
        if value.own is None:
            what = "the input" if value.op == INPUT else f"the result of {value.op}"
            raise GraphError(f"{value.label}: {what} has no grid where it is used. Put an Activation_fix after it.")
        return self.on_grid(value, value.own, value.label)

    def on_grid(self, value: Value, params: QParams, where: str) -> Coded:
        """Return *value* as codes of *params*. A node called *where* rounds codes of another grid once more."""
        if isinstance(value, Coded):
            if _same_grid(value.params, params):
                return value
            value = _regridded(value, where)
        # by identity: several calls that read one result on one grid share one node
        for made, grid, found in self._made:
            if made is value and _same_grid(grid, params):
                return found
        first = self._input(value, params) if value.op == INPUT else self._emit(value, params)
        for moved in value.after:
            first = self._moved(first, moved)
        self._made.append((value, params, first))
        return first

    def moved(self, value: Value, step: Moved) -> Value:
        """Return *value* after a movement; codes are moved immediately."""
        if isinstance(value, Coded):
            return self._moved(value, step)
        return replace(value, after=(*value.after, step))

    def graph(self, name: str, outputs: list[Coded]) -> Graph:
        """Return the graph of all nodes so far; GraphError if it is not legal."""
        made = Graph(name, tuple(self.nodes), self.tensors, tuple(self.inputs), tuple(o.name for o in outputs))
        verify(made)
        return made

    def _input(self, value: Waiting, params: QParams) -> Coded:
        name = self._tensor(value.label, value.shape, params)
        self.inputs.append(name)
        return Coded(name, value.shape, params)

    def _emit(self, value: Waiting, params: QParams) -> Coded:
        spec = self.specs[value.op]
        first = next(iter(value.operands.values())).params
        if spec.quantization.family in self.platform.same_as_input and not _same_grid(first, params):
            raise UnsupportedError(
                f"{value.label}: {value.op} on {self.platform.platform} keeps the grid of its input. Give the "
                "Activation_fix after it the same FIXED scale."
            )
        constants = self._with_zero_bias(spec, value)
        shapes = {name: item.shape for name, item in value.operands.items()}
        shapes |= {name: tuple(item.codes.shape) for name, item in constants.items()}
        grids = {name: item.params for name, item in value.operands.items()}
        provided = parameters(spec, self.platform, shapes, value.attrs, grids, params, constants, value.activation)
        inputs: list[str | None] = []
        for name in spec.inputs:
            if name in constants:
                inputs.append(
                    self._constant(f"{value.label}.{name}", constants[name], spatial=spec.inputs[name].spatial)
                )
            else:
                inputs.append(value.operands[name].name if name in value.operands else None)
        return self._node(value, tuple(inputs), params, provided)

    def _with_zero_bias(self, spec: Spec, value: Waiting) -> dict[str, Constant]:
        """Return the constants, with a bias of zeros if the platform's files must have one."""
        found = dict(value.constants)
        form = spec.formats.get(FORMAT)
        if "compass" not in self.platform.places or form is None or "bias" not in form.zeros or "bias" in found:
            return found
        weight = found["weight"]
        (x,) = value.operands.values()
        # a bias has the scale of the sum to which it is added
        scale = x.params.scale * weight.params.scale
        zero = torch.zeros_like(scale).long()
        limit = 1 << 31
        params = QParams(dtype("int32"), scale, zero, -limit, limit - 1, axis=0 if scale.dim() else None)
        return {**found, "bias": Constant(torch.zeros(weight.codes.shape[0], dtype=torch.int64), params)}

    def _node(self, value: Waiting, inputs: tuple[str | None, ...], params: QParams, provided: Parameters) -> Coded:
        name = self._tensor(value.label, value.shape, params)
        attrs = dict(value.attrs)
        if self.order == "channels_last" and "axis" in attrs:
            attrs["axis"] = _last_axis(whole(attrs, "axis"), len(value.shape))
        self.nodes.append(
            Node(name, value.op, inputs, (name,), attrs, self.order, parameters=provided, activation=value.activation)
        )
        return Coded(name, value.shape, params)

    def _moved(self, coded: Coded, moved: Moved) -> Coded:
        if moved.op == "reshape" and self.order == "channels_last" and _spread(coded.shape):
            rank = len(coded.shape)
            # a reshape must read elements as if channels were first; coded.shape is in that order already
            perm = (0, rank - 1, *range(1, rank - 1))
            coded = self._movement(coded, "transpose", {"perm": perm}, coded.shape, f"{moved.label}_order", plain=True)
        return self._movement(coded, moved.op, moved.attrs, moved.shape, moved.label, plain=moved.op == "reshape")

    def _movement(
        self, coded: Coded, op: str, attrs: Mapping[str, AttrValue], shape: Shape, label: str, *, plain: bool
    ) -> Coded:
        """Add a node whose output has the grid of its input; *plain*: the output's shape is used unchanged."""
        spec, params = self.specs[op], coded.params
        provided = parameters(spec, self.platform, {"x": coded.shape}, attrs, {"x": params}, params, {}, "none")
        name = self._tensor(label, shape, params, plain=plain)
        self.nodes.append(Node(name, op, (coded.name,), (name,), dict(attrs), self.order, parameters=provided))
        return Coded(name, shape, params)

    def _constant(self, label: str, constant: Constant, *, spatial: bool) -> str:
        codes = constant.codes
        if spatial and self.order == "channels_last":
            codes = codes.movedim(1, -1)
        data = codes.to(container(constant.params.dtype)).contiguous()
        name = self._free(label)
        self.tensors[name] = Tensor(name, tuple(data.shape), constant.params.dtype, data, constant.params)
        return name

    def _tensor(self, label: str, shape: Shape, params: QParams, *, plain: bool = False) -> str:
        if self.order == "channels_last" and not plain and len(shape) > 2:
            shape = (shape[0], *shape[2:], shape[1])
        name = self._free(label)
        self.tensors[name] = Tensor(name, shape, params.dtype, None, params)
        return name

    def _free(self, label: str) -> str:
        name, count = label, 1
        while name in self.tensors:
            count += 1
            name = f"{label}_{count}"
        return name


def _same_grid(a: QParams, b: QParams) -> bool:
    return same_numbers(a, b) and (a.qmin, a.qmax) == (b.qmin, b.qmax)


def _regridded(coded: Coded, label: str) -> Waiting:
    """Return codes on another grid, by a scaling of each channel by 1 (the code 1 under the scale 1)."""
    params = QParams(dtype("int8"), torch.tensor(1.0, dtype=torch.float64), torch.tensor(0), -128, 127)
    # times 1: the operator only requantizes from one grid to the other
    ones = Constant(torch.ones(coded.shape[1], dtype=torch.int64), params)
    return Waiting("batch_norm", label, {"x": coded}, coded.shape, {"axis": 1}, {"weight": ones})


def _last_axis(axis: int, rank: int) -> int:
    """Return where axis *axis* of a channels-first tensor is when channels are last."""
    if rank < 3:
        return axis
    axis %= rank
    return 0 if axis == 0 else rank - 1 if axis == 1 else axis - 1


def _spread(shape: Shape) -> bool:
    """Return whether the order of axes matters, that is if there is more than one channel and more than one pixel."""
    places = 1
    for size in shape[2:]:
        places *= size
    return len(shape) > 2 and shape[1] > 1 and places > 1
