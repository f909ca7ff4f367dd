"""`compat="nics_fix"` against recorded outputs of the original quantiser (cases/reference/nics_fix), to the last bit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from quantizer.nn import quantize_cfg

RECORDED = json.loads(
    (Path(__file__).parents[2] / "cases" / "reference" / "nics_fix" / "quantizer.json").read_text(encoding="utf-8")
)
CASES = RECORDED["cases"]


def _numbers(value: Any) -> Any:
    if isinstance(value, list):
        return [_numbers(item) for item in value]
    return float("nan") if value == "nan" else value


def _equal(found: Tensor | None, recorded: Any) -> bool:
    wanted = torch.tensor(_numbers(recorded), dtype=torch.float32)
    assert found is not None
    return found.shape == wanted.shape and torch.equal(found.isnan(), wanted.isnan()) and bool(
        ((found == wanted) | wanted.isnan()).all()
    )  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=[f"{case['tag']}-{case['input']}-{case['bitwidth']}" for case in CASES])
def test_every_recorded_case(case: dict[str, Any]) -> None:
    given = RECORDED["inputs"][case["input"]]
    data = torch.tensor(given["values"], dtype=torch.float32)
    assert list(data.shape) == given["shape"]
    scale = torch.tensor(case["scale_before"], dtype=torch.float32)
    output, step = quantize_cfg(
        data, scale, torch.tensor([case["bitwidth"]]), case["method"], case["range_method"], case["stochastic"],
        case["float_scale"], case["zero_point"], case["group"], compat="nics_fix",
    )  # fmt: skip
    assert _equal(output, case["output"])
    assert _equal(step, case["step"])
    assert _equal(scale, case["scale_after"])


def test_the_float32_logarithm_of_the_original_is_kept_and_the_default_is_exact() -> None:
    powers = [2.0**k for k in range(-16, 24)]
    exact = [float(quantize_cfg(torch.tensor([p]), 1.0, 8, 1)[1]) * 128 for p in powers]  # type: ignore[arg-type]
    assert exact == powers
    theirs = [float(quantize_cfg(torch.tensor([p]), 1.0, 8, 1, compat="nics_fix")[1]) * 128 for p in powers]  # type: ignore[arg-type]
    assert all(t in (p, 2 * p) for t, p in zip(theirs, powers, strict=True))
