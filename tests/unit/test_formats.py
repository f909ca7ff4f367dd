"""Formats against ml_dtypes and torch, value by value; nearest codes at ties, beside them, at the ends, for specials."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
import torch

from quantizer.core.dtypes import DTYPES, dtype
from quantizer.core.errors import GraphError
from quantizer.core.formats import LISTED, Format, format_of
from quantizer.core.scaling import Blocks
from quantizer.numerics.float_codes import exact_nearest, in_units, nearest

ml_dtypes = pytest.importorskip("ml_dtypes")
NARROW = [name for name in LISTED if DTYPES[name].bits <= 8]
SIGNED = [name for name in NARROW if name != "float8_e8m0fnu"]
MODES = ("half_even", "half_up", "half_down", "half_away", "half_toward_zero", "up", "down", "toward_zero")


def theirs(name):
    return np.dtype(np.float16) if name == "float16" else np.dtype(getattr(ml_dtypes, name))


def cast(values, name):
    """Return float32 *values* as ml_dtypes rounds them, float64."""
    with np.errstate(all="ignore"):
        return values.astype(np.float32).astype(theirs(name)).astype(np.float64)


def to_bits(form: Format, code: int) -> int:
    """Return the stored bits of *code*: sign and magnitude for floats, two's complement for integers."""
    if form.name.startswith("int"):
        return code & ((1 << form.storage_bits) - 1)
    return abs(code) | (1 << (form.storage_bits - 1) if code < 0 else 0)


def probes(name):
    """Return every value, every tie, and their float32 neighbours."""
    form = format_of(name)
    exact = np.array([*form.values, *form.ties], np.float32)
    return np.unique(
        np.concatenate([exact, np.nextafter(exact, np.float32(np.inf)), np.nextafter(exact, np.float32(-np.inf))])
    )


@pytest.mark.parametrize("name", LISTED)
def test_every_code_stands_for_the_value_of_its_bits(name):
    form = format_of(name)
    stored = np.array([to_bits(form, code) for code in range(form.first, form.last + 1)])
    values = stored.astype(np.uint16 if form.storage_bits == 16 else np.uint8).view(theirs(name)).astype(np.float64)
    assert values.tolist() == list(form.values)
    assert sorted(form.values) == list(form.values)
    assert (dtype(name).min, dtype(name).max) == (form.first, form.last)


@pytest.mark.parametrize("name", LISTED)
def test_all_other_bits_are_negative_zero_infinity_or_nan(name):
    form = format_of(name)
    used = {to_bits(form, code) for code in range(form.first, form.last + 1)}
    kind = np.uint16 if form.storage_bits == 16 else np.uint8
    left = np.array(sorted(set(range(1 << form.storage_bits)) - used), dtype=kind).view(theirs(name))
    with np.errstate(all="ignore"):
        left = left.astype(np.float64)
    assert np.all((left == 0) | ~np.isfinite(left))
    assert np.isnan(left).any() == (form.nan is not None)
    assert np.isinf(left).any() == (form.infinity is not None)


@pytest.mark.parametrize("name", SIGNED)
def test_values_are_rounded_as_in_ml_dtypes(name):
    form, numbers = format_of(name), probes(name)
    inside = numbers[(numbers >= form.values[0]) & (numbers <= form.values[-1])]
    wanted = cast(inside, name)
    assert [form.decode(form.encode(float(number))) for number in inside] == wanted.tolist()
    assert in_units(nearest(torch.from_numpy(inside), name), name).double().mul(form.unit).tolist() == wanted.tolist()


def test_powers_of_two_equal_ml_dtypes_with_ties_up():
    form, numbers = (
        format_of("float8_e8m0fnu"),
        np.unique(np.float32([1.25, 1.5, 1.75, 3.0, 0.1, 7e30, *format_of("float8_e8m0fnu").values[1:250:7]])),
    )
    wanted = cast(numbers, "float8_e8m0fnu")
    assert [form.decode(form.encode(float(number), "half_up")) for number in numbers] == wanted.tolist()


