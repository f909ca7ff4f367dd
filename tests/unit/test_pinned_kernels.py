"""Float32 kernels that no processor chooses: against recorded outputs, float64, and torch's own under other settings."""

from __future__ import annotations

import math
import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from kernel_settings import NUMPYS
from torch import Tensor

from quantizer.numerics import cascade, lanes, mkl, ordered
from quantizer.numerics.deviates import cosine_of_turns, deviates, logarithm
from quantizer.numerics.exponential import exp
from quantizer.numerics.pinned import pinned

ROOT = Path(__file__).parents[2] / "cases" / "reference" / "compass"
SETTINGS = (
    {
        "ATEN_CPU_CAPABILITY": "default",
        "MKL_CBWR": "AVX2",
        "OMP_NUM_THREADS": "2",
        "NPY_DISABLE_CPU_FEATURES": NUMPYS,
        "OPENBLAS_CORETYPE": "Prescott",
    },
    {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "SSE41"},
)
"""Each hides instructions of this processor; `tox -e processors` sets one variable at a time."""
PROGRAM = Path(__file__).parent / "workers" / "pinned_digests.py"
VALUES = torch.from_numpy(deviates((40_000,), (1,))) * 6


def ulps(got: Tensor, wanted: Tensor) -> Tensor:
    """Return by how many units in the last place float32 numbers of one sign differ."""
    assert got.dtype == wanted.dtype == torch.float32
    return (got.view(torch.int32).long() - wanted.view(torch.int32).long()).abs()


