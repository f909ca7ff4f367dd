"""torch's softmax as AVX-512 computes it, against recorded float outputs and exact ones."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from quantizer.numerics import avx512

ROOT = Path(__file__).parents[2] / "cases" / "reference" / "compass" / "softmax" / "ext"
LAST_PLACES = 2
"""Units in the last place by which an exponential that is not rounded right moves a share and the sum."""


def test_recorded_outputs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(avx512, "native", lambda: False)
    recorded, values = np.load(ROOT / "ref.npz"), np.load(ROOT / "val.npy")
    away = []
    for place, sample in enumerate(values):
        got = avx512.softmax(torch.from_numpy(sample)[None], 2).numpy()
        away.append(got.view(np.int32) - recorded[f"b{place}_float_out0"].view(np.int32))
    assert np.abs(away).max() <= LAST_PLACES
    assert (np.array(away) == 0).mean() > 0.85


@pytest.mark.parametrize("size", [1, 7, 15, 16, 17, 40, 1000])
def test_sums_of_any_length(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr(avx512, "native", lambda: False)
    x = (np.sin(np.arange(3 * size) * 1.7) * 5).astype(np.float32).reshape(3, size)
    got, wanted = avx512.softmax(torch.from_numpy(x), -1), torch.softmax(torch.from_numpy(x).double(), -1)
    assert float(((got - wanted) / wanted).abs().max()) < (size + 8) * 2.0**-24
    assert torch.equal(avx512.softmax(torch.from_numpy(x), 0), torch.softmax(torch.from_numpy(x), 0))
