"""One tensor on its grid: range methods, rounding, groups, gradients, by hand values and independent statements."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from nn_data import noise
from torch import Tensor

from quantizer.core.errors import FixError
from quantizer.nn import (
    FIX_AUTO,
    FIX_FIXED,
    FIX_NONE,
    RANGE_3SIGMA,
    RANGE_MAX,
    RANGE_MAX_TENPERCENT,
    RANGE_SWEEP,
    QuantizeMethod,
    RangeMethod,
    quantize,
    quantize_cfg,
)


def test_method_numbers_equal_those_in_stored_configurations() -> None:
    assert [int(m) for m in (FIX_NONE, FIX_AUTO, FIX_FIXED)] == [0, 1, 2]
    assert [int(m) for m in (RANGE_MAX, RANGE_3SIGMA, RANGE_MAX_TENPERCENT, RANGE_SWEEP)] == [0, 1, 2, 3]
    assert QuantizeMethod.FIX_AUTO is QuantizeMethod.AUTO
    assert list(RangeMethod) == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("data", "bits", "expected", "step", "scale"),
    [
        ([0.2513, -0.52, 0.0], 2, [0.5, -0.5, 0.0], 0.5, 1.0),
        ([0.2513, -0.5, 0.0], 2, [0.25, -0.5, 0.0], 0.25, 0.5),
        ([0.25, 0.5, 0.75, 1.0], 3, [0.25, 0.5, 0.75, 0.75], 0.25, 1.0),
        ([3.0, -4.0, 0.5, 1.5, 2.5], 3, [3.0, -4.0, 0.0, 2.0, 2.0], 1.0, 4.0),
        ([2.0**-30, 0.0], 8, [127 * 2.0**-37, 0.0], 2.0**-37, 2.0**-30),
        ([0.0, 0.0], 8, [0.0, 0.0], 2.0**-7, 1.0),
    ],
)
def test_powers_of_two_by_hand(data: list[float], bits: int, expected: list[float], step: float, scale: float) -> None:
    state = torch.zeros(1)
    found, found_step = quantize_cfg(torch.tensor(data), state, bits, FIX_AUTO)
    assert found.tolist() == expected
    assert found_step is not None
    assert float(found_step) == step
    assert state.tolist() == [scale]


def test_fixed_keeps_its_scale_and_saturates_at_the_codes() -> None:
    state = torch.tensor([1.0])
    found, step = quantize_cfg(torch.tensor([0.25, 0.5, 0.75, 1.0, 1.5, -1.5, -3.0]), state, 2, FIX_FIXED)
    assert found.tolist() == [0.0, 0.5, 0.5, 0.5, 0.5, -1.0, -1.0]
    assert step is not None
    assert (float(step), state.tolist()) == (0.5, [1.0])


def test_method_none_returns_the_data_unchanged() -> None:
    data = torch.tensor([1.0])
    assert quantize_cfg(data, 1.0, 8, FIX_NONE) == (data, None)


def _ceiling(value: float) -> float:
    return 2.0 ** next(e for e in range(-140, 140) if 2.0**e >= value)


def _swept(x: np.ndarray[Any, Any], bits: int) -> float:
    largest = _ceiling(float(np.abs(x).max()))
    errors = []
    for i in range(3):
        step = largest / 2**i * 2 / 2**bits
        errors.append(np.abs(np.clip(np.rint(x / step), -(2 ** (bits - 1)), 2 ** (bits - 1) - 1) * step - x).sum())
    return largest / 2 ** int(np.argmin(errors))


@pytest.mark.parametrize("bits", [3, 4, 8])
@pytest.mark.parametrize("name", ["a", "b", "c"])
def test_range_methods_are_their_definitions(name: str, bits: int) -> None:
    data = noise(name, 37, 11)
    data[0, 0] = 9.0
    x = data.double().numpy().ravel()
    expected = {
        RANGE_MAX: _ceiling(float(np.abs(x).max())),
        RANGE_3SIGMA: _ceiling(abs(float(x.mean())) + 3 * float(x.std(ddof=1))),
        RANGE_MAX_TENPERCENT: _ceiling(float(np.sort(np.abs(x))[::-1][x.size // 10 - 1])),
        RANGE_SWEEP: _swept(x, bits),
    }
    for method, scale in expected.items():
        state = torch.zeros(1)
        quantize_cfg(data, state, bits, FIX_AUTO, method)
        assert state.item() == scale, method
    assert len(set(expected.values())) >= 3


def test_range_methods_need_no_ten_elements() -> None:
    for method in RangeMethod:
        found, _ = quantize_cfg(torch.tensor([0.5]), 1.0, 8, FIX_AUTO, method)
        assert abs(float(found) - 0.5) <= 2.0**-8


@pytest.mark.parametrize("float_scale", [False, True])
@pytest.mark.parametrize("data", [[-1.0, -0.5, -0.125], [2.6, 0.3, 3.0], [-0.1, 9.0, 0.0], [0.0, 0.0]])
def test_zero_point_grids_contain_zero_and_nearly_all_of_the_range(data: list[float], *, float_scale: bool) -> None:
    state, x = torch.zeros(1), torch.tensor(data)
    found, step = quantize_cfg(x, state, 8, FIX_AUTO, zero_point=True, float_scale=float_scale)
    assert step is not None
    assert float(quantize_cfg(torch.zeros(1), state, 8, FIX_FIXED, zero_point=True, float_scale=float_scale)[0]) == 0.0
    assert bool(((found - x).abs() <= 1.5 * step).all())
    assert state.shape == (2,)
    assert torch.equal((found / step).round() * step, found)
    if not float_scale:
        assert math.frexp(float(step))[0] == 0.5
    again, same_step = quantize_cfg(x, state, 8, FIX_FIXED, zero_point=True, float_scale=float_scale)
    assert torch.equal(again, found)
    assert torch.equal(same_step, step)  # type: ignore[arg-type]


@pytest.mark.parametrize("float_scale", [False, True])
@pytest.mark.parametrize("zero_point", [False, True])
@pytest.mark.parametrize("method", list(RangeMethod))
@pytest.mark.parametrize(("group", "axis"), [("batch", 0), ("channel", 1)])
@pytest.mark.parametrize("shape", [(3, 4, 5, 2), (3, 4)])
def test_each_group_slice_is_quantized_independently(
    shape: tuple[int, ...], group: str, axis: int, method: RangeMethod, *, zero_point: bool, float_scale: bool
) -> None:
    weights = torch.arange(1, shape[axis] + 1).reshape([-1 if i == axis else 1 for i in range(len(shape))])
    data = noise("group", *shape) * weights**2
    keys: dict[str, Any] = {"float_scale": float_scale, "zero_point": zero_point}
    state = torch.zeros(1)
    found, _ = quantize_cfg(data, state, 4, FIX_AUTO, method, group=group, **keys)
    for place, (part, whole) in enumerate(zip(data.unbind(axis), found.unbind(axis), strict=True)):
        own = torch.zeros(1)
        alone, _ = quantize_cfg(part, own, 4, FIX_AUTO, method, **keys)
        assert torch.equal(alone, whole)
        assert torch.equal(state[..., place].reshape(-1), own.reshape(-1))
    fixed, _ = quantize_cfg(data, state, 4, FIX_FIXED, method, group=group, **keys)
    assert torch.equal(fixed, found)


def test_values_equal_the_numerics_package() -> None:
    from quantizer.core.dtypes import dtype
    from quantizer.core.platform_settings import Quantizer
    from quantizer.numerics import quantize as numerics
    from quantizer.numerics.qparams import QParams

    data = noise("codes", 1000)
    found, step = quantize_cfg(data, 1.0, 8, FIX_AUTO)
    assert step is not None
    params = QParams(dtype("int8"), step.double().reshape(()), torch.tensor(0), -128, 127)
    assert torch.equal(numerics.dequantize(numerics.quantize(data, params, Quantizer()), params).float(), found)


@pytest.mark.parametrize("value", [0.0, 0.1, 0.25, 0.5, 0.7431, -0.3, -0.9, 0.9999])
@pytest.mark.parametrize("seed", [0, 7])
def test_stochastic_rounding_is_unbiased_and_repeats_with_its_seed(value: float, seed: int) -> None:
    count = 10**6
    data = torch.full((count,), value) * 2.0**-4
    found, step = quantize_cfg(data, 1.0, 5, FIX_FIXED, stochastic=True, seed=seed)
    assert step is not None
    low, part = math.floor(float(data[0] / step)), float(data[0] / step) % 1.0
    assert set((found / step).unique().tolist()) <= {float(low), float(low + 1)}
    error = (found - data).double()
    deviation = float(step) * math.sqrt(part * (1 - part) / count)
    assert abs(float(error.mean())) <= 4 * deviation
    assert torch.equal(found, quantize_cfg(data, 1.0, 5, FIX_FIXED, stochastic=True, seed=seed)[0])
    if part:
        assert not torch.equal(found, quantize_cfg(data, 1.0, 5, FIX_FIXED, stochastic=True, seed=seed + 1)[0])
        lagged = error[1:] * error[:-1] / float(step) ** 2
        assert abs(float(lagged.mean())) <= 4 * part * (1 - part) / math.sqrt(count)


def test_without_a_seed_stochastic_rounding_follows_torchs_generator() -> None:
    data, state = noise("generator", 64), torch.get_rng_state()
    first = quantize_cfg(data, 1.0, 4, FIX_AUTO, stochastic=True)[0]
    second = quantize_cfg(data, 1.0, 4, FIX_AUTO, stochastic=True)[0]
    torch.set_rng_state(state)
    assert not torch.equal(first, second)
    assert torch.equal(quantize_cfg(data, 1.0, 4, FIX_AUTO, stochastic=True)[0], first)


def test_gradients_pass_inside_the_range_and_nowhere_else() -> None:
    data = torch.tensor([-3.0, -1.3, -1.2, -1.0, -0.3, 0.0, 0.9, 1.0, 1.2, 1.3, 5.0], requires_grad=True)
    found, _ = quantize_cfg(data, torch.tensor([1.0]), 2, FIX_FIXED)
    found.backward(torch.arange(1.0, 12.0))
    assert data.grad is not None
    assert data.grad.tolist() == [0.0, 0.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 0.0, 0.0]


@pytest.mark.parametrize(
    "keys", [{}, {"zero_point": True}, {"group": "batch"}, {"float_scale": True, "zero_point": True}]
)
def test_gradients_are_the_finite_differences_of_the_clamp_that_rounding_follows(keys: dict[str, Any]) -> None:
    shape = (4, 50)
    data = (noise("difference", *shape) * 4).double()
    count = 4 if keys.get("group") else 1
    ends = torch.tensor([-0.75, 1.25]).reshape(2, 1).expand(2, count)
    scale = ends.reshape(2, -1) if keys.get("zero_point") else torch.full((count,), 1.0)
    scale = scale.reshape(2) if keys.get("zero_point") and count == 1 else scale
    _, step = quantize_cfg(data, scale.clone(), 4, FIX_FIXED, **keys)
    assert step is not None
    half, small = float(step.max()) / 2, 1e-4
    low, high = (-0.75, 1.25) if keys.get("zero_point") else (-1.0, 1.0)

    def surrogate(x: Tensor) -> Tensor:
        return x.clamp(low - half, high + half)

    differences = (surrogate(data + small) - surrogate(data - small)) / (2 * small)
    inner = ((data - low + half).abs() > small) & ((data - high - half).abs() > small)
    leaf = data.clone().requires_grad_()
    quantize_cfg(leaf, scale.clone(), 4, FIX_FIXED, **keys)[0].sum().backward()
    assert leaf.grad is not None
    assert torch.equal(leaf.grad[inner], differences[inner].round())
    assert 0 < int((leaf.grad == 0).sum()) < leaf.grad.numel()


def test_the_originals_gradient_is_halved_at_the_ends_of_groups_and_passes_at_a_single_end() -> None:
    data = torch.tensor([-2.0, -1.0, 0.3, 1.0, 2.0])
    leaf = data.clone().requires_grad_()
    quantize_cfg(leaf, torch.tensor([1.0]), 2, FIX_FIXED, compat="nics_fix")[0].sum().backward()
    assert leaf.grad is not None
    assert leaf.grad.tolist() == [0.0, 1.0, 1.0, 1.0, 0.0]
    leaf = data.reshape(1, 5, 1, 1).clone().requires_grad_()
    quantize_cfg(leaf, torch.tensor([1.0]), 2, FIX_FIXED, group="batch", compat="nics_fix")[0].sum().backward()
    assert leaf.grad is not None
    assert leaf.grad.flatten().tolist() == [0.0, 0.5, 1.0, 0.5, 0.0]


def test_the_originals_grid_is_the_chain_of_torch_operations() -> None:
    """Its forward and gradient, stated with torch's own functions, for scales of every kind."""
    data = noise("chain", 2, 3, 4, 5) * 3
    for group, count in ((None, 1), ("batch", 2), ("channel", 3)):
        for scale in (torch.linspace(0.3, 1.7, count), torch.linspace(0.5, 0.7, count)):
            shape = {None: (), "batch": (-1, 1, 1, 1), "channel": (1, -1, 1, 1)}[group]
            end = scale.reshape(shape)
            ours, theirs = (data.clone().requires_grad_() for _ in range(2))
            step = 2 * end / 2.0**3
            ratio = theirs / step
            rounded = (ratio + (ratio.round() - ratio).detach()) * step
            expected = (  # torch.clamp, which the original calls, has no gradient at a limit from torch 2.14 on
                torch.where(rounded.detach().abs() <= end, rounded, rounded.detach().sign() * end)
                if group is None
                else torch.min(torch.max(-end.expand_as(data), rounded), end.expand_as(data))
            )
            found, _ = quantize_cfg(ours, scale.clone(), 3, FIX_FIXED, group=group, compat="nics_fix")
            chain = ratio.detach()  # theirs rounds a difference, a sum and a product that ours does not form
            lost = 2.0**-24 * step * ((chain.round() - chain).abs() + 2 * chain.round().abs())
            assert bool(((found - expected).abs() <= lost).all())
            weights = noise("weights", 2, 3, 4, 5)
            found.backward(weights)
            expected.backward(weights)
            assert torch.equal(ours.grad, theirs.grad)  # type: ignore[arg-type]


