"""Narrow floats against ml_dtypes and torch, bit for bit; packed integers there and back."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from quantizer.core.errors import GraphError
from quantizer.numerics.casts import FLOAT_LAYOUTS, cast, pack, unpack

ml_dtypes = pytest.importorskip("ml_dtypes")


def float32_sample() -> torch.Tensor:
    """Every sign, exponent and upper mantissa, with lower bits that sit on, below and above ties."""
    high = np.arange(1 << 16, dtype=np.uint32) << 16
    low = [0, 1, 0x0FFF, 0x1000, 0x1001, 0x2000, 0x3000, 0x7FFF, 0x8000, 0x8001, 0xFFFF]
    patterns = np.concatenate([high | np.uint32(bits) for bits in low])
    return torch.from_numpy(patterns.view(np.float32))


def expected(x: torch.Tensor, name: str) -> torch.Tensor:
    kind = np.float16 if name == "float16" else getattr(ml_dtypes, name)
    with np.errstate(all="ignore"):
        return torch.from_numpy(x.numpy().astype(kind).astype(np.float32))


def assert_same(found: torch.Tensor, wanted: torch.Tensor) -> None:
    assert torch.equal(found.isnan(), wanted.isnan())
    keep = ~wanted.isnan()
    assert torch.equal(found[keep].view(torch.int32), wanted[keep].view(torch.int32))


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_overflow_to_nan_is_ml_dtypes(name: str) -> None:
    x = float32_sample()
    assert_same(cast(x, name, overflow="nan"), expected(x, name))


@pytest.mark.parametrize("name", ["float6_e2m3fn", "float6_e3m2fn", "float4_e2m1fn"])
def test_formats_without_infinity_saturate_as_ml_dtypes(name: str) -> None:
    x = float32_sample()
    x = x[~x.isnan()]
    assert_same(cast(x, name), expected(x, name))


@pytest.mark.parametrize("name", FLOAT_LAYOUTS)
def test_saturation_keeps_the_largest(name: str) -> None:
    largest = FLOAT_LAYOUTS[name].largest
    x = torch.tensor([float("inf"), float("-inf"), largest, -largest])
    assert cast(x, name).tolist() == [largest, -largest] * 2


def test_saturation_differs_from_nan_only_beyond_the_largest() -> None:
    x = float32_sample()
    saturated, lost = cast(x, "float8_e4m3fn"), cast(x, "float8_e4m3fn", overflow="nan")
    beyond = x.abs() > 464.0
    assert bool(lost[beyond].isnan().all())
    assert bool((saturated[beyond & ~x.isnan()].abs() == 448.0).all())
    assert_same(saturated[~beyond], lost[~beyond])
    finite = x[x.isfinite()]
    assert_same(cast(finite, "float8_e4m3fn"), finite.to(torch.float8_e4m3fn).to(torch.float32))


def test_ties_go_to_the_even_neighbour() -> None:
    x = torch.tensor([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0, -0.25, 7.0])
    assert cast(x, "float4_e2m1fn").tolist() == [0.0, 1.0, 1.0, 2.0, 2.0, 4.0, 4.0, -0.0, 6.0]


def test_float32_is_itself() -> None:
    x = float32_sample()
    assert_same(cast(x, "float32", overflow="nan"), x)


def test_values_that_a_format_cannot_hold_are_refused() -> None:
    nan = torch.tensor([float("nan")])
    assert bool(cast(nan, "float8_e5m2").isnan().all())
    with pytest.raises(GraphError, match="the format has no such value"):
        cast(nan, "float6_e2m3fn")
    with pytest.raises(GraphError, match="has no NaN"):
        cast(torch.ones(1), "float4_e2m1fn", overflow="nan")
    with pytest.raises(GraphError, match="not a float format"):
        cast(torch.ones(1), "int8")


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("signed", [True, False])
@pytest.mark.parametrize("count", [0, 1, 3, 4, 5, 257])
def test_packed_values_are_unpacked_unchanged(bits: int, count: int, *, signed: bool) -> None:
    low = -(1 << (bits - 1)) if signed else 0
    codes = low + torch.arange(count) * 7 % (1 << bits)
    packed = pack(codes, bits, signed=signed)
    assert packed.dtype == torch.uint8
    assert packed.numel() == -(-count * bits // 8)
    assert torch.equal(unpack(packed, bits, (count,), signed=signed), codes)


def test_the_first_code_is_packed_into_the_lowest_bits() -> None:
    assert pack(torch.tensor([[1, -2], [3, -8]]), 4).tolist() == [0xE1, 0x83]
    assert pack(torch.tensor([0, 1, 2, 3, 1]), 2, signed=False).tolist() == [0b11100100, 1]
    assert unpack(torch.tensor([0xE1, 0x83], dtype=torch.uint8), 4, (2, 2)).tolist() == [[1, -2], [3, -8]]


def test_packing_refuses_values_out_of_range() -> None:
    with pytest.raises(GraphError, match=r"codes \[0, 8\]: must lie in int4"):
        pack(torch.tensor([0, 8]), 4)
    with pytest.raises(GraphError, match="bits=3"):
        pack(torch.tensor([0]), 3)
    with pytest.raises(GraphError, match="must be 2 bytes"):
        unpack(torch.zeros(1, dtype=torch.uint8), 4, (3,))
