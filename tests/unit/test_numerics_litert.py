"""The fixed-point variants against codes that LiteRT's kernels produced (cases/reference/litert_requantize.json)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from quantizer.core.dtypes import dtype
from quantizer.core.platforms import Platform
from quantizer.core.variants import RatioArithmetic
from quantizer.numerics.qparams import QParams
from quantizer.numerics.ratio_to_multiplier import rescale, rescale_left_shifted
from quantizer.numerics.requantize import requantize, requantize_sum

LITERT = json.loads((Path(__file__).parents[2] / "cases/reference/litert_requantize.json").read_text())
KERNELS = sorted({row["kernel"] for row in LITERT["scaled"]})
RATIOS: tuple[RatioArithmetic, ...] = ("float64", "float32_product", "float32")


def output(name: str, zero_point: int) -> QParams:
    kind = dtype(name)
    return QParams(kind, torch.tensor(1.0, dtype=torch.float64), torch.tensor(zero_point), kind.min, kind.max)


def codes(row: dict[str, object], ratio: RatioArithmetic) -> list[int]:
    platform = Platform(platform="litert", summary="", schemes=["w8a8"], requantize={"default": row["variant"]})  # type: ignore[dict-item]
    scales = [torch.tensor(row[name], dtype=torch.float64) for name in ("input_scale", "weight_scale")]
    made = rescale(platform, "any", scales, row["output_scale"], 8, ratio=ratio)  # type: ignore[arg-type]
    out = output(row["dtype"], row["zero_point"])  # type: ignore[arg-type]
    return [int(code) for code in requantize(torch.tensor(row["acc"]), made, out).tolist()]


@pytest.mark.parametrize("kernel", KERNELS)
def test_scaled_accumulators_equal_the_recorded_codes(kernel: str) -> None:
    """Random, power-of-two and small-fraction scales, half of the elements chosen where variants disagree."""
    rows = [row for row in LITERT["scaled"] if row["kernel"] == kernel]
    assert len(rows) >= 6
    for row in rows:
        assert codes(row, row["ratio"]) == row["codes"]


@pytest.mark.parametrize("kernel", [name for name in KERNELS if "XNNPACK" not in name and "int16x8" not in name])
def test_recorded_codes_identify_the_ratio_arithmetic(kernel: str) -> None:
    """Elements found in millions where another order of float32 and float64 would give another code."""
    rows = [row for row in LITERT["scaled"] if row["kernel"] == kernel]
    fitting = {ratio for ratio in RATIOS if all(codes(row, ratio) == row["codes"] for row in rows)}
    assert fitting == {rows[0]["ratio"]}


@pytest.mark.parametrize("row", LITERT["added"], ids=[f"scales{i}" for i in range(len(LITERT["added"]))])
def test_added_terms_equal_the_recorded_codes(row: dict[str, list[int]]) -> None:
    a, b, y = row["zero_points"]
    made = rescale_left_shifted("q31_double", {"a": row["scales"][0], "b": row["scales"][1]}, row["scales"][2], 20)
    terms = {"a": torch.tensor(row["a"]) - a, "b": torch.tensor(row["b"]) - b}
    assert requantize_sum(terms, made, output("int8", y), places=20).tolist() == row["codes"]
