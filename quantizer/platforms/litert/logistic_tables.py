"""LiteRT's tables of sigmoid and tanh: of 8 bits from float32 values, of 16 bits a logistic function on a grid.

Verified on LiteRT 2.3 with 5 million codes of 8 bits, and all codes of 16 bits under 200 scales.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from quantizer.core.platform_settings import NARROW_BITS
from quantizer.core.rounding_modes import RoundingMode
from quantizer.numerics.kernels import limit
from quantizer.numerics.parameters import default_parameters
from quantizer.numerics.qparams import Parameters, QParams, Table
from quantizer.numerics.request import Request
from quantizer.numerics.tables import full_table, lookup
from quantizer.platforms.litert.gemmlowp import FixedPoint

Function = Callable[[Tensor], Tensor]
ENTRIES, PER_UNIT = 256, 24
"""The number of entries in the table, and the number per unit of the input."""
# 12288 = 512 * 24
GRID = 4096 * 3
"""Steps of the grid per unit of the input: 512 between two entries for sigmoid, 256 for tanh."""
# the kernel keeps it in 16 bits, and doubles as long as twice the number fits
LARGEST_MULTIPLIER = 32767.0
NEAR_POWER = 1e-3
"""LiteRT treats a scale as a power of two if its log2 is this close to an integer."""
INTEGER_BITS = 3
"""Integer bits of the fixed-point inputs of gemmlowp's functions: 16-bit codes are in units of 2**-12."""


def tabulated_float32(request: Request, f: Function, rounding: RoundingMode) -> Parameters:
    """Return the default parameters with a full table `lut` of *f* (float32 in), each entry rounded by *rounding*."""
    parameters = default_parameters(request)
    (x,), (y,) = parameters.inputs.values(), parameters.outputs.values()
    return replace(parameters, tables={"lut": full_table(f, x, y, rounding, float32=True)})


def logistic_entries() -> Tensor:
    """Return 2**16 / (1 + exp(-i / 24)), raised by half the distance to the chord to the next entry.

    The last is the largest.
    """
    # twice as many points as entries: ends and middles of segments
    f = 65536.0 / (1.0 + torch.exp(-torch.arange(2 * ENTRIES + 1, dtype=torch.float64) / (2 * PER_UNIT)))
    ends, middles = f[0::2], f[1::2]
    # the logistic function is concave above 0, so that every chord lies below it
    raised = ends[:-1] + (middles - (ends[:-1] + ends[1:]) / 2) / 2
    entries = (raised + 0.5).floor().long()
    # the table is uint16; its last entry stands for everything beyond
    entries[-1] = 65535
    return entries


def on_a_grid(request: Request, *, tanh: bool) -> Parameters:
    """Return the default parameters with the table `logistic`, and with multiplier and shift from a code to its grid.

    The numbers are `input_multiplier` and `input_shift`.

    A multiplier of 0 means gemmlowp's function, which the optimized kernels use for powers of two: input code times
    2**`shift` in units of 2**-12.
    """
    parameters = default_parameters(request)
    (x,) = parameters.inputs.values()
    table = Table(logistic_entries(), first=0, step=1, unit=2.0**-16, bits=16)
    power = power_of_two(x)
    # 2**-12 is the unit of inputs with three integer bits
    places = None if power is None else power + 15 - INTEGER_BITS
    numbers: dict[str, int]
    # tanh may shift once, because its argument is doubled
    if places is not None and places in ((0, 1) if tanh else (0,)):
        reference = request.platform.tables.exponential == "fixed_point"
        numbers = (
            {"input_multiplier": 3 << places, "input_shift": 0}
            if reference
            else {"input_multiplier": 0, "input_shift": places}
        )
    else:
        numbers = _multiplier(float(x.scale))
    return replace(parameters, tables={"logistic": table}, numbers=numbers)


def power_of_two(x: QParams) -> int | None:
    """Return the exponent of a scale that LiteRT, in its float32 arithmetic, treats as a power of two."""
    # CheckedLog2 of TensorFlow Lite: log(x) * (1 / log(2)), each in float32
    logarithm = torch.tensor(math.log(float(x.scale)), dtype=torch.float32) * (
        1.0 / torch.tensor(math.log(2.0), dtype=torch.float32)
    )
    whole = logarithm.round()
    return int(whole) if abs(float(logarithm - whole)) < NEAR_POWER else None


def _multiplier(scale: float) -> dict[str, int]:
    number, shift = scale * GRID, 0
    while number <= LARGEST_MULTIPLIER / 2.0 and shift <= 30:
        number, shift = number * 2.0, shift + 1
    return {"input_multiplier": int(number), "input_shift": shift}


def read_from_grid(x: Tensor, parameters: Parameters, *, tanh: bool) -> Tensor:
    """Return 16-bit codes of the logistic function or of tanh: interpolated between entries, mirrored below 0.

    A product beyond 32 bits wraps: scales above 5 give codes of the wrong sign.
    """
    multiplier, shift = parameters.numbers["input_multiplier"], parameters.numbers["input_shift"]
    if multiplier == 0:
        fixed = FixedPoint(16)
        value = fixed.saturate(x << shift)
        return fixed.tanh(value, INTEGER_BITS) if tanh else fixed.logistic(value, INTEGER_BITS)
    half = 1 << (shift - 1) if shift else 0
    place = limit(x * multiplier + half, 32, "wrap") >> shift
    # tanh(x) = 2 * logistic(2x) - 1: the same grid has half as many places between two entries
    bits = 8 if tanh else 9
    distance = place.abs()
    index = (distance >> bits).clamp(max=ENTRIES - 2)
    entries = parameters.tables["logistic"].entries
    # linear between two entries
    value = (entries[index] << bits) + (distance & ((1 << bits) - 1)) * (entries[index + 1] - entries[index])
    beyond = (distance >> bits) >= ENTRIES - 1
    # one half of 24 bits is subtracted: logistic - 1/2 with one bit less is tanh
    if tanh:
        value = torch.where(beyond, 0xFFFF << bits, value) - (1 << 23)
        return torch.where(place >= 0, value + 128, -value + 127) >> 8
    value = torch.where(beyond, 0x7FFF << 10, value)
    # logistic(-x) = 1 - logistic(x); 1 is 2**25 here. 511 in place of 512 mirrors the rounding of ties
    return torch.where(place >= 0, value + 512, (1 << 25) - value + 511) >> 10


def read(x: Tensor, parameters: Parameters, *, tanh: bool) -> Tensor:
    """Return codes from the full table of 8 bits if the parameters have one, else from the grid of 16 bits."""
    if "lut" in parameters.tables:
        return lookup(x, parameters.tables["lut"])
    return read_from_grid(x, parameters, tanh=tanh)


def is_narrow(request: Request) -> bool:
    """Return whether codes are narrow enough for a full table."""
    return request.scheme.activation.bits <= NARROW_BITS


def float32_logistic(v: Tensor) -> Tensor:
    """Return 1 / (1 + exp(-v)) in float32, the exponential correctly rounded, as glibc's is."""
    return 1.0 / (1.0 + torch.exp(-v.double()).float())


def centred_logistic(v: Tensor) -> Tensor:
    """Return the logistic function whose value y was rounded as the float32 number 256 * y - 128, as in XNNPACK."""
    y = (1.0 / (1.0 + torch.exp(-v.double()))).float()
    return ((y * 256.0 - 128.0).double() + 128.0) / 256.0
