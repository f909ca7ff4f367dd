"""Reads a layer's multipliers, shifts and tables, in Compass's names, as ours."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from quantizer.core.errors import PluginError
from quantizer.numerics.qparams import Constant, QParams, Rescale, Table
from quantizer.numerics.ratio_to_multiplier import FLOAT32_EPSILON
from quantizer.numerics.request import Request
from quantizer.numerics.roots import inverse_root_table
from quantizer.plugins.aipu.node import PyNode
from quantizer.plugins.attributes import attribute_numbers
from quantizer.plugins.layer import Layer

SCALE, SHIFT = "scale", "shift"
LUT = "lut"
SUMS = ("linear", "mean", "selection", "monotone")
"""Error models of operators whose multiplier brings operands, or their sum, to the output's codes."""
TABULATED = ("monotone", "piecewise_monotone", "set_valued", "poles", "softmax")
"""Error models of functions of one input, whose table `lut` is read by the input's codes."""


def numbers_of(node: PyNode, name: str) -> Tensor | None:
    """Return the parameter `<name>_value`, or else the constant *name*, as flat float64; None if neither exists."""
    if f"{name}_value" in node.params:
        return torch.as_tensor(node.params[f"{name}_value"]).double().reshape(-1)
    return node.constants[name].betensor.double().reshape(-1) if name in node.constants else None


def rescale_of(node: PyNode, layer: Layer, constants: Mapping[str, Constant], request: Request) -> Rescale | None:
    """Return multiplier and shift: of a product for all channels or each one, of a sum with the operands' factors."""
    kind, numbers, shifts = layer.spec.error_model.kind, numbers_of(node, SCALE), numbers_of(node, SHIFT)
    if kind not in (*SUMS, "bilinear", "normalization"):
        return None
    if numbers is None or shifts is None:
        return _derived(node, layer, request)
    if kind in SUMS:
        return _sum_rescale(node, layer, numbers, shifts)
    axes = [c.params.axis for n, c in constants.items() if layer.spec.inputs[n].role == "weight"]
    own_channels = next((c.codes.shape[c.params.axis or 0] for c in constants.values() if c.codes.dim()), 1)
    channels = request.channels or own_channels
    if max(numbers.numel(), shifts.numel()) == 1 and not any(axis is not None for axis in axes):
        return Rescale("multiplier_shift", numbers.reshape(()), shifts.reshape(()).long())
    for what, values in (("multipliers", numbers), ("shifts", shifts)):
        if values.numel() not in (1, channels):
            raise PluginError(
                f"{node.type.name}: {values.numel()} {what} for {channels} channels. Write one, or one each."
            )
    own, places = numbers.expand(channels).clone(), shifts.expand(channels).long()
    return Rescale("multiplier_shift", own, places, axis=request.channel_axis)


def _derived(node: PyNode, layer: Layer, request: Request) -> Rescale | None:
    """Return the multiplier of a layer that holds no numbers: 1 / area for a pooling, 1 for copied codes."""
    family, platform = layer.spec.quantization.family, request.platform
    one, none = torch.tensor(1.0, dtype=torch.float64), torch.tensor(0)
    if platform.requantize.get(family) == "area_multiplier":
        return Rescale("area_multiplier", one, none)
    reach = platform.aligned_within.get(family)
    steps = [float(tensor.scale) for tensor in (*node.inputs, *node.outputs) if tensor.scale is not None]
    zeros = {int(tensor.zerop) for tensor in (*node.inputs, *node.outputs) if tensor.zerop is not None}
    if reach is not None and len(zeros) == 1 and max(steps) / (min(steps) + FLOAT32_EPSILON) <= reach:
        return Rescale("multiplier_shift", one, none, factors={tensor.name: 1.0 for tensor in node.inputs})
    return None


def _sum_rescale(node: PyNode, layer: Layer, numbers: Tensor, shifts: Tensor) -> Rescale:
    names = [name for name in layer.activations if name in {t.name for t in node.inputs}]
    count = len(names)
    if numbers.numel() == shifts.numel() == count and count > 1:
        shift = shifts.max()
        # pairs are brought to the largest shift, where their multipliers stay whole numbers
        factors = numbers * torch.exp2(shift - shifts)
        mantissa = torch.ones((), dtype=torch.float64)
    elif shifts.numel() == 1 and numbers.numel() in (1, count + 1):
        mantissa, shift = numbers[0], shifts[0]
        factors = numbers[1:] if numbers.numel() > 1 else torch.ones(count)
    else:
        raise PluginError(
            f"{node.type.name}: scale_value holds {numbers.numel()} numbers and shift_value {shifts.numel()} for"
            f" {count} inputs. Write scale_value = [m, {', '.join(f'k_{n}' for n in names)}] and one shift_value."
        )
    named = {name: float(factor) for name, factor in zip(names, factors, strict=True)}
    return Rescale("multiplier_shift", mantissa.reshape(()), shift.reshape(()).long(), factors=named)


def tables_of(node: PyNode, layer: Layer, request: Request, output: QParams) -> dict[str, Table]:
    """Return the table `lut`, indexed by the input's codes, or for a softmax by the distance from the largest code."""
    if LUT not in node.constants or len(layer.activations) != 1:
        return {}
    entries = node.constants[LUT].betensor.flatten()
    if layer.spec.error_model.kind == "normalization" and entries.numel() == inverse_root_table().entries.numel():
        return {"inverse_root": replace(inverse_root_table(), entries=entries.long())}
    if layer.spec.error_model.kind not in TABULATED or layer.spec.error_model.logarithm:
        return {}
    inp = request.inputs[layer.activations[0]]
    bits = entries.numel().bit_length() - 1
    # not a table over the input's codes: it has another meaning in this plugin
    if (
        entries.numel() != 1 << bits
        or bits > inp.dtype.bits
        or (entries.is_floating_point() and bool((entries % 1).any()))
    ):
        return {}
    step = 1 << (inp.dtype.bits - bits)
    entries = entries.long()
    if layer.spec.error_model.kind == "softmax":
        # the last entry stands for exp(0) = 1
        largest = max(1, int(entries[-1]))
        return {"exp": Table(entries, 1 - (1 << inp.dtype.bits), step, 1.0 / largest, largest.bit_length())}
    return {LUT: Table(entries, inp.dtype.min, step, float(output.scale), output.dtype.bits)}


def whole_numbers(node: PyNode, layer: Layer, before: Mapping[str, Any]) -> dict[str, int]:
    """Return multiplier and shift of a softmax, which has no accumulator; for others, attributes that are integers."""
    if layer.spec.error_model.kind != "softmax" or layer.spec.error_model.logarithm:
        return attribute_numbers(node, layer, before)
    numbers, shifts = numbers_of(node, SCALE), numbers_of(node, SHIFT)
    if numbers is None or shifts is None or numbers.numel() > 1:
        return {}
    return {"multiplier": int(numbers[0]), "shift": int(shifts[0])}
