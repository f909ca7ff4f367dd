"""Presents one of our operators as a Compass layer: names, axis order, IR parameters, and a node built from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from quantizer.core.dtypes import DType
from quantizer.core.expressions import Expression
from quantizer.core.platforms import Platform
from quantizer.core.schemes import Scheme
from quantizer.core.shapes import evaluate, tensor_shapes, variables
from quantizer.core.spec import Input, Output, Spec
from quantizer.ir.formats.compass_axes import constant_order, from_front, trailing
from quantizer.ir.formats.compass_mapping import FORMAT
from quantizer.ir.formats.compass_text import parse_value
from quantizer.plugins.aipu.dtypes import Dtype, from_ours
from quantizer.plugins.aipu.node import PyGraph, PyNode
from quantizer.plugins.aipu.optypes import OpTypeValue
from quantizer.plugins.aipu.tensor import PyTensor, TensorShape

Shapes = Mapping[str, tuple[int, ...]]
NAMES = {"weight": "weights", "bias": "biases"}
"""Role -> the name of the constant if a spec has no `formats.compass`."""
FLOAT32_INTEGERS = 1 << 24
"""float32 holds every integer up to this number."""


@dataclass(frozen=True)
class Layer:
    """The mapping of an operator's spec to a layer type."""

    spec: Spec
    type: OpTypeValue

    @property
    def constants(self) -> dict[str, str]:
        """Our operand -> the name of the layer's constant, for operands that the layer stores."""
        form = self.spec.formats.get(FORMAT)
        given = form.inputs if form else {}
        stored = {n: item for n, item in self.spec.inputs.items() if n in given or item.role != "activation"}
        return {name: given.get(name) or NAMES.get(item.role, name) for name, item in stored.items()}

    @property
    def activations(self) -> list[str]:
        """Our operands that are the layer's inputs, in order."""
        return [name for name in self.spec.inputs if name not in self.constants]

    def params(self, shapes: Shapes, attrs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the IR parameters: derived values, attributes under their keys or names, and fixed values."""
        form, bound = self.spec.formats.get(FORMAT), variables(self.spec, shapes, attrs)
        found: dict[str, Any] = {}
        for key, rule in (form.derived if form else {}).items():
            found[key] = theirs(rule(bound) if isinstance(rule, Expression) else rule)
        for name in self.spec.attrs:
            keys = form.attrs.get(name, name) if form else name
            value = theirs(bound[name])
            if form and name in form.from_front:
                value = from_front(value, len(next(iter(shapes.values()))))
            if form and name in form.pairs:
                # ours lists all starts, then all ends; Compass has a pair for each axis
                value = [list(pair) for pair in zip(value[: len(value) // 2], value[len(value) // 2 :], strict=True)]
            if form and name in form.trailing_axes:
                keys, value = form.trailing_axes[name], list(trailing(value, len(next(iter(shapes.values())))))
            found |= {keys: value} if isinstance(keys, str) else dict(zip(keys, value, strict=True))
        if form and form.activation is not None:
            found[form.activation] = form.unfused
        # flags that would transpose an operand, which our operators do not do
        found |= dict.fromkeys(form.transposed.values() if form else (), False)
        return found | {key: theirs(parse_value(text)) for key, text in (form.fixed if form else {}).items()}

    def missing_biases(self, shapes: Shapes, attrs: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
        """Return the shapes of biases that the case leaves out. A layer always has them, as zeros."""
        bound = variables(self.spec, shapes, attrs)
        absent = {n: item for n, item in self.spec.inputs.items() if item.role == "bias" and n not in shapes}
        return {name: evaluate(item.axes, bound) for name, item in absent.items()}

    def node(
        self,
        operands: Mapping[str, Tensor],
        attrs: Mapping[str, Any],
        layer_attrs: Mapping[str, Any],
        activation: str = "none",
    ) -> PyNode:
        """Return the layer with *operands* (in the operator's order, of any type), without quantization fields."""
        shapes = {name: tuple(values.shape) for name, values in operands.items()}
        zeros = {name: torch.zeros(shape) for name, shape in self.missing_biases(shapes, attrs).items()}
        node = PyNode(self.spec.op, self.type)
        for name, values in {**operands, **zeros}.items():
            item = self.spec.inputs[name]
            tensor = self._tensor(name, self.arranged(name, values).clone(memory_format=torch.contiguous_format))
            if name in self.constants:
                tensor.key_axis = tensor.key_axis_c = layer_axis(item)
                node.constants[self.constants[name]] = tensor
            else:
                node.inputs.append(tensor)
        made = tensor_shapes(self.spec, shapes, attrs)
        for place, (key, shape) in enumerate(self.spec.keys_of(made)):
            name = key if len(self.spec.outputs) == len(made) else f"{key}{place}"
            node.outputs.append(self._tensor(name, layer_order(torch.zeros(shape), self.spec.outputs[key])))
        node.params.update(self.params(shapes, attrs))
        if activation != "none" and FORMAT in self.spec.formats:
            node.params[str(self.spec.formats[FORMAT].activation)] = activation.upper()
        batch = node.inputs[0].shape[0] if node.inputs and node.inputs[0].betensor.dim() else 1
        node.attrs.update({"layer_id": "1", "batch_size_in_IR": batch, **layer_attrs})
        node.graph = PyGraph(self.spec.op, {t.name for t in (*node.inputs, *node.outputs)}, batch)
        return node

    def arranged(self, name: str, values: Tensor) -> Tensor:
        """Return a view of operand *name* in the layer's axis order."""
        last = layer_order(values, self.spec.inputs[name])
        if name not in self.layouts:
            return last
        order = constant_order(self.spec, name)
        return last.permute([order.index(axis) for axis in range(len(order))])

    def restored(self, name: str, values: Tensor) -> Tensor:
        """Return a view of operand *name* in the operator's axis order, the inverse of `arranged`."""
        if name in self.layouts:
            values = values.permute(constant_order(self.spec, name))
        return operator_order(values, self.spec.inputs[name])

    @property
    def layouts(self) -> Mapping[str, list[str]]:
        """Operands that the layer stores in another axis order."""
        return self.spec.formats[FORMAT].layouts if FORMAT in self.spec.formats else {}

    @staticmethod
    def _tensor(name: str, values: Tensor) -> PyTensor:
        tensor = PyTensor(name, TensorShape())
        tensor.betensor, tensor.ir_shape = values, TensorShape(values.shape)
        tensor.dtype = tensor.ir_dtype = Dtype.FP32
        return tensor


def layer_order(values: Tensor, item: Input | Output) -> Tensor:
    """Return a view in Compass's order: for a spatial operand, with the channel last."""
    return values.movedim(1, -1) if item.spatial else values


def operator_order(values: Tensor, item: Input | Output) -> Tensor:
    """Return a view in the operator's order: for a spatial operand, with the channel at axis 1."""
    return values.movedim(-1, 1) if item.spatial and values.dim() > 1 else values


def layer_axis(item: Input) -> int:
    """Return the channel axis of a constant in Compass's order; 0 if the spec names no axis."""
    axis = item.channel_axis or 0
    if not item.spatial or axis == 0:
        return axis
    return -1 if axis == 1 else axis - 1


def theirs(value: Any) -> Any:
    """Return an attribute or IR value as Compass holds it: lists for tuples, Dtype for number formats."""
    if isinstance(value, tuple | list):
        return [theirs(item) for item in value]
    return from_ours(value) if isinstance(value, DType) else value


def held_codes(codes: Tensor) -> Tensor:
    """Return integer codes in the type in which Compass computes: float32, or float64 if it cannot hold them all."""
    largest = int(codes.abs().max()) if codes.numel() else 0
    return codes.to(torch.float32 if largest <= FLOAT32_INTEGERS else torch.float64)


def layer_attrs(scheme: Scheme, platform: Platform, type: OpTypeValue) -> dict[str, Any]:  # noqa: A002
    """Return the attributes that the flow gives a layer under *scheme*; DepthwiseConv is always per channel."""
    part, weight = scheme.activation, scheme.weight
    # above this width Compass has symmetric codes alone
    wide = part.bits > platform.parameters.symmetric_above_bits
    if part.symmetry == "asymmetric" and not wide:
        mode = "per_tensor_asymmetric"
    else:
        reach = "restricted" if wide and part.symmetry == "asymmetric" else part.range
        mode = f"per_tensor_symmetric_{reach}_range"
    grain = (
        "per_channel" if (weight and weight.granularity == "channel") or type.name == "DepthwiseConv" else "per_tensor"
    )
    span = f"symmetric_{weight.range if weight else 'restricted'}_range"
    weight_mode = f"{grain}_{span if weight is None or weight.symmetry == 'symmetric' else 'asymmetric'}"
    return {
        "q_bits_activation": part.bits,
        "q_bits_weight": weight.bits if weight else 8,
        "q_bits_bias": weight.bias_bits if weight else 32,
        "q_mode_activation": mode,
        "q_mode_weight": weight_mode,
        "q_mode_bias": weight_mode,
        "q_strategy_activation": "extrema",
        "q_strategy_weight": "extrema",
        "lut_items_in_bits": part.lut_bits,
        "multiplier_bits": min(part.bits, platform.multiplier.max_bits),
        "bias_effective_bits": 32,
        "unify_shifts_for_aiff": platform.multiplier.unify_shifts,
        "force_dtype_int": False,
        "force_shift_positive": False,
        "trigger_float_op": "disable",
        "running_statistic_momentum": 0.9,
        "histc_bins": 2048,
    }
