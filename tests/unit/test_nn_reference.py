"""`compat="nics_fix"` against recorded outputs of the original quantiser (cases/reference/nics_fix), to the last bit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from quantizer.nn import Activation_fix, quantize_cfg

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
    return (
        found.shape == wanted.shape
        and torch.equal(found.isnan(), wanted.isnan())
        and bool(((found == wanted) | wanted.isnan()).all())
    )


@pytest.mark.parametrize("case", CASES, ids=[f"{case['tag']}-{case['input']}-{case['bitwidth']}" for case in CASES])
def test_quantization_equals_every_recorded_case(case: dict[str, Any]) -> None:
    given = RECORDED["inputs"][case["input"]]
    data = torch.tensor(given["values"], dtype=torch.float32)
    assert list(data.shape) == given["shape"]
    scale = torch.tensor(case["scale_before"], dtype=torch.float32)
    output, step = quantize_cfg(
        data,
        scale,
        torch.tensor([case["bitwidth"]]),
        case["method"],
        case["range_method"],
        case["stochastic"],
        case["float_scale"],
        case["zero_point"],
        case["group"],
        compat="nics_fix",
    )
    assert _equal(output, case["output"])
    assert _equal(step, case["step"])
    assert _equal(scale, case["scale_after"])


def seeded(seed: int) -> None:
    """Bring torch's generator to a known state, as a script does before the original runs."""
    torch.set_rng_state(torch.Generator().manual_seed(seed).get_state())


@pytest.mark.parametrize("keys", [{}, {"group": "batch"}, {"float_scale": True, "zero_point": True}])
def test_stochastic_rounding_of_the_original_is_noise(keys: dict[str, Any]) -> None:
    """(data / step + U(-1/2, 1/2)) * step, cut at the ends, never rounded; the noise in the order of torch's generator."""
    seeded(3)
    data = torch.randn(4, 3, 2, 5)
    seeded(11)
    found, step = quantize_cfg(data, torch.zeros(1), 3, 1, stochastic=True, compat="nics_fix", **keys)
    seeded(11)
    noise = torch.FloatTensor(data.shape).uniform_(-0.5, 0.5)
    assert step is not None
    high = data.max() if "zero_point" in keys else step.reshape(-1, *[1] * 3 * (step.dim() > 1)) * 4
    low = data.min() if "zero_point" in keys else -high
    assert torch.equal(found, torch.minimum(torch.maximum((data / step + noise) * step, low), high))
    left = (found / step - (found / step).round()).abs()
    assert float((left > 1e-3).float().mean()) > 0.9, "off the grid, as the original leaves it"


def test_seeded_noise_is_repeatable_and_drawn_as_in_the_original() -> None:
    data = torch.linspace(-1, 1, 64)
    drawn = [quantize_cfg(data, 1.0, 2, 2, stochastic=True, seed=7, compat="nics_fix")[0] for _ in range(2)]
    seeded(7)
    assert torch.equal(*drawn)
    assert torch.equal(drawn[0], quantize_cfg(data, 1.0, 2, 2, stochastic=True, compat="nics_fix")[0])
    cfg = {"activation": {"method": 2, "scale": 1.0, "bitwidth": 2, "stochastic": True, "compat": "nics_fix"}}
    module = Activation_fix(nf_fix_params=cfg)
    seeded(7)
    assert torch.equal(module(data), drawn[0])
    assert not torch.equal(module(data), drawn[0])


def test_the_float32_logarithm_of_the_original_is_kept_and_the_default_is_exact() -> None:
    powers = [2.0**k for k in range(-16, 24)]
    exact = [float(quantize_cfg(torch.tensor([p]), 1.0, 8, 1)[1]) * 128 for p in powers]  # type: ignore[arg-type]
    assert exact == powers
    theirs = [float(quantize_cfg(torch.tensor([p]), 1.0, 8, 1, compat="nics_fix")[1]) * 128 for p in powers]  # type: ignore[arg-type]
    assert all(t in (p, 2 * p) for t, p in zip(theirs, powers, strict=True))
