"""Compass's Div against a numpy model of its rule, and the exact quotient against rationals."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
import torch

from quantizer.core.case import Range
from quantizer.core.library import load_library
from quantizer.numerics.qparams import Parameters
from quantizer.numerics.request import Request
from quantizer.ops import load_built_ins
from quantizer.runtime.engines.builtin import BuiltinEngine
from quantizer.runtime.engines.protocol import Call

LIBRARY = load_library()
SPEC = LIBRARY.spec("div")
load_built_ins()
RANGES: tuple[dict[str, Range], ...] = (
    {"a": (-1.0, 3.0), "b": (-2.0, 1.0), "y": (-4.0, 2.0)},
    {"a": (0.0, 3.0), "b": (0.0, 1.0), "y": (0.0, 9.0)},
    {"a": (-0.01, 3.0), "b": (0.0, 100.0), "y": (-0.25, 0.25)},
)


def made(platform: str, scheme: str, ranges: dict[str, Range], *, positive: bool = False) -> Parameters:
    chosen = LIBRARY.platform(platform)
    if positive:
        chosen = chosen.model_copy(
            update={"multiplier": chosen.multiplier.model_copy(update={"positive_shifts": True})}
        )
    return BuiltinEngine().quantize(
        Request(SPEC, LIBRARY.scheme(scheme), chosen, {"a": (1, 1), "b": (1, 1)}, {}, ranges, {})
    )


def codes(parameters: Parameters) -> dict[str, torch.Tensor]:
    """Every divisor under some dividends, among them the code of zero."""
    a, b = parameters.inputs["a"], parameters.inputs["b"]
    stride = max(1, (b.qmax - b.qmin) // 512)
    few = sorted({a.qmin, a.qmax, int(a.zero_point), (a.qmin + a.qmax) // 3})
    return {"a": torch.tensor(few).reshape(-1, 1), "b": torch.arange(b.qmin, b.qmax + 1, stride)}


@pytest.mark.parametrize("scheme", ["a8", "a8s", "a16"])
@pytest.mark.parametrize("ranges", RANGES, ids=str)
def test_compass_divides_by_a_table_of_reciprocals(scheme: str, ranges: dict[str, Range]) -> None:
    """T = round(65535 / linspace(0, 2**bits - 1)), T[0] = 0; y = sign(b) * a * T(|b|) * m * 2**-n, rounded half to even.

    Ties of wide tables are decided by the last bit of linspace.
    """
    parameters = made("compass", scheme, ranges)
    given, out = codes(parameters), parameters.outputs["y"]
    bits = 16 if scheme == "a16" else 8
    signed = any(parameters.inputs[name].dtype.kind == "int" for name in "ab")
    assert (out.dtype.kind, signed) == ("int" if signed else "uint", ranges["a"][0] < 0 or ranges["b"][0] < 0)
    points = np.linspace(0, 2**bits - 1, 2 ** min(bits, 10)).astype(np.float32)
    with np.errstate(divide="ignore"):
        table = np.clip(np.rint(np.float32(65535) / points), 0, 65535).astype(np.int64)
    table[0] = 0
    provided = parameters.tables["inverse"].entries.numpy()
    tie = np.abs(65535.0 / points.clip(min=0.5) % 1.0 - 0.5) < 1e-4
    assert np.array_equal(provided[~tie], table[~tie])
    assert np.abs(provided - table).max() <= 1
    table = provided
    steps = {name: np.float32(p.steps) for name, p in (*parameters.inputs.items(), ("y", out))}
    ratio = steps["y"] * steps["b"] / (steps["a"] * np.float32(65535))
    width = min(bits, 15)
    shift = min(31, int(np.floor(np.log2(np.float32(2**width - 1) / ratio))))
    mantissa = int(np.floor(ratio * np.float32(2.0**shift) + np.float32(0.5)))
    assert (int(parameters.rescale.mantissa), int(parameters.rescale.shift)) == (mantissa, shift)
    a, b = ((given[name] - parameters.inputs[name].zero_point).numpy() for name in "ab")
    entries, rest = np.append(table, table[-1]), bits - min(bits, 10)
    index, between = np.abs(b) >> rest, np.abs(b) & (1 << rest) - 1
    inverse = entries[index] + ((entries[index + 1] - entries[index]) * between >> rest)
    product = np.where(b < 0, -1, 1) * a * inverse
    wanted = np.clip(np.rint(product * mantissa * 2.0**-shift) + int(out.zero_point), out.qmin, out.qmax)
    got = BuiltinEngine().run(Call(SPEC, {}, "channels_first", "none"), given, parameters).codes
    assert np.array_equal(got.numpy(), wanted)
    assert (got[:, b == 0] == out.zero_point).all()


@pytest.mark.parametrize("ranges", RANGES, ids=str)
def test_exact_division_rounds_the_rational_once(ranges: dict[str, Range]) -> None:
    """One rounding of the rational; a / 0 saturates, 0 / 0 is code 0."""
    parameters = made("ideal", "a8", ranges)
    given, out = codes(parameters), parameters.outputs["y"]
    got = BuiltinEngine().run(Call(SPEC, {}, "channels_first", "none"), given, parameters).codes
    scales = [Fraction(float(p.scale)) for p in (*parameters.inputs.values(), out)]
    for i, top in enumerate((given["a"][:, 0] - parameters.inputs["a"].zero_point).tolist()):
        for j, bottom in enumerate((given["b"] - parameters.inputs["b"].zero_point).tolist()):
            if bottom == 0:
                wanted = {1: out.qmax, 0: max(0, out.qmin), -1: out.qmin}[(top > 0) - (top < 0)]
            else:
                code = round(top * scales[0] / (bottom * scales[1] * scales[2])) + int(out.zero_point)
                wanted = min(max(code, out.qmin), out.qmax)
            assert int(got[i, j]) == wanted


def test_far_quotients_saturate() -> None:
    parameters = made("ideal", "a8", RANGES[0])
    tiny = replace(parameters.outputs["y"], scale=torch.tensor(1e-35, dtype=torch.float64))
    parameters = replace(parameters, outputs={"y": tiny})
    a, b = parameters.inputs["a"].zero_point, parameters.inputs["b"].zero_point
    given = {"a": torch.stack([a + 1, a - 1, a]).reshape(3, 1), "b": torch.stack([b + 1])}
    got = BuiltinEngine().run(Call(SPEC, {}, "channels_first", "none"), given, parameters).codes
    assert got.flatten().tolist() == [tiny.qmax, tiny.qmin, int(tiny.zero_point)]


def test_a_negative_shift_is_replaced_by_0() -> None:
    ranges: dict[str, Range] = {"a": (-1e6, 1e6), "b": (-1e-4, 1e-4), "y": (-1.0, 1.0)}
    free, forced = (made("compass", "a8", ranges, positive=positive) for positive in (False, True))
    assert int(free.rescale.shift) < 0
    assert (int(forced.rescale.mantissa), int(forced.rescale.shift)) == (255, 0)
