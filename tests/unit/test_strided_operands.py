"""Kernels that add in float32 give the same codes whatever the order of their operands' axes in memory."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from quantizer.core.dtypes import dtype
from quantizer.core.library import load_library
from quantizer.numerics.qparams import QParams
from quantizer.platforms.torch.kernels import matmul, reduce_mean

SCALE, FINE = 0.0231617652, 2e-9
"""The scale of operands, and one of outputs that is below the differences of float32 sums in another order."""
ZERO = 100


def _params(scale: float, zero: int) -> QParams:
    return QParams(dtype("uint8"), torch.tensor(scale, dtype=torch.float64), torch.tensor(zero), 0, 255)


def _parameters(*names: str) -> Any:
    inputs, outputs = dict.fromkeys(names, _params(SCALE, ZERO)), {"y": _params(FINE, 128)}
    return SimpleNamespace(inputs=inputs, outputs=outputs, platform=load_library().platform("torch_x86"))


def _turned(values: Tensor) -> Tensor:
    axes = tuple(reversed(range(values.dim())))
    return values.permute(axes).contiguous().permute(axes)


def _cancelling(shape: tuple[int, ...], axis: int) -> Tensor:
    """Return codes whose distances from the zero point add up to 0 along an axis."""
    half = torch.randint(0, 2 * ZERO, shape, generator=torch.Generator().manual_seed(1))
    return torch.cat([half, 2 * ZERO - half], axis)


@pytest.mark.parametrize("axes", [(1,), (0, 1)])
def test_mean_codes_do_not_depend_on_memory_layout(axes: tuple[int, ...]) -> None:
    x, parameters = _cancelling((5, 17, 33), 1), _parameters("x")
    made, again = (reduce_mean(v, parameters=parameters, axes=axes, keepdims=True) for v in (x, _turned(x)))
    assert torch.equal(made, again)
    assert made.unique().numel() > 1


def test_matmul_codes_do_not_depend_on_memory_layout() -> None:
    a, parameters = _cancelling((9, 65), 1), _parameters("a", "b")
    b = torch.cat([a.T[:65]] * 2)
    made, again = (matmul(x, y, parameters=parameters) for x, y in ((a, b), (_turned(a), _turned(b))))
    assert torch.equal(made, again)
    assert made.unique().numel() > 1
