"""Softmax with powers of two instead of e: dividing by the sum is subtracting its logarithm from the exponents."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from quantizer.core.attributes import whole
from quantizer.ir.formats.compass_tables import LEAST_FRACTION, logarithms, powers
from quantizer.numerics.parameters import default_parameters
from quantizer.numerics.qparams import Parameters, Staged
from quantizer.numerics.ratio_to_multiplier import float32_multiplier
from quantizer.numerics.request import Request
from quantizer.numerics.rules import activation_params

HALVES = {"power_of_two": 0, "power_of_two_halves": 1}
"""Method of the exponential -> fraction bits of the sum's logarithm."""
BY_TABLES = "power_of_two_table"
"""Exponents have fractional bits; the platform's table rule gives their number."""
LOG2_E = 1.442695
BITS = 13
"""The number of bits of the multiplier from codes to exponents, under every scheme."""
# the accumulator of the sum saturates here
LARGEST = (1 << 31) - 1
ROOT_HALF = 1518500250
"""The square root of two in units of 2**-30: above it 1/2 is added to a mantissa's logarithm (not nearest)."""


def quantize(request: Request, method: str) -> Parameters:
    """Return parameters with the multiplier from codes to exponents; the output is unsigned and ends at 1."""
    parameters = default_parameters(request)
    x, (low, _) = parameters.inputs["x"], request.ranges["y"]
    part = request.scheme.activation.model_copy(update={"symmetry": "symmetric"})
    # shares are never above 1, whatever the calibrated range says
    output = activation_params(low, 1.0, part, request.platform.parameters, signed=False)
    positive = request.platform.multiplier.positive_shifts
    multiplier, shift = float32_multiplier(LOG2_E / x.float32_steps, BITS, positive=positive)
    size = request.shapes["x"][whole(request.attrs, "axis")]
    numbers = {
        "multiplier": int(multiplier),
        "shift": int(shift),
        # size powers of at most 2**largest_exponent then stay below 2**32
        "largest_exponent": 31 - (size.bit_length() - 1),
        "halves": request.platform.tables.fraction_bits if method == BY_TABLES else HALVES[method],
    }
    return replace(parameters, outputs={"y": output}, numbers=numbers)


def quantized(x: Tensor, parameters: Parameters, axis: int) -> Staged:
    """Return softmax codes: distances to the largest code as integer exponents, minus the log of the sum of powers."""
    numbers, output = parameters.numbers, parameters.outputs["y"]
    fraction = numbers["halves"]
    if fraction >= LEAST_FRACTION:
        return _by_tables(x, parameters, axis)
    products = (x - x.amax(dim=axis, keepdim=True)).long() * numbers["multiplier"]
    shift = numbers["shift"]
    # an arithmetic shift rounds down
    exponents = products >> shift if shift >= 0 else products << -shift
    powers = _power(exponents + numbers["largest_exponent"])
    # 1 at least, so that its logarithm exists
    total = powers.sum(dim=axis, keepdim=True).clamp(1, LARGEST)
    logarithm = _logarithm(total, numbers["largest_exponent"], fraction)
    # 2**(exponent + bits) / sum, so that a share of 1 is 2**bits: the division is a difference of exponents
    codes = _power((((exponents + output.bits) << fraction) - logarithm) >> fraction)
    codes = codes.clamp(output.qmin, output.qmax)
    return Staged(codes, {"exp": powers, "logarithm": logarithm})


def _by_tables(x: Tensor, parameters: Parameters, axis: int) -> Staged:
    """Read powers of two of exponents with a fraction, and the logarithm of their sum, from tables.

    A code of 2**bits, which only a row of one exponential can reach, saturates.
    """
    numbers, output = parameters.numbers, parameters.outputs["y"]
    fraction, point = numbers["halves"], numbers["largest_exponent"]
    products = (x - x.amax(dim=axis, keepdim=True)).long() * numbers["multiplier"]
    places = numbers["shift"] - fraction
    exponents = products >> places if places > 0 else products << -places
    exponentials = _power_by_table(exponents, fraction, point)
    total = exponentials.sum(dim=axis, keepdim=True).clamp(1, LARGEST)
    whole = torch.floor(torch.log2(total.double())).long()
    # the mantissa has 30 places: the 8 bits after its leading 1 are the index
    entry = logarithms()[(total << (30 - whole)) >> 22 & 255]
    # entries have 15 places; the exponent of the sum is added in the same unit
    logarithm = (entry << 15 >> (30 - fraction)) + ((whole - point) << fraction)
    codes = _power_by_table(exponents - logarithm, fraction, output.bits).clamp(output.qmin, output.qmax)
    return Staged(codes, {"exp": exponentials, "logarithm": logarithm})


def _power_by_table(exponents: Tensor, fraction: int, point: int) -> Tensor:
    """Return 2**(exponent / 2**fraction) in units of 2**-point; 0 if it is too small for 31 bits."""
    # the fraction's upper 8 bits are the index
    entry = powers()[(exponents & ((1 << fraction) - 1)) >> (fraction - 8)] << 15
    # entries have 30 places after the shift; the whole part of the exponent shifts them
    places = 30 - point - (exponents >> fraction)
    return (entry >> places.clamp(0, 62)).where(places >= 0, 0)


def _power(exponents: Tensor) -> Tensor:
    """Return 2**exponent as an integer, 0 for exponents below 0."""
    return (1 << exponents.clamp(0, 62)).where(exponents >= 0, 0)


def _logarithm(total: Tensor, point: int, fraction: int) -> Tensor:
    """Return log2(total / 2**point) in units of 2**-fraction: truncated, or with 1/2 added above sqrt(2)."""
    whole = torch.floor(torch.log2(total.double())).long()
    # in [1, 2) with 30 places
    mantissa = total << (30 - whole)
    half = (mantissa > ROOT_HALF).long() if fraction else torch.zeros_like(total)
    return half + ((whole - point) << fraction)