def test_quantized_gradients_follow_their_own_configuration() -> None:
    x = torch.tensor([1.1, 0.9], requires_grad=True)
    grad = {"method": FIX_AUTO, "bitwidth": 2, "scale": torch.zeros(1)}
    found, step = quantize(x, {"method": FIX_NONE}, grad)
    assert step is None
    (found * torch.tensor([0.5, 0.26])).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [0.25, 0.25]
    assert grad["scale"].tolist() == [0.5]  # type: ignore[attr-defined]
    x.grad = None
    compat = {**grad, "compat": "nics_fix"}
    (quantize(x, {}, compat)[0] * torch.tensor([0.5, 0.26])).sum().backward()
    assert x.grad.tolist() == [0.5, 0.25]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"bitwidth": 0}, "bitwidth: must be an integer in [1, 24], got 0"),
        ({"bitwidth": 2.5}, "bitwidth: must be an integer"),
        ({"method": 3}, "method: must be one of NONE (0), AUTO (1), FIXED (2), got 3"),
        ({"range_method": "max"}, "range_method: must be one of RANGE_MAX (0)"),
        ({"group": "layer"}, "group: must be None or one of batch, channel, got 'layer'"),
        ({"compat": "nics"}, "compat: must be None or one of nics_fix, got 'nics'"),
        ({"method": 2, "scale": 0.0}, "FIXED needs a positive one"),
        ({"method": 2, "scale": [1.0, -1.0], "zero_point": True}, "the first below the second"),
        ({"method": 2, "scale": 1.0, "zero_point": True}, "with zero_point write both ends"),
        ({"method": 2, "scale": [1.0, 2.0], "group": "batch"}, "data of shape [3, 2] needs [3]"),
        ({"scale": "wide"}, "scale: must be a number, a list of numbers or a tensor, got 'wide'"),
        ({"stochastic": "yes"}, "stochastic: must be True or False"),
        ({"seed": -1}, "seed: must be an integer in [0,"),
        ({"data": torch.zeros(2, dtype=torch.int64)}, "only floating-point data"),
    ],
)
def test_bad_arguments_get_one_clear_error(keys: dict[str, Any], message: str) -> None:
    given = {"data": torch.ones(3, 2), "scale": 1.0, "bitwidth": 8, "method": 1} | keys
    with pytest.raises(FixError) as caught:
        quantize_cfg(**given)
    assert message in str(caught.value)
