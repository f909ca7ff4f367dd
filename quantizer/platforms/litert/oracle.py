"""A second implementation of some LiteRT kernels in numpy, checked against LiteRT 2.3.

It covers softmax, 16-bit sigmoid and tanh, and the leaky rectifier. All other operators use the generic arithmetic.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np

from quantizer.conformance.oracle import Array, Asked, fixed, high_multiplied
from quantizer.platforms.litert.restated_gemmlowp import Numbers, away, exponentials_of

F32 = np.float32
Expected = Mapping[tuple[str, ...], tuple[int, ...]]
FIXED_POINT = "fixed_point"


def softmax(asked: Asked) -> Array | None:
    """Return the codes of a softmax from the provided tables; None without tables of exponentials."""
    if "reciprocal" in asked.tables:
        return _wide_softmax(asked)
    if (table := asked.tables.get("exp")) is None:
        return None
    codes = asked.codes["x"]
    # the table is read by the distance from the largest code of the axis
    exponentials = table.entries[codes.max(axis=asked.axis, keepdims=True) - codes]
    fixed_point = asked.platform.tables.exponential == FIXED_POINT
    return (_fixed_point_softmax if fixed_point else _float32_softmax)(asked, exponentials)


def softmax_entries(asked: Asked, name: str) -> Array | None:
    """Return the entries of a table of exponentials or reciprocals.

    None for float32 exponentials, which are judged by their distance from the exact value.
    """
    count = asked.tables[name].entries.size
    if name == "reciprocal":
        return chord_entries(lambda v: 1 / (1 + v), 0.0, 1.0, count - 1)
    if "reciprocal" in asked.tables:
        return chord_entries(np.exp, -10.0, 0.0, count - 1)
    if asked.platform.tables.exponential == FIXED_POINT:
        return exponentials_of(float(asked.grids["x"].scale), count)
    return None


def softmax_numbers(asked: Asked) -> Expected:
    """Return multiplier and shift from a 16-bit distance to an index of the table."""
    # 65535 places cover a distance of 10
    return {("input_multiplier", "input_shift"): fixed(float(asked.grids["x"].scale) / (10.0 / 65535.0))}


def logistic(asked: Asked) -> Array | None:
    """Return 16-bit codes of sigmoid or tanh from the provided table, or in fixed point; None for 8 bits."""
    if "input_multiplier" not in asked.numbers:
        return None
    return _fixed_point_logistic(asked) if asked.numbers["input_multiplier"] == 0 else _from_grid(asked)


def logistic_table(asked: Asked, name: str) -> Array | None:
    """Return the entries of the 16-bit logistic table; None for a table of codes."""
    return logistic_entries(asked.tables[name].entries.size) if name == "logistic" else None


def logistic_numbers(asked: Asked) -> Expected:
    """Return multiplier and shift from a 16-bit code to the grid of the table."""
    ((_, grid),) = asked.grids.items()
    # the reference kernel has no fixed-point function: powers of two get a multiplier on the grid
    shortcut = asked.platform.tables.exponential != FIXED_POINT
    found = to_grid(float(grid.scale), tanh=_is_tanh(asked), shortcut=shortcut)
    return {("input_multiplier", "input_shift"): found}


def leaky(asked: Asked) -> Array | None:
    """Return the codes of a leaky rectifier: its positive and its negative side have a multiplier each."""
    numbers, half_up = asked.numbers, asked.variant == "q8_half_up"
    if "positive" not in numbers:
        return None
    # a leaky rectifier has one operand
    ((name, _),) = asked.codes.items()
    c = asked.centred(name)

    def side(of: str) -> Array:
        multiplier, shift = numbers[of], numbers[f"{of}_shift"]
        if half_up:
            return np.asarray((c * multiplier + (1 << (shift - 1))) >> shift)
        return high_multiplied(c, multiplier, shift).astype(np.int64)

    return np.where(c >= 0, side("positive"), side("negative")) + int(asked.output.zero_point)


def leaky_numbers(asked: Asked) -> Expected:
    """Return the multiplier and the shift of each side."""
    ((_, grid),) = asked.grids.items()
    found: dict[tuple[str, ...], tuple[int, ...]] = {}
    for side, factor in (("positive", F32(1.0)), ("negative", F32(float(asked.bound["slope"])))):
        # in float32 each step is rounded: the product with the slope, then the quotient
        if asked.platform.multiplier.ratio.get(asked.family, "float32") == "float64":
            ratio = float(grid.scale) * float(factor) / float(asked.output.scale)
        else:
            ratio = float(F32(float(grid.scale)) * factor / F32(float(asked.output.scale)))
        whole = (int(np.rint(ratio * 256)), 8) if asked.variant == "q8_half_up" else None
        # gemmlowp's numbers; a ratio of 0 has the multiplier 0
        found[side, f"{side}_shift"] = whole or (fixed(ratio) if ratio > 0 else (0, 31))
    return found


def _is_tanh(asked: Asked) -> bool:
    return asked.family == "hyperbolic_tangent"


def _float32_softmax(asked: Asked, exponentials: Array) -> Array:
    """Return 8-bit codes of a softmax that adds in float32 one by one and multiplies by 1 / (sum * scale)."""
    parts = np.moveaxis(exponentials.astype(F32), asked.axis, 0)
    total = np.zeros(parts.shape[1:], F32)
    for part in parts:
        total = total + part
    # one float32 reciprocal for a row
    share = parts * (F32(1.0) / (total * F32(float(asked.output.scale))))
    return np.moveaxis(np.floor(share + F32(0.5)), 0, asked.axis) + int(asked.output.zero_point)


def _fixed_point_softmax(asked: Asked, exponentials: Array) -> Array:
    """Return 8-bit codes of shares of *exponentials* in units of 2**-31, whose sum has 19 places."""
    numbers, output = Numbers(32), asked.output
    exponentials = exponentials.astype(np.int64)
    total = away(exponentials, np.asarray(12)).sum(axis=asked.axis, keepdims=True)
    # exact, where a logarithm would need an argument
    bits = np.asarray(np.frompyfunc(lambda v: int(v).bit_length(), 1, 1)(total), np.int64)
    # the sum normalised to [1, 2), less 1
    inverse = numbers.reciprocal((total << (32 - bits)) - 2**31)
    # 31 - 8 + bits - (32 - 12): from 31 places to 8-bit codes, and by the power of two that normalising took out
    shares = away(numbers.times(exponentials, inverse), np.broadcast_to(bits + 3, exponentials.shape))
    return np.where(exponentials == 0, output.qmin, shares + output.qmin)


def _wide_softmax(asked: Asked) -> Array:
    """Return 16-bit codes of a softmax from the provided tables of exponentials and of reciprocals."""
    numbers, tables = asked.numbers, asked.tables
    codes = asked.codes["x"].astype(np.int64)
    distance = codes - codes.max(axis=asked.axis, keepdims=True)
    place = high_multiplied(distance, numbers["input_multiplier"], numbers["input_shift"]).astype(np.int64) + 32767
    exponentials = _between(tables["exp"].entries, place)
    total = exponentials.sum(axis=asked.axis, keepdims=True)
    bits = np.asarray(np.frompyfunc(lambda v: max(1, int(v).bit_length()), 1, 1)(total), np.int64)
    # 2**16 for the 1 of 1 + v, 2**15 for the signed place
    place = (((total << (31 - bits)) + 2**13) >> 14) - 3 * 2**15
    product = exponentials * _between(tables["reciprocal"].entries, place)
    return np.asarray(np.maximum((product + ((np.int64(1) << (bits - 1)) >> 1)) >> (bits - 1), 0))


def _between(entries: Array, place: Array) -> Array:
    index, rest = np.divmod(np.clip(place, -32768, 32767) + 32768, 128)
    return np.asarray(entries[index] + ((entries[index + 1] - entries[index]) * rest + 64) // 128)


def _from_grid(asked: Asked) -> Array:
    numbers, tanh = asked.numbers, _is_tanh(asked)
    multiplier, shift = numbers["input_multiplier"], numbers["input_shift"]
    x = next(iter(asked.codes.values()))
    # 32 bits that wrap, as in the kernel
    product = (x * multiplier + ((1 << shift) >> 1) + 2**31) % 2**32 - 2**31
    place = product >> shift
    segment = 256 if tanh else 512
    entries = asked.tables["logistic"].entries
    index, rest = np.divmod(np.abs(place), segment)
    held = np.minimum(index, len(entries) - 2)
    value = (entries[held] * (segment - rest) + entries[held + 1] * rest) * (512 // segment)
    # beyond the table: 0x7FFF << 10 for the logistic function, 0xFFFF << 8 for tanh, whose value is halved below
    value = np.where(index >= len(entries) - 1, (65535 if tanh else 65534) * 512, value)
    if tanh:
        # tanh has one place less
        value = value // 2
        return np.where(place >= 0, value - 2**23 + 128, 2**23 - value + 127) >> 8
    return np.where(place >= 0, value + 512, 2**25 - value + 511) >> 10


def _fixed_point_logistic(asked: Asked) -> Array:
    """Return 16-bit codes of sigmoid or tanh of inputs in units of 2**-12, or of 2**-11 doubled."""
    numbers = Numbers(16)
    x = numbers.cut(next(iter(asked.codes.values())) << asked.numbers["input_shift"])
    if _is_tanh(asked):
        # 2 / (1 + exp(-2x)) - 1; a fourth integer bit doubles x
        size = numbers.cut((numbers.newton(numbers.exp(-np.abs(x), 4)) - numbers.one(2)) << 2)
        return np.where(x == 0, 0, np.sign(x) * size)
    above = numbers.reciprocal(numbers.exp(-np.abs(x), 3))
    return np.where(x == 0, numbers.top // 2, np.where(x > 0, above, numbers.one(0) - above))


def to_grid(scale: float, *, tanh: bool, shortcut: bool) -> tuple[int, int]:
    """Return multiplier and shift from a 16-bit code to the table's grid; (0, shift) for the fixed-point function.

    *shortcut*: a scale within a thousandth (of log2) of 2**-12, for tanh of 2**-11 too, is treated as that power.
    """
    # TensorFlow Lite's CheckedLog2
    logarithm = F32(math.log(scale)) * (F32(1.0) / F32(math.log(2.0)))
    places = int(np.rint(logarithm)) + 12
    if abs(logarithm - np.rint(logarithm)) < 1e-3 and 0 <= places <= int(tanh):
        return (0, places) if shortcut else (3 * 2**places, 0)
    number, shift = scale * 12288.0, 0
    while number <= 16383.5 and shift < 31:
        number, shift = 2 * number, shift + 1
    return int(number), shift


def logistic_entries(count: int) -> Array:
    """Return the entries of the 16-bit logistic table, 24 to a unit."""
    place = np.arange(count) / 24.0
    curve, middle, following = (65536 / (1 + np.exp(-(place + step))) for step in (0.0, 1 / 48, 1 / 24))
    entries = _away(curve + (middle - (curve + following) / 2) / 2).astype(np.int64)
    entries[-1] = 65535
    return entries


def chord_entries(f: Callable[[Array], Array], low: float, high: float, count: int) -> Array:
    """Return count + 1 entries of f in units of 2**-15, all but the last lowered by half the error of their chord."""
    width = (high - low) / count
    place = low + width * np.arange(count)
    curve, middle, following = (32768 * f(place + step) for step in (0.0, width / 2, width))
    # the error of the chord at its middle
    above = _away((following + _away(curve)) / 2) - _away(middle)
    entries = np.append(_away(curve) - _away(above / 2), _away(32768 * f(np.array([high]))))
    return np.asarray(np.clip(entries, -32768, 32767), dtype=np.int64)


def _away(values: Array) -> Array:
    return np.asarray(np.trunc(values + np.copysign(0.5, values)))
