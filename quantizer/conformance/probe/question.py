"""A question to an engine: one operator with given codes and parameters, and the answer of a platform."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from quantizer.conformance.target import Target
from quantizer.core.case import AttrValue, Case, DataRecipe, TilePlan
from quantizer.core.platforms import Platform
from quantizer.numerics.provided_request import ProvidedRequest
from quantizer.numerics.qparams import Constant, QParams
from quantizer.numerics.quantize import dequantize
from quantizer.numerics.request import Request
from quantizer.numerics.rules import bias_params
from quantizer.runtime.engines.builtin import BuiltinEngine
from quantizer.runtime.engines.protocol import Call, Engine

Array = NDArray[Any]
_OWN = BuiltinEngine()


@dataclass(frozen=True)
class Question:
    """One run of one operator. Its output elements are separate items, each with its own sum."""

    target: Target
    attrs: Mapping[str, AttrValue]
    inputs: Mapping[str, QParams]
    output: QParams
    codes: Mapping[str, Tensor]
    """The values of all operands including constants; real numbers if the operator reads them."""
    constants: Mapping[str, Constant]
    aim: str
    """What its items were solved for, in words: accumulators and remainders."""
    shown: Mapping[str, Array]
    """Operand -> the elements that each item reads, one row per item."""

    @property
    def call(self) -> Call:
        """The operator, its attributes and the platform."""
        return Call(self.target.spec, self.attrs, "channels_first", "none", self.target.platform.places)

    def codes_of(self, engine: Engine) -> Array:
        """Return the codes from *engine*, unchanged."""
        parameters = engine.quantize(self._request(self.target.platform))
        found: Array = engine.run(self.call, self._copies(), parameters).codes.numpy()
        return found

    def expected(self, platform: Platform) -> Array:
        """Return the codes that the functions of *platform* give, one per item."""
        parameters = _OWN.quantize(self._request(platform))
        return flat(_OWN.run(self.call.but(places=platform.places), self._copies(), parameters).codes.numpy())

    def params(self, name: str) -> QParams:
        """Return the grid of an operand."""
        constant = self.constants.get(name)
        return constant.params if constant else self.inputs[name]

    def values(self) -> dict[str, Tensor]:
        """Return the real values of the operands, in float64."""
        return {name: self._values(name) for name in self.codes}

    def exact(self) -> Array:
        """Return the operator's real result for each item in output steps, in float64, without the zero point."""
        return flat(self._reference().numpy() / float(self.output.scale))

    def _reference(self) -> Tensor:
        shapes = {name: tuple(values.shape) for name, values in self.codes.items()}
        case = Case(
            self.target.spec.op,
            self.target.scheme.name,
            self.target.platform.platform,
            shapes,
            self.attrs,
            {},
            "channels_first",
            TilePlan({}),
            DataRecipe("random", 0),
        )
        return self.target.reference(self.values(), case)

    def _values(self, name: str) -> Tensor:
        codes = self.codes[name]
        if codes.is_floating_point():
            return codes.double()
        return dequantize(codes, self.params(name))

    def _copies(self) -> dict[str, Tensor]:
        # a function under test may write into its operands
        return {name: values.clone() for name, values in self.codes.items()}

    def _request(self, platform: Platform) -> ProvidedRequest:
        shapes = {name: tuple(values.shape) for name, values in self.codes.items()}
        reals = {name: self._values(name).float() for name in self.constants}
        return ProvidedRequest(
            self.target.spec,
            self.target.scheme,
            platform,
            shapes,
            self.attrs,
            {},
            reals,
            self.inputs,
            output_params=self.output,
            weights=self.constants,
        )


@dataclass(frozen=True)
class Grids:
    """The grids that a platform allows for an operator. Scales and zero points that it does not fix are free."""

    target: Target
    attrs: Mapping[str, AttrValue]
    shapes: Mapping[str, tuple[int, ...]]

    def _request(self, given: Mapping[str, QParams]) -> Request:
        ranges = dict.fromkeys((*self.target.spec.activations, *self.target.spec.outputs), (-1.0, 1.0))
        target = self.target
        return Request(target.spec, target.scheme, target.platform, self.shapes, self.attrs, ranges, {}, given)

    @property
    def shared(self) -> bool:
        """Whether all inputs have one grid."""
        return self.target.spec.quantization.family in self.target.platform.shared_parameters

    @property
    def follows(self) -> bool:
        """Whether the platform decides the output's grid."""
        spec, platform = self.target.spec, self.target.platform
        family = spec.quantization.family
        return (
            spec.quantization.outputs.get("y", "calibrated") != "calibrated"
            or family in (*platform.same_as_input, *platform.ones_complement_outputs)
            or spec.op in (*platform.fixed_outputs, *platform.fixed_ranges)
        )

    def inputs(self, scales: Mapping[str, float], zeros: Mapping[str, float]) -> dict[str, QParams]:
        """Return the activations' grids; *zeros*: places of zero points, from 0 (smallest code) to 1 (largest)."""
        made = {name: self.grid(params, scales[name], zeros[name]) for name, params in self._request({}).inputs.items()}
        first = next(iter(made.values()), None)
        return dict.fromkeys(made, first) if self.shared and first is not None else made

    def output(self, inputs: Mapping[str, QParams], scale: float, zero: float) -> QParams:
        """Return the grid of the output, which may be the platform's decision."""
        if self.follows:
            return self._request(inputs).output()
        return self.grid(self._request(inputs).output(), scale, zero)

    def grid(self, params: QParams, scale: float, zero: float | None) -> QParams:
        """Return *params* with another scale, in the platform's format, and zero point; None: the zero point stays."""
        value = torch.tensor(scale, dtype=torch.float32)
        symmetric = self.target.scheme.activation.symmetry == "symmetric"
        low = max(params.qmin, -params.qmax) if params.dtype.min < 0 else params.qmin
        share = 0.0 if zero is None else zero
        place = torch.tensor(0 if symmetric else low + round(share * (params.qmax - low)))
        place = params.zero_point if zero is None else place
        if self.target.platform.parameters.scale == "float32_steps":
            steps = 1.0 / value
            return replace(params, scale=1.0 / steps.double(), zero_point=place, steps=steps)
        return replace(params, scale=value.double(), zero_point=place)

    def bias(self, x: QParams, weight: QParams, codes: Tensor) -> Constant:
        """Return a bias of *codes* in units of the sums."""
        scale, part = x.scale * weight.scale, self.target.scheme.weight
        if self.target.platform.quantizer.operation in ("divide_float32", "inverse_float32"):
            # such a quantizer multiplies float32 scales, so the bias scale is a float32 number
            scale = scale.float().double()
        steps = None if x.steps is None or weight.steps is None else x.steps * weight.steps
        return Constant(codes, bias_params(scale, steps, 32 if part is None else part.bias_bits, 0))


def flat(values: Array) -> Array:
    """Return every element as an item."""
    return np.asarray(values).reshape(-1)
