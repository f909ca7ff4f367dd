"""Lookup tables: correctly rounded, aligned with the code that reads them, and Compass's own."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from quantizer.core.dtypes import dtype
from quantizer.core.errors import GraphError
from quantizer.core.rounding_modes import RoundingMode
from quantizer.numerics.qparams import QParams, Table
from quantizer.numerics.rounding import round_scalar
from quantizer.numerics.tables import full_table, interpolated_table, lookup

SIGMOID = Path(__file__).parents[2] / "cases/reference/compass/act_sigmoid"


def params(name: str, scale: float, zero_point: int = 0, *, restricted: bool = False) -> QParams:
    kind = dtype(name)
    low = -kind.max if restricted else kind.min
    return QParams(kind, torch.tensor(scale, dtype=torch.float64), torch.tensor(zero_point), low, kind.max)


def from_steps(name: str, steps: float, compass_zero: int) -> QParams:
    single = torch.tensor(steps, dtype=torch.float32)
    kind = dtype(name)
    return QParams(kind, 1.0 / single.double(), torch.tensor(-compass_zero), kind.min, kind.max, steps=single)


def halve(x: Tensor) -> Tensor:
    return x / 2


@pytest.mark.parametrize("mode", ["half_even", "half_up", "half_away", "down", "toward_zero"])
def test_full_table_rounds_every_code_once(mode: RoundingMode) -> None:
    """x/2 with equal power-of-two scales: every odd code is a tie."""
    inp, out = params("int8", 0.25, 5, restricted=True), params("int8", 0.25, -3)
    table = full_table(halve, inp, out, mode)
    assert (table.first, table.step, table.unit, table.bits) == (-127, 1, 0.25, 8)
    codes = range(-127, 128)
    expected = [min(max(round_scalar(Fraction(c - 5, 2), mode) - 3, -128), 127) for c in codes]
    assert table.entries.tolist() == expected
    assert lookup(torch.tensor([codes]), table).tolist() == [expected]


def test_full_table_of_16_bits_and_no_more() -> None:
    table = full_table(torch.sigmoid, params("int16", 2.0**-12), params("uint16", 2.0**-16))
    assert table.entries.numel() == 1 << 16
    assert int(lookup(torch.tensor(0), table)) == 1 << 15
    with pytest.raises(GraphError, match="16 bits of input at most"):
        full_table(torch.sigmoid, params("int32", 1e-6), params("int16", 1e-4))


def test_poles_saturate_and_nan_is_code_zero() -> None:
    table = full_table(torch.log, params("int8", 0.1), params("int8", 0.05, 3))
    assert int(lookup(torch.tensor(0), table)) == -128
    assert int(lookup(torch.tensor(-5), table)) == 0


@pytest.mark.parametrize("restricted", [False, True])
@pytest.mark.parametrize("lut_bits", [1, 4, 8, 10])
def test_interpolation_meets_the_full_table_at_its_points(lut_bits: int, *, restricted: bool) -> None:
    inp, out = params("int12", 2.0**-8, 7, restricted=restricted), params("int16", 2.0**-15)
    table = interpolated_table(torch.tanh, inp, out, lut_bits)
    full = full_table(torch.tanh, replace(inp, qmin=-2048), out)
    assert (table.entries.numel(), table.step) == (1 << lut_bits, 1 << (12 - lut_bits))
    points = torch.arange(-2048, 2048, table.step)
    assert torch.equal(lookup(points, table), lookup(points, full))


def test_lookup_is_the_plain_interpolation() -> None:
    generator = torch.Generator().manual_seed(1)
    table = Table(torch.randint(-500, 500, (16,), generator=generator), -64, 8, 1.0, 16)
    entries = [*table.entries.tolist(), int(table.entries[-1])]
    codes = range(-64, 64)
    expected = []
    for code in codes:
        i, rest = divmod(code + 64, 8)
        expected.append(entries[i] + (entries[i + 1] - entries[i]) * rest // 8)
    assert lookup(torch.tensor(codes).reshape(2, 64), table).flatten().tolist() == expected
    assert lookup(torch.tensor([-1000, 1000]), table).tolist() == [entries[0], entries[-1]]
    with pytest.raises(GraphError, match="power of two"):
        lookup(torch.tensor([0]), replace(table, step=6))


def test_a_table_as_wide_as_the_input_is_full() -> None:
    inp, out = params("int8", 0.1), params("uint8", 1 / 255)
    for alignment in ("stride", "linspace"):
        table = interpolated_table(torch.sigmoid, inp, out, 10, alignment=alignment)
        assert table.step == 1
        assert torch.equal(table.entries, full_table(torch.sigmoid, inp, out).entries)


def test_linspace_is_misaligned_and_repeats_the_lowest_restricted_entry() -> None:
    inp, out = params("int16", 2.0**-12), params("uint16", 2.0**-16)
    aligned, compass = (interpolated_table(torch.sigmoid, inp, out, 10, alignment=a) for a in ("stride", "linspace"))
    worst = (aligned.entries - compass.entries).abs().max()
    assert 90 <= int(worst) <= 256
    restricted = params("int8", 0.1, restricted=True)
    table = interpolated_table(torch.sigmoid, restricted, out, 8, alignment="linspace")
    assert table.first == -128
    assert table.entries[0] == table.entries[1]
    assert torch.equal(table.entries[1:], full_table(torch.sigmoid, restricted, out).entries)


def test_per_channel_scales_have_no_table() -> None:
    two = QParams(dtype("int8"), torch.tensor([0.1, 0.2], dtype=torch.float64), torch.tensor([0, 0]), -128, 127, 0)
    with pytest.raises(GraphError, match="2 scales"):
        full_table(torch.sigmoid, two, params("int8", 0.1))


@pytest.mark.parametrize("config", ["default", "ext", "pc_asym", "a16"])
def test_sigmoid_of_the_real_compass(config: str) -> None:
    """The table that Compass wrote, entry by entry, and its integer outputs from its integer inputs."""
    folder = SIGMOID / config
    sections = (folder / "quant.txt").read_text().strip().split("\n\n")
    source, layer = (dict(line.split("=") for line in section.splitlines()) for section in sections[1:])
    made = [
        from_steps(s["layer_top_type"][1:-1], json.loads(s["layer_top_scale"])[0], json.loads(s["layer_top_zp"])[0])
        for s in (source, layer)
    ]
    start, size = int(layer["lut_offset"]), int(layer["lut_size"])
    stored = np.frombuffer((folder / "quant.bin").read_bytes()[start : start + size], layer["lut_type"]).astype(
        np.int64
    )
    lut_bits = 10 if config == "a16" else 8
    table = interpolated_table(torch.sigmoid, made[0], made[1], lut_bits, alignment="linspace")
    assert table.entries.tolist() == stored.tolist()
    with np.load(folder / "ref.npz") as reference:
        for batch in range(3):
            codes = torch.from_numpy(reference[f"b{batch}_q_in0"].astype(np.int64))
            assert np.array_equal(lookup(codes, table).numpy(), reference[f"b{batch}_q_out0"].astype(np.int64))