def rounded(f: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    return f(x.double()).float()


@pytest.mark.parametrize("config", ["default", "ext", "pc_asym", "a16"])
@pytest.mark.parametrize(("name", "function"), [("softmax", None), ("act_sigmoid", torch.sigmoid)])
def test_outputs_equal_the_recorded_bits(name: str, function: Callable[[Tensor], Tensor] | None, config: str) -> None:
    """The outputs were recorded with AVX-512; pinned kernels add in the same order on any processor."""
    folder = ROOT / name / config
    recorded, values = np.load(folder / "ref.npz"), torch.from_numpy(np.load(folder / "val.npy"))
    with pinned():
        for place, sample in enumerate(values):
            made = lanes.softmax(sample[None], 2) if function is None else function(sample[None])
            if f"b{place}_float_out0" in recorded and place == 2:
                assert np.array_equal(made.numpy(), recorded[f"b{place}_float_out0"])


def test_the_exponential_is_within_one_unit() -> None:
    assert int(ulps(exp(VALUES), rounded(torch.exp, VALUES)).max()) <= 1
    ends = torch.tensor([-torch.inf, -105.0, -104.5, 0.0, 88.7, 89.0, 101.0, torch.inf, torch.nan])
    assert torch.equal(exp(ends).nan_to_num(nan=-1.0, posinf=1e39), rounded(torch.exp, ends).nan_to_num(-1.0, 1e39))


@pytest.mark.parametrize("size", [1, 7, 15, 16, 17, 40, 1000])
def test_sums_of_any_length(size: int) -> None:
    x = torch.from_numpy((np.sin(np.arange(3 * size) * 1.7) * 5).astype(np.float32).reshape(3, size))
    for axis, values in ((-1, x), (0, x.T.contiguous())):
        wanted = torch.softmax(values.double(), axis)
        assert float(((lanes.softmax(values, axis) - wanted) / wanted).abs().max()) < (size + 8) * 2.0**-24
        logarithms = torch.log_softmax(values.double(), axis)
        assert float((lanes.log_softmax(values, axis) - logarithms).abs().max()) < (size + 8) * 2.0**-24 * 16


@pytest.mark.skipif(not cascade.IS_OWN_ORDER, reason="torch adds in this order on x86-64")
@pytest.mark.parametrize("seed", range(8))
def test_sums_are_added_in_torchs_order(seed: int) -> None:
    """Any shape, order of axes in memory, gaps, and axes that are summed."""
    draw, made = random.Random(seed), 0
    while made < 40:
        shape = [draw.choice([1, 2, 3, 5, 7, 8, 9, 16, 17, 31, 33, 40, 64, 100]) for _ in range(draw.randint(1, 5))]
        if math.prod(shape) > 30_000:
            continue
        x = torch.from_numpy(deviates(tuple(shape), (seed, made)))
        x = x.permute(draw.sample(range(x.dim()), x.dim())) if draw.random() < 0.5 else x
        x = x[..., ::2] if draw.random() < 0.2 else x
        axes = draw.sample(range(x.dim()), draw.randint(0, x.dim()))
        assert torch.equal(cascade.total(x, axes), x.sum(dim=axes) if axes else x.sum()), (x.shape, x.stride(), axes)
        made += 1


@pytest.mark.skipif(not cascade.IS_OWN_ORDER, reason="torch adds in this order on x86-64")
def test_a_mean_is_a_sum_divided(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.from_numpy(deviates((3, 5, 70), (1,)))
    wanted = [x.mean(), x.mean(-1, keepdim=True), x.sum((0, 2)), x.mean((0, 2), dtype=torch.float64)]
    monkeypatch.setattr(cascade, "IS_OWN_ORDER", False)
    with pinned():
        got = [x.mean(), x.mean(-1, keepdim=True), x.sum((0, 2)), x.mean((0, 2), dtype=torch.float64)]
    assert all(map(torch.equal, got, wanted))


FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    **{
        f.__name__: f
        for f in (torch.sigmoid, torch.exp, torch.expm1, torch.erf, torch.tanh, torch.sinh, torch.exp2, torch.atan)
    },
    **{f.__name__: f for f in (F.silu, F.softplus, F.elu, F.selu, F.celu, F.mish, F.gelu)},
    "gelu by tanh": lambda x: F.gelu(x, approximate="tanh"),
    "log": lambda x: torch.log(x.abs()),
    "log1p": lambda x: torch.log1p(x.abs()),
    "sqrt": lambda x: torch.sqrt(x.abs()),
    "pow": lambda x: x.abs() ** 1.5,
    "cube": lambda x: x**3,
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_are_near_float64(name: str) -> None:
    """Within six roundings of what is returned or read: where terms cancel, the error is of their size."""
    function, x = FUNCTIONS[name], VALUES.clamp(-30, 30)
    with pinned():
        made = function(x)
    wanted = function(x.double())
    assert made.dtype == torch.float32
    sizes = wanted.abs() + x.double().abs().clamp(max=1.0)
    assert float(((made.double() - wanted).abs() / sizes).max()) < 6 * 2.0**-24


def test_in_place_and_out_are_the_same() -> None:
    with pinned():
        wanted, place, out = torch.sigmoid(VALUES), VALUES.clone(), torch.empty(len(VALUES))
        assert place.sigmoid_() is place
        torch.exp(VALUES, out=out)
        assert torch.equal(out, torch.exp(VALUES))
    assert torch.equal(place, wanted)
    assert torch.get_num_threads() >= 1


def test_gradients_go_through() -> None:
    x = VALUES[:100].clone().requires_grad_()
    with pinned():
        torch.sigmoid(x).sum().backward()
    wanted = torch.sigmoid(x.detach())
    assert x.grad is not None
    assert float((x.grad - wanted * (1 - wanted)).abs().max()) < 2.0**-22


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize(
    ("stride", "padding", "dilation", "extra"), [(1, 0, 1, 0), (2, 1, 1, 1), ((2, 3), (1, 0), (1, 2), 1)]
)
def test_transposed_convolutions(groups: int, stride: int, padding: int, dilation: int, extra: int) -> None:
    x, weight = VALUES[: 2 * 4 * 30].reshape(2, 4, 5, 6), VALUES[1000 : 1000 + 4 * 3 * 6].reshape(4, 3, 2, 3)
    bias = VALUES[: 3 * groups]
    with pinned():
        made = F.conv_transpose2d(x, weight, bias, stride, padding, extra, groups, dilation)
    wanted = F.conv_transpose2d(x.double(), weight.double(), bias.double(), stride, padding, extra, groups, dilation)
    size = F.conv_transpose2d(
        x.double().abs(), weight.double().abs(), bias.double().abs(), stride, padding, extra, groups, dilation
    )
    assert made.shape == wanted.shape
    assert bool(((made - wanted).abs() <= size * 30 * 2.0**-24).all())


def test_products_without_mkl(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where torch has no MKL, products are added in order and functions rounded from float64."""
    monkeypatch.setattr(mkl, "is_pinned", lambda: False)
    a, b = VALUES[:600].reshape(6, 100), VALUES[600:1200].reshape(100, 6)
    with pinned():
        assert torch.equal(a @ b, ordered.matmul(a, b))
        assert torch.equal(F.linear(a, b.T, b[0]), b[0] + ordered.matmul(a, b))
        assert torch.equal(a @ b[:, 0], ordered.matmul(a, b)[:, 0])
        assert float(a[0] @ b[:, 0]) == float(ordered.matmul(a, b)[0, 0])
        assert torch.equal(torch.exp(VALUES), rounded(torch.exp, VALUES))
        assert torch.equal(torch.sqrt(VALUES.abs()), rounded(torch.sqrt, VALUES.abs()))


def test_mkl_is_pinned_if_torch_has_it() -> None:
    assert mkl.pin() == ("pinned" if torch.backends.mkl.is_available() else "absent")


def test_pinning_mkl_too_late_is_reported() -> None:
    """If MKL ran before the package was imported, its branch is fixed for the rest of the process."""
    program = "import torch; torch.exp(torch.ones(100)); from quantizer.numerics import mkl; print(mkl.pin())"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MKL_")}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)  # noqa: S603
    said = done.stdout
    assert said.strip() == ("too late" if torch.backends.mkl.is_available() else "absent")


def test_logarithm_and_cosine_equal_the_c_library_within_three_units() -> None:
    x = np.concatenate([np.linspace(0, 1, 4001), 2.0 ** -np.arange(1.0, 54), 1 - 2.0 ** -np.arange(1.0, 54)])
    above = x[x > 0]
    wanted = np.array([math.log(value) for value in above])
    assert (np.abs(logarithm(above) - wanted) <= 3 * np.spacing(np.abs(wanted))).all()
    turned = np.array([math.cos(2 * math.pi * value) for value in x])  # whose own argument is rounded
    assert (np.abs(cosine_of_turns(x) - turned) <= 2.0**-50).all()
    assert cosine_of_turns(np.array([0, 0.25, 0.5, 0.75, 1])).tolist() == [1, 0, -1, 0, 1]


def digests(**settings: str) -> list[str]:
    """Return the output of a separate process under environment variables."""
    done = subprocess.run(  # noqa: S603
        [sys.executable, str(PROGRAM)], capture_output=True, text=True, check=True, env={**os.environ, **settings}
    )
    return done.stdout.splitlines()


def test_every_processor_setting_gives_the_same_bits() -> None:
    wanted = digests()
    assert len(wanted) > 40
    for settings in SETTINGS:
        assert digests(**settings) == wanted, settings
