"""What a quantize rule gets: an operator with its constants and ranges, and the parameters that follow from these."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import cast

import torch
from torch import Tensor

from quantizer.core.attributes import real
from quantizer.core.case import AttrValue, Range
from quantizer.core.dtypes import dtype
from quantizer.core.errors import GraphError, UnsupportedError
from quantizer.core.expressions import parse
from quantizer.core.platform_settings import CHOICE_NAMES, NARROW_BITS, SIGNS
from quantizer.core.platforms import Platform
from quantizer.core.schemes import Scheme
from quantizer.core.shapes import channel_axis, infer_shapes, variables
from quantizer.core.spec import Spec
from quantizer.core.variants import Variant
from quantizer.numerics.fused_activations import STAGED, bounds_of, slope_of
from quantizer.numerics.qparams import Bounds, Constant, QParams, Slope
from quantizer.numerics.quantize import quantize
from quantizer.numerics.rules import (
    Ends,
    activation_params,
    bias_params,
    fixed_params,
    full_range,
    held_with_zero_point,
    holding_bias,
    index_params,
    ones_complement,
    own_codes,
    same_numbers,
    weight_params,
    weight_part,
)


@dataclass(frozen=True)
class Request:
    """Input of a quantize rule: an operator with its float constants and calibrated ranges."""

    spec: Spec
    scheme: Scheme
    platform: Platform
    shapes: Mapping[str, tuple[int, ...]]
    attrs: Mapping[str, AttrValue]
    ranges: Mapping[str, Range]
    """Activation or output -> (smallest, largest) real value."""
    constants: Mapping[str, Tensor] = field(default_factory=dict)
    """Weights and biases, float32."""
    given: Mapping[str, QParams] = field(default_factory=dict)
    """Parameters of inputs that the operators producing them have already chosen."""
    activation: str = "none"
    """The fused activation."""
    activation_attrs: Mapping[str, object] = field(default_factory=dict)
    """The attributes of the fused activation, as in `ir.graph.Node`."""
    weight_ends: Mapping[str, Ends] = field(default_factory=dict)
    """Weight -> its calibrated range, if a strategy found another range than the extrema."""
    samples: Mapping[str, Tensor] = field(default_factory=dict)
    """Float activations, to calibrate tensors that *ranges* does not name: those that a plugin keeps for itself."""
    transformed: tuple[str, ...] = ()
    """Transformed weights of Winograd's algorithm."""

    @cached_property
    def inputs(self) -> dict[str, QParams]:
        """The parameters of the activations that hold codes, derived from their ranges."""
        present = [name for name in self.spec.coded if name in self.shapes or name in self.ranges]
        if present and self.spec.quantization.family in self.platform.shared_parameters:
            return self._shared(present)
        return {name: self.given.get(name) or self.input(name) for name in present}

    def _shared(self, names: list[str]) -> dict[str, QParams]:
        """Return one set of parameters for all inputs: that of their producers, or one from the union of the ranges."""
        values = [name for name in names if self.spec.inputs[name].kind != "index"]
        given = [self.given[name] for name in values if name in self.given]
        if any(not same_numbers(given[0], params) for params in given):
            raise GraphError(
                f"{self.spec.op} on {self.platform.platform}: its inputs share one scale and one zero point, "
                "their producers chose several. Requantize them to one first."
            )
        lows, highs = zip(*(self._range(name) for name in values), strict=True)
        params = given[0] if given else self._activation(min(lows), max(highs))
        # an index has no scale to share
        return {name: params if name in values else self.input(name) for name in names}

    def input(self, name: str) -> QParams:
        """Return the parameters of a graph input, from its calibrated range; for an index, 32-bit codes."""
        if self.spec.inputs[name].kind == "index":
            return own_codes(dtype("int32"))
        return self._activation(*self._range(name))

    def _activation(self, low: float, high: float) -> QParams:
        sign = self.platform.parameters.activation_sign
        signed = low < 0.0 if sign == "by_range" else sign == "signed"
        return activation_params(low, high, self.scheme.activation, self.platform.parameters, signed=signed)

    def output(self, name: str = "y") -> QParams:
        """Return the parameters of an output: calibrated, fixed by the platform, an input's, or those of an index."""
        rule = self.spec.quantization.outputs.get(name, "calibrated")
        if rule.startswith("same_as("):
            same = self.inputs[rule.removeprefix("same_as(").removesuffix(")")]
            return full_range(same) if self.spec.op in self.platform.full_range_outputs else same
        family, first = self.spec.quantization.family, next(iter(self.inputs.values()), None)
        equal = first is not None and all(same_numbers(first, params) for params in self.inputs.values())
        if first is not None and (
            family in self.platform.same_as_input or (equal and family in self.platform.same_as_equal_inputs)
        ):
            return first
        if first is not None and family in self.platform.ones_complement_outputs:
            return ones_complement(first)
        if rule == "index":
            return index_params(dtype(self.platform.index_dtype), mask=self.spec.outputs[name].kind == "mask")
        bits = self.scheme.activation.bits
        if fixed := self.platform.fixed_outputs.get(self.spec.op):
            return fixed_params(fixed.of(bits), bits, signed=self._output_signed())
        if family in self.platform.unit_range_above_8_bits and bits > NARROW_BITS:
            unit = self.scheme.activation.model_copy(update={"symmetry": "symmetric", "range": "restricted"})
            return activation_params(-1.0, 1.0, unit, self.platform.parameters, signed=True)
        low, high = self.platform.fixed_ranges.get(self.spec.op) or self._range(name)
        if family in self.platform.clamp_range_to_output_limits:
            low, high = self._limited(name, low, high)
        return activation_params(
            low, high, self.scheme.activation, self.platform.parameters, signed=self._output_signed()
        )

    def weight(self, name: str, group: int | None = None) -> Constant:
        """Return codes and parameters of a weight; *group* neighbouring channels share theirs."""
        if self.scheme.weight is None:
            raise GraphError(f"{self.spec.op}: scheme {self.scheme.name} has no weight part. Use one such as w8a8.")
        values = self.constants[name]
        axis = self.spec.inputs[name].channel_axis
        part = weight_part(self.scheme.weight, self.platform, self.spec.quantization.family)
        ends = self.weight_ends.get(name)
        block_axis = self.spec.inputs[name].block_axis
        params = weight_params(
            values, part, self.platform.parameters, axis, group=group, ends=ends, block_axis=block_axis
        )
        # the weight scale grows if the bias would overflow its codes
        if self.platform.parameters.weights_hold_bias and self.spec.error_model.kind == "bilinear":
            for other, item in self.spec.inputs.items():
                if item.role == "bias" and other in self.constants:
                    factor = next(iter(self.inputs.values())).scale
                    params = holding_bias(params, self.constants[other], factor, self.scheme.weight.bias_bits)
        return Constant(quantize(values, params, self.platform.quantizer), params, name in self.transformed)

    def bias(self, name: str, factors: list[QParams], weights: Mapping[str, Constant] | None = None) -> Constant:
        """Return the codes of a bias. Its scale is the product of the scales of *factors*.

        *weights*: constants whose sums are needed if the platform's bias includes the input zero point's share.
        """
        if self.scheme.weight is None:
            raise GraphError(f"{self.spec.op}: scheme {self.scheme.name} has no weight part. Use one such as w8a8.")
        scale, steps = factors[0].scale, factors[0].steps
        for other in factors[1:]:
            scale = scale * other.scale
            steps = steps * other.steps if steps is not None and other.steps is not None else None
        # a float32 quantizer sees the product of scales as a float32 number
        if self.platform.quantizer.operation in ("divide_float32", "inverse_float32"):
            scale = scale.float().double()
        channel = self.spec.inputs[name].channel_axis or 0
        axis = next((channel for params in factors if params.axis is not None), None)
        params = bias_params(scale, steps, self.scheme.weight.bias_bits, axis)
        operation = self.platform.quantizer
        # the bias is divided by that product in float64, though activations are quantized in float32
        if operation.operation in ("divide_float32", "inverse_float32"):
            operation = operation.model_copy(update={"operation": "exact"})
        codes = quantize(self.constants[name], params, operation)
        family = self.spec.quantization.family
        if family in self.platform.absorbs_zero_point:
            for weight in (weights or {}).values():
                # all groups of a transposed convolution share the first axis of the weight
                repeats = len(codes) // len(weight.codes)
                zero = next(iter(self.inputs.values())).zero_point
                added, undone = (-zero * sums.repeat(repeats) for sums in (weight.sums, weight.centred_sums))
                effective = self.platform.bias_effective_bits.get(family)
                codes = held_with_zero_point(codes, added, params, effective, undone)
        return Constant(codes, params)

    @cached_property
    def variant(self) -> Variant:
        """The platform's requantization variant for this case."""
        return self.platform.variant(self.spec.quantization.family, self._choice)

    def _choice(self) -> dict[str, object]:
        """Return the variables that conditions of `variants` in platform files may use."""
        weight = self.scheme.weight
        values = (
            self.scheme.activation.bits,
            0 if weight is None else weight.bits,
            tuple(self.shapes),
            tuple(int(params.zero_point) for params in self.inputs.values()),
            *self._ratios(),
        )
        return {**variables(self.spec, self.shapes, self.attrs), **dict(zip(CHOICE_NAMES, values, strict=True))}

    def _ratios(self) -> tuple[tuple[float, ...], float]:
        """Return the float32 ratios of each input scale, and of their product, to the output scale."""
        scale = self.output(next(iter(self.spec.outputs))).scale.float()
        own = [params.scale.float() for params in self.inputs.values()]
        return tuple(float(one / scale) for one in own), float(functools.reduce(torch.mul, own) / scale)

    @cached_property
    def channels(self) -> int:
        """Size of the output along its channel axis; 0 if it has no channel axis."""
        shape = next(iter(infer_shapes(self.spec, self.shapes, self.attrs).values()))
        return 0 if self.channel_axis is None else shape[self.channel_axis]

    @cached_property
    def channel_axis(self) -> int | None:
        """The axis of the output along which channels lie."""
        shape = next(iter(infer_shapes(self.spec, self.shapes, self.attrs).values()))
        return channel_axis(self.spec, variables(self.spec, self.shapes, self.attrs), len(shape))

    def _limited(self, name: str, low: float, high: float) -> Range:
        """Return a range clamped to the limits that the spec gives output *name*."""
        bound, item = variables(self.spec, self.shapes, self.attrs), self.spec.outputs[name]
        least, most = (
            default if end is None else torch.tensor(float(end(bound)), dtype=torch.float32).item()
            for end, default in ((item.min, -math.inf), (item.max, math.inf))
        )
        return within(low, high, least, most)

    def _range(self, name: str) -> Range:
        if name not in self.ranges:
            raise GraphError(f"{self.spec.op}: tensor {name!r} has no calibrated range.")
        return self.ranges[name]

    def _output_signed(self) -> bool:
        signs, family = self.platform.output_signs, self.spec.quantization.family
        sign = signs[self.activation] if self.activation in signs else signs.get(family)
        if sign == "inputs":
            return any(params.dtype.kind == "int" for params in self.inputs.values())
        if sign is None:
            return self.platform.parameters.activation_sign != "unsigned"
        if sign in SIGNS:
            return sign == "signed"
        taken = {name: value for name, value in self.activation_attrs.items() if not isinstance(value, Tensor)}
        return bool(parse(sign)({**variables(self.spec, self.shapes, self.attrs), **taken}))

    def fused(self, name: str = "y") -> Slope | Bounds | None:
        """Return the integers of a fused activation with a slope or bounds; None for other activations.

        Bounds are codes under parameters for the calibrated range clamped to the bounds. With a zero point these are
        not the output's parameters.
        """
        bits, family = self.scheme.activation.bits, self.spec.quantization.family
        if self.activation == "clip":
            least, most = (real(self.activation_attrs, end) for end in ("low", "high"))
            low, high = within(*self._range(name), least, most)
            own = activation_params(
                low, high, self.scheme.activation, self.platform.parameters, signed=self._output_signed(), widened=False
            )
            return bounds_of(least, most, own, bits)
        if self.activation not in STAGED:
            return None
        slope = cast("float | Tensor", self.activation_attrs["slope"])
        axis = 1 if self.spec.outputs[name].spatial else -1
        found = slope_of(slope, bits, axis=axis, float32=family in self.platform.accumulator.float32)
        # with a negative slope, the larger accumulator no longer gives the larger value
        if family == "comparison" and bool((found.codes < 0).any()):
            raise UnsupportedError(
                f"{self.spec.op}: a fused {self.activation} with a slope below 0 turns the order of operands around,"
                " which is not implemented here. Write the activation as a layer of its own."
            )
        return found


def within(low: float, high: float, least: float, most: float) -> Range:
    """Return the range [low, high] clamped to [least, most], in float32."""
    least, most = (torch.tensor(end, dtype=torch.float32).item() for end in (least, most))
    return min(max(low, least), most), max(min(high, most), least)