@pytest.mark.parametrize("name", SIGNED)
def test_values_beyond_the_last_overflow_or_saturate(name):
    form = format_of(name)
    gap = form.values[-1] - form.values[-2]
    for number in (
        form.values[-1] + gap / 2,
        np.nextafter(np.float32(form.values[-1] + gap / 2), np.float32(np.inf)),
        form.values[-1] * 4,
    ):
        assert form.encode(float(number)) == form.last
        assert form.encode(-float(number)) == form.first
        special = form.decode(form.encode(float(number), overflow="special"))
        wanted = float(cast(np.float32([number]), name)[0])
        assert special == wanted or (math.isnan(special) and math.isnan(wanted))


def test_special_values_have_their_own_codes():
    e4m3, e5m2, fp4 = map(format_of, ("float8_e4m3fn", "float8_e5m2", "float4_e2m1fn"))
    assert e4m3.encode(math.nan) == e4m3.nan == e4m3.last + 1
    assert e4m3.encode(math.inf) == e4m3.last
    assert e4m3.encode(math.inf, overflow="special") == e4m3.nan
    assert math.isnan(e4m3.decode(127))
    assert e5m2.encode(-math.inf, overflow="special") == -e5m2.infinity
    assert e5m2.decode(-124) == -math.inf
    with pytest.raises(GraphError, match="NaN: float4_e2m1fn has none"):
        fp4.encode(math.nan)
    with pytest.raises(GraphError, match="code 130: float8_e4m3fn has codes from -126 to 126"):
        e4m3.decode(130)
    with pytest.raises(GraphError, match="float8_e4m3fnuz: its values have no codes here"):
        _ = dtype("float8_e4m3fnuz").max


def test_torch_has_the_same_e4m3():
    numbers = torch.from_numpy(probes("float8_e4m3fn"))
    wanted = numbers.to(torch.float8_e4m3fn).double()
    assert torch.equal(in_units(nearest(numbers, "float8_e4m3fn"), "float8_e4m3fn").double() * 2.0**-9, wanted)


def test_integer_formats_have_equal_codes_and_values():
    form = format_of("int4")
    assert (form.first, form.last, form.decode(-8), form.unit) == (-8, 7, -8.0, 1.0)
    assert [form.encode(number) for number in (2.5, 3.5, -2.5, 99.0)] == [2, 4, -2, 7]
    assert to_bits(form, -1) == 15


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ["float8_e4m3fn", "float6_e3m2fn"])
def test_tensors_are_rounded_as_single_numbers_are(name, mode):
    form, numbers = format_of(name), probes(name)
    assert nearest(torch.from_numpy(numbers), name, mode).tolist() == [form.encode(float(n), mode) for n in numbers]


def test_positions_between_codes_are_interpolated_linearly():
    form = format_of("float8_e4m3fn")
    assert form.position(Fraction(17)) == form.encode(16.0) + Fraction(1, 2)
    assert form.neighbours(17.0) == (form.encode(16.0), form.encode(18.0))
    assert form.neighbours(16.0) == (form.encode(16.0),) * 2
    assert form.neighbours(1e9) == (form.last, form.last)


@pytest.mark.parametrize("mode", MODES)
def test_a_sum_next_to_a_tie_is_decided_without_error(mode):
    form, big = format_of("float8_e4m3fn"), 1 << 52
    tie = form.ties[form.encode(16.0) - form.first]
    for beside in (-1, 0, 1):  # 17 * 2**52 + beside, which float64 does not hold
        acc = torch.tensor([17 * big + beside])
        got = exact_nearest([(acc, torch.tensor(1.0, dtype=torch.float64))], float(big), acc.shape, form.name, mode)
        assert int(got[0]) == form.encode(Fraction(17 * big + beside, big), mode), (tie, beside)


def test_blocks_list_their_elements():
    blocks = Blocks(axis=1, size=4)
    assert blocks.count(9) == 3
    assert blocks.places(9) == [0] * 4 + [1] * 4 + [2]
    assert blocks.spans(9) == [(0, 0, 4), (1, 4, 8), (2, 8, 9)]
    assert blocks.cut(3).spans(3) == [(0, 0, 1), (1, 1, 3)]
    assert blocks.cut(3).cut(2).places(2) == [1, 1]
