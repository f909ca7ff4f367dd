"""LiteRT's three softmax kernels: fixed point of gemmlowp, float32, and 16 bits with tables.

Verified on LiteRT 2.3 with 1.7 million codes of 8 bits and 380,000 of 16.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from quantizer.core.errors import GraphError
from quantizer.numerics.overflow import as_x86
from quantizer.numerics.parameters import default_parameters
from quantizer.numerics.qparams import Parameters, Rescale, Staged, Table
from quantizer.numerics.ratio_to_multiplier import fixed_point
from quantizer.numerics.requantize import round_fixed_point
from quantizer.numerics.request import Request
from quantizer.platforms.litert.gemmlowp import FixedPoint, divide_by_power

WORD = FixedPoint(32)
DISTANCES = 256  # 8-bit codes: distances from the largest code are 0 to 255
SCALED_BITS, SUM_BITS = 5, 12
"""Integer bits of a scaled distance, and of a sum of exponentials."""
# of the tables of 16 bits, each with 128 places
SEGMENTS = 512
REACH = 10.0
"""Distance beyond which 16-bit exponentials equal the one at the end."""


def gemmlowp(request: Request) -> Parameters:
    """Provide the exponential of every distance from the largest code, in units of 2**-31.

    It is 0 beyond gemmlowp's radius.
    """
    parameters = default_parameters(request)
    scale = float(parameters.inputs["x"].scale)
    # PreprocessSoftmaxScaling: the distance times the scale, with five integer bits
    real = torch.tensor(min(scale * 2.0 ** (31 - SCALED_BITS), 2.0**31 - 1), dtype=torch.float64)
    mantissa, shift = fixed_point(real, clamped=False)
    # the shift to the left comes first, because the multiplier is above 1
    left = 31 - int(shift)
    # CalculateInputRadius: farther distances would leave the integer bits
    radius = math.floor(((1 << SCALED_BITS) - 1) * 2.0 ** (31 - SCALED_BITS - left))
    distance = torch.arange(DISTANCES)
    near = distance <= radius
    # distances beyond the radius would overflow; their entries are replaced below
    scaled = WORD.times(torch.where(near, -distance, 0) * (1 << left), int(mantissa))
    entries = torch.where(near, WORD.exp_of_negative(scaled, SCALED_BITS), 0)
    return _with(parameters, exp=Table(entries, first=0, step=-1, unit=2.0**-31, bits=31))


def of_gemmlowp(x: Tensor, parameters: Parameters, axis: int) -> Staged:
    """Add exponentials with 19 binary places, take the reciprocal by Newton, multiply, round half away from zero.

    The original ends the process for a sum of 512 or more, because its shift would exceed 31 places.
    """
    output = parameters.outputs["y"]
    exponentials = _looked_up(x, parameters, axis)
    total = divide_by_power(exponentials, torch.tensor(SUM_BITS)).sum(dim=axis, keepdim=True)
    # normalise the sum to [1, 2): gemmlowp's reciprocal is that of 1 + a, a in [0, 1]
    # bits of the sum; float64 has the logarithm exactly enough, because sums are far below 2**48
    whole = torch.floor(torch.log2(total.double())).long() + 1
    reciprocal = WORD.reciprocal_of_one_plus((total << (32 - whole)) - (1 << 31))
    # from 31 places to codes, and the powers of two that normalising took out of the sum
    places = 31 - output.dtype.bits + whole - (32 - SUM_BITS)
    codes = divide_by_power(WORD.times(exponentials, reciprocal), places.expand(x.shape)) + output.qmin
    codes = torch.where(
        exponentials == 0, output.qmin, codes
    )  # beyond gemmlowp's radius the result is the smallest code, without a product
    return Staged(codes.clamp(output.qmin, output.qmax), {"exp": exponentials})


def float32(request: Request) -> Parameters:
    """Provide the float32 exponential of every distance from the largest code."""
    parameters = default_parameters(request)
    scale = parameters.inputs["x"].scale.float()
    entries = torch.exp((-scale * torch.arange(DISTANCES)).double()).float().double()
    return _with(parameters, exp=Table(entries, first=0, step=-1, unit=1.0, bits=24))


def of_float32(x: Tensor, parameters: Parameters, axis: int) -> Staged:
    """Add one after the other in float32, multiply by 1 / (sum * scale), round half up."""
    output = parameters.outputs["y"]
    exponentials = _looked_up(x, parameters, axis).float()
    # in the kernel's order: float32 sums in another order give other numbers
    total = torch.zeros_like(exponentials.select(axis, 0))
    for part in exponentials.unbind(axis):
        total = total + part
    # one reciprocal for a row, as in the kernel: a quotient for each element would round otherwise
    share = exponentials * (1.0 / (total * output.scale.float())).unsqueeze(axis)
    codes = (share + 0.5).floor().long() + output.zero_point
    return Staged(codes.clamp(output.qmin, output.qmax), {})


def wide(request: Request) -> Parameters:
    """Provide tables of 513 entries: `exp` on [-10, 0], `reciprocal` 1 / (1 + x) on [0, 1]; 2**15 is 1.

    `input_multiplier` and `input_shift` scale a distance so that 10 becomes 2**16 - 1 steps.
    """
    parameters = default_parameters(request)
    mantissa, shift = fixed_point(parameters.inputs["x"].scale / (REACH / 65535.0))
    tables = {
        "exp": Table(entries_between(torch.exp, -REACH, 0.0), first=0, step=1, unit=2.0**-15, bits=16),
        "reciprocal": Table(entries_between(lambda v: 1 / (1 + v), 0.0, 1.0), first=0, step=1, unit=2.0**-15, bits=16),
    }
    return replace(_with(parameters, **tables), numbers={"input_multiplier": int(mantissa), "input_shift": int(shift)})


def of_wide(x: Tensor, parameters: Parameters, axis: int) -> Staged:
    """Interpolate exponentials, add, interpolate the reciprocal of the sum, multiply, round half up."""
    output, tables, numbers = parameters.outputs["y"], parameters.tables, parameters.numbers
    distance = x - x.amax(dim=axis, keepdim=True)
    multiplier = torch.tensor(numbers["input_multiplier"])
    ratio = Rescale("q31_double", multiplier.double(), torch.tensor(numbers["input_shift"]))
    distance, ratio = as_x86(distance, ratio, None)
    scaled = round_fixed_point(distance, multiplier, ratio.shift, "q31_double")
    # a distance of 0 reads the last place, 32767
    exponentials = between(scaled + 32767, tables["exp"])
    total = exponentials.sum(dim=axis, keepdim=True)
    whole = torch.floor(torch.log2(total.clamp(min=1).double())).long() + 1
    # the sum with 17 bits, in [2**16, 2**17): 1 + v in units of 2**-16, rounded half up
    place = ((total << (31 - whole)) + (1 << 13)) >> 14
    # v = place - 2**16, as a signed 16-bit place: less 2**15
    reciprocal = between(place - (1 << 15) - (1 << 16), tables["reciprocal"])
    # the sum was divided by this power of two
    places = whole - 1
    codes = (exponentials * reciprocal + ((torch.ones_like(places) << places) >> 1)) >> places
    return Staged(codes.clamp(0, output.qmax), {"exp": exponentials})


def entries_between(f: Callable[[Tensor], Tensor], low: float, high: float) -> Tensor:
    """Return 513 entries of f in units of 2**-15.

    Each but the last is lowered by half the error of its chord, the line to the next entry, at the chord's middle: the
    largest error of the interpolation is then about half as large.
    """
    step = (high - low) / SEGMENTS
    ends = low + step * torch.arange(SEGMENTS, dtype=torch.float64)
    here, middle, following = (
        f(v) * 32768.0 for v in (ends, ends + step / 2, low + step * torch.arange(1, SEGMENTS + 1).double())
    )
    chord = _half_up((following + _half_up(here)) / 2)
    entries = _half_up(here) - _half_up((chord - _half_up(middle)) / 2)
    last = _half_up(f(torch.tensor([high], dtype=torch.float64)) * 32768.0)
    return torch.cat([entries, last]).clamp(-32768, 32767).long()


def between(place: Tensor, table: Table) -> Tensor:
    """Return the table's value at a 16-bit *place*: 128 to a segment, the chord rounded half up."""
    held = place.clamp(-32768, 32767) + 32768
    # 512 segments of 128 places are 16 bits
    index, rest = held >> 7, held & 127
    base = table.entries[index]
    return base + (((table.entries[index + 1] - base) * rest + 64) >> 7)


def _looked_up(x: Tensor, parameters: Parameters, axis: int) -> Tensor:
    return parameters.tables["exp"].entries[x.amax(dim=axis, keepdim=True) - x]


def _half_up(values: Tensor) -> Tensor:
    """Round half away from zero."""
    return values.sign() * (values.abs() + 0.5).floor()


def _with(parameters: Parameters, **tables: Table) -> Parameters:
    if parameters.outputs["y"].zero_point != parameters.outputs["y"].qmin and "reciprocal" not in tables:
        raise GraphError("softmax of 8 bits gives codes above the smallest one: fix its output's zero point at min.")
    return replace(parameters, tables=tables)
