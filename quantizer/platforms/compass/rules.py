"""Quantize rules of the Compass Optimizer that differ from the generic rule.

Sources of the generic arithmetics in `numerics` that its platform selects:

* `sums`: scale_value and shift_value in its files: lists for a Concat, single numbers for a Reduce or an Activation
  (cases/reference/compass), and scale_value = [m, k_a, k_b] for an addition (elt_add).
* `normalize`: as recorded in cases/reference/compass/layernorm. `rules.ones_complement`: its Negative.
* `fused_activations`: it fuses them into sums of products and of operands.
* `resize`: ONNX's modes, and a position of 0 for one element. `rules.activation_params`: `scale = q_range / f_range`.

Other modules of this room have the rest:

* `powers_of_two`: Softmax under quantize_method FAST_EXP.
* `float24`: Softmax on X3 (float_lut).
* `logarithm_tables`: LogSoftmax before X2, in float32 arithmetic. No recorded run contains one.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import cast

import torch

from quantizer.core.attributes import real, whole
from quantizer.ir.formats.compass_tables import float_powers
from quantizer.numerics.fused_activations import bounds_of, slope_of
from quantizer.numerics.normalize import decided_by_table
from quantizer.numerics.parameters import default_parameters
from quantizer.numerics.pinned import pinned
from quantizer.numerics.qparams import Parameters, Rescale, Table
from quantizer.numerics.quantize import quantize as to_codes
from quantizer.numerics.ratio_to_multiplier import float32_multiplier
from quantizer.numerics.request import Request
from quantizer.numerics.sums import rescale_alone
from quantizer.numerics.tables import interpolated_table, linspace
from quantizer.ops import operator
from quantizer.optimize.logarithm_stages import SHARES
from quantizer.platforms.compass import logarithm_tables, periods, powers_of_two

UNITS = 65535
"""The number that represents 1 in the table of a division."""
# of interpolation, in the original
WEIGHT_BITS = 13
"""Binary places of the weights of an interpolation."""


@operator("clip", kind="quantize", platform="compass")
def clip(request: Request) -> Parameters:
    """Provide the multiplier, and both bounds as codes of eight more bits (no more for outputs over eight bits)."""
    parameters, bits = default_parameters(request), request.scheme.activation.bits
    (x,), y = parameters.inputs.values(), parameters.outputs["y"]
    low, high = (real(request.attrs, name) for name in ("low", "high"))
    bounds = bounds_of(low, high, y, bits)
    return replace(
        parameters,
        rescale=rescale_alone(request.platform, x, y, bits),
        numbers={"low": bounds.low, "high": bounds.high, "relay_bits": bounds.relay_bits},
    )


@operator("cosine", kind="quantize", platform="compass")
def cosine(request: Request) -> Parameters:
    """Provide a table over the codes, or over one period."""
    return periods.quantize(request, torch.cos)


@operator("div", kind="quantize", platform="compass")
def div(request: Request) -> Parameters:
    """Provide 65535 / |divisor| for every centred divisor, 0 for the divisor 0, and the multiplier that undoes it.

    Source: the Compass Optimizer's Div, in its float32 arithmetic.
    """
    parameters = default_parameters(request)
    (a, b), y = parameters.inputs.values(), parameters.outputs["y"]
    size = 1 << min(b.bits, request.scheme.activation.lut_bits)
    # UNITS / 0 is infinite and is clamped, then set to 0: a division by 0 gives 0
    entries = (UNITS / linspace(0, (1 << b.bits) - 1, size)).round().clamp(0, UNITS)
    entries[0] = 0
    table = Table(entries.long(), first=0, step=(1 << b.bits) // size, unit=1.0 / UNITS, bits=16)
    # a / b in output steps: (s_a / s_b) / s_y, and the table's unit
    ratio = (y.float32_steps * b.float32_steps) / (a.float32_steps * UNITS)
    mantissa, shift = float32_multiplier(
        ratio, request.scheme.activation.bits, positive=request.platform.multiplier.positive_shifts
    )
    rescale = Rescale("multiplier_shift", mantissa.double(), shift.long())
    return replace(parameters, tables={"inverse": table}, rescale=rescale)


@operator("group_norm", kind="quantize", platform="compass")
def group_norm(request: Request) -> Parameters:
    """Provide Compass's parameters of a normalisation over each group of channels."""
    groups = cast("int", request.attrs["num_groups"])
    return decided_by_table(request, math.prod(request.shapes["x"][1:]) // groups)


@operator("instance_norm", kind="quantize", platform="compass")
def instance_norm(request: Request) -> Parameters:
    """Provide Compass's parameters of a normalisation over the places of each channel."""
    return decided_by_table(request, math.prod(request.shapes["x"][2:]))


@operator("layer_norm", kind="quantize", platform="compass")
def layer_norm(request: Request) -> Parameters:
    """Provide the parameters of Compass. The elements of the axes from *axis* on are normalised together."""
    return decided_by_table(request, _elements(request))


@operator("leaky_relu", kind="quantize", platform="compass")
def leaky_relu(request: Request) -> Parameters:
    """Provide the slope as an integer of as many bits as the activation has, and the multiplier of both sides."""
    parameters, bits = default_parameters(request), request.scheme.activation.bits
    slope = slope_of(real(request.attrs, "slope"), bits)
    (x,) = parameters.inputs.values()
    ratio = rescale_alone(request.platform, x, parameters.outputs["y"], bits)
    return replace(parameters, rescale=ratio, numbers={"slope": int(slope.codes), "slope_shift": slope.shift})


@operator("log_softmax", kind="quantize", platform="compass")
def log_softmax(request: Request) -> Parameters:
    """Provide float32 exponentials over linspace; the output reaches from -16 to 0 and has every code of its format.

    Source: the Compass Optimizer's LogSoftmax on X2 and later, in its float32 arithmetic. If the request has a range of
    shares, the rule is that of the LogSoftmax of targets before X2.
    """
    if SHARES in request.ranges:
        return logarithm_tables.provided(request)
    parameters = default_parameters(request)
    x, y, bits = parameters.inputs["x"], parameters.outputs["y"], request.scheme.activation.bits
    # the table has at most 2**lut_bits entries; wider codes are interpolated
    size, last = 1 << min(bits, request.scheme.activation.lut_bits), (1 << bits) - 1
    # exp(-distance * scale); flipped below, so that the entry of distance 0 comes last
    values = linspace(0, last, size) * (1 / -x.float32_steps)
    with pinned():
        entries = torch.exp(values).flip(0)
    table = Table(entries, first=-last, step=(last + 1) // size, unit=1.0, bits=24)
    return replace(parameters, outputs={"y": replace(y, qmin=y.first)}, tables={"exp": table})


@operator("pad", kind="quantize", platform="compass")
def pad(request: Request) -> Parameters:
    """Provide the code of *value*, which Compass writes over it."""
    parameters = default_parameters(request)
    value = torch.tensor(real(request.attrs, "value"))
    code = to_codes(value, parameters.inputs["x"], request.platform.quantizer)
    return replace(parameters, numbers={"value": int(code)})


@operator("resize_bilinear", kind="quantize", platform="compass")
def resize_bilinear(request: Request) -> Parameters:
    """Provide the binary places of the weights."""
    return replace(default_parameters(request), numbers={"weight_bits": WEIGHT_BITS})


@operator("resize_nearest", kind="quantize", platform="compass")
def resize_nearest(request: Request) -> Parameters:
    """Provide weights of 0 bits, because nearest resizing has no weights."""
    return replace(default_parameters(request), numbers={"weight_bits": 0})


@operator("rms_norm", kind="quantize", platform="compass")
def rms_norm(request: Request) -> Parameters:
    """Provide the parameters of Compass. The elements of the axes from *axis* on are normalised together."""
    return decided_by_table(request, _elements(request), mean=False)


@operator("round", kind="quantize", platform="compass")
def rounding(request: Request) -> Parameters:
    """Provide a table that is built from the smallest code on, and read from the smallest of the format.

    With restricted codes these differ, and every code reads another code's entry. Source: the Compass Optimizer's
    Round.
    """
    parameters, rule = default_parameters(request), request.platform.tables
    x, bits = parameters.inputs["x"], request.scheme.activation.lut_bits
    table = interpolated_table(
        torch.round,
        x,
        parameters.outputs["y"],
        bits,
        request.platform.rounding,
        alignment=rule.alignment,
        repeated=False,
    )
    return replace(parameters, tables={"lut": replace(table, first=x.first)})


@operator("sine", kind="quantize", platform="compass")
def sine(request: Request) -> Parameters:
    """Provide a table over the codes, or over one period."""
    return periods.quantize(request, torch.sin)


@operator("softmax", kind="quantize", platform="compass")
def softmax(request: Request) -> Parameters:
    """Provide exponentials of the platform's bits over linspace, and the multiplier of the output's steps.

    Source: the Compass Optimizer's table method; float32, in its order of operations (facts:
    cases/reference/compass/softmax). The logarithm is rounded from float64, which matches the recorded float32 results.
    """
    tables = request.platform.tables
    method = tables.fast["softmax"] if request.scheme.activation.fast else tables.exponential
    if method in powers_of_two.HALVES or method == powers_of_two.BY_TABLES:
        return powers_of_two.quantize(request, method)
    parameters = default_parameters(request)
    x, y = parameters.inputs["x"], parameters.outputs["y"]
    bits = request.scheme.activation.bits
    size = 1 << min(bits, request.scheme.activation.lut_bits)
    terms = request.shapes["x"][whole(request.attrs, "axis")]
    # so many bits that the sum of one row fits 32
    wide = tables.exponential_bits or max(16, 32 - math.ceil(math.log2(terms)))
    last, largest = (1 << bits) - 1, (1 << wide) - 1
    # the distance 0 has the entry *largest*: its logarithm is added to every exponent
    offset = torch.tensor(math.log(largest), dtype=torch.float32) + x.zero_point / x.float32_steps
    values = (linspace(0, last, size) - last - x.zero_point) * (1 / x.float32_steps) + offset
    with pinned():
        entries = torch.exp(values).round().clamp(0, largest).to(torch.int64)
    # places between two entries
    step = 1 << (bits - int(math.log2(size)))
    table = Table(entries, first=-last, step=step, unit=1.0 / largest, bits=wide)
    mantissa, shift = float32_multiplier(y.float32_steps, bits, positive=request.platform.multiplier.positive_shifts)
    found = replace(parameters, tables={"exp": table}, numbers={"multiplier": int(mantissa), "shift": int(shift)})
    if method != "float24":
        return found
    return replace(found, tables={**found.tables, "powers": float_powers()})


def _elements(request: Request) -> int:
    """Return how many elements are normalized together: the elements along the axes from *axis* on."""
    return math.prod(request.shapes["x"][whole(request.attrs, "axis") :])
