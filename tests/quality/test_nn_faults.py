"""Faults of fixed-point training are found: each law holds for the right code, and each planted fault breaks one."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from quantizer import nn as qnn
from quantizer.conformance.generation.hashing import bits as hashed
from quantizer.nn import calls, datum, fixed, graph_parameters, grid, ranges, straight_through
from quantizer.nn.methods import RangeMethod

Law = Callable[[], bool]


def noise(name: str, *shape: int) -> Tensor:
    unit = (hashed(9, name, shape) >> np.uint64(11)).astype(np.float64) * 2.0**-53
    return torch.from_numpy(((2 * unit - 1) ** 3).astype(np.float32))


def scales_follow_the_definitions() -> bool:
    """RANGE_MAX, 3SIGMA and TENPERCENT follow their definitions; SWEEP has the smallest sum of errors of its three."""
    data = noise("scales", 50, 9) + 0.01
    x = data.double().numpy().ravel()
    wanted = [np.abs(x).max(), abs(x.mean()) + 3 * x.std(ddof=1), np.sort(np.abs(x))[::-1][x.size // 10 - 1]]
    for method, value in zip(list(RangeMethod)[:3], wanted, strict=True):
        for float_scale in (False, True):
            state = torch.zeros(1)
            qnn.quantize_cfg(data, state, 5, 1, method, float_scale=float_scale)
            target = value if float_scale else 2.0 ** math.ceil(math.log2(value))
            if abs(float(state) / target - 1) > 2.0**-20:
                return False
    power = torch.zeros(1)
    qnn.quantize_cfg(torch.tensor([0.5, -0.1]), power, 5, 1)
    if float(power) != 0.5:
        return False
    swept, largest = torch.zeros(1), torch.zeros(1)
    qnn.quantize_cfg(data, swept, 5, 1, RangeMethod.RANGE_SWEEP)
    qnn.quantize_cfg(data, largest, 5, 1)
    errors = {}
    for part in (1.0, 0.5, 0.25):
        step = float(largest) * part / 16
        errors[float(largest) * part] = np.abs(np.clip(np.rint(x / step), -16, 15) * step - x).sum()
    return float(swept) == min(errors, key=errors.__getitem__) != float(largest)


def values_are_the_nearest_codes() -> bool:
    """Codes are rounded half to even, in two's complement, as numpy computes them."""
    data = torch.cat([noise("values", 500) * 3, torch.arange(-40, 41) / 16])
    found, step = qnn.quantize_cfg(data, torch.tensor([2.0]), 4, 2)
    wanted = np.clip(np.rint(data.double().numpy() / 0.25), -8, 7) * 0.25
    return step is not None and float(step) == 0.25 and np.array_equal(found.double().numpy(), wanted)


def stochastic_rounding_is_unbiased() -> bool:
    """Results are whole steps; their mean error is within 4 standard errors, in one forward and over several."""
    for part in (0.1, 0.3, 0.5, 0.8):
        act = qnn.Activation_fix(
            nf_fix_params={"activation": {"method": 2, "bitwidth": 8, "scale": 128.0, "stochastic": True, "seed": 1}}
        )
        draws = torch.stack([act(torch.full((2000,), 3 + part)) for _ in range(50)]).double()
        if set(draws.unique().tolist()) != {3.0, 4.0}:
            return False
        deviation = math.sqrt(part * (1 - part))
        if abs(float((draws - 3 - part).mean())) > 4 * deviation / math.sqrt(draws.numel()):
            return False
        if float((draws.mean(0) - 3 - part).abs().max()) > 6 * deviation / math.sqrt(50):
            return False
    return True


def gradients_pass_inside_alone() -> bool:
    """The gradient is one inside [-scale, scale] and zero outside, for any step."""
    leaf = torch.tensor([-9.0, -2.2, -2.0, -0.3, 0.0, 1.9, 2.0, 2.2, 9.0], requires_grad=True)
    qnn.quantize_cfg(leaf, torch.tensor([2.0]), 4, 2)[0].backward(torch.full((9,), 3.0))
    assert leaf.grad is not None
    return leaf.grad.tolist() == [0.0, 0.0, 3.0, 3.0, 3.0, 3.0, 3.0, 0.0, 0.0]


def gradients_are_quantized() -> bool:
    """Gradients are quantized with their own bits and otherwise unchanged."""
    act = qnn.Activation_fix(nf_fix_params={}, nf_fix_params_grad={"activation": {"method": 1, "bitwidth": 3}})
    x = torch.zeros(4, requires_grad=True)
    act(x).backward(torch.tensor([0.7, 0.3, -0.9, 0.1]))
    assert x.grad is not None
    return x.grad.tolist() == [0.75, 0.25, -1.0, 0.0]


def the_graph_computes_the_same() -> bool:
    """A small network and its integer graph give the same results."""
    keys = qnn.default_fix_cfg(["activation"], zero_point=True)
    layer = qnn.Linear_fix(6, 4, nf_fix_params={**qnn.default_fix_cfg(["weight"]), "bias": {"method": 2, "scale": 8.0}})
    net = nn.Sequential(qnn.Activation_fix(nf_fix_params=keys), layer, qnn.Activation_fix(nf_fix_params=keys)).eval()
    with torch.no_grad():
        layer.weight.copy_(noise("weight", 4, 6))
        layer.bias.copy_(noise("bias", 4) + 0.5)
        x = noise("row", 9, 6) + 0.4
        wanted = net(x)
    return torch.equal(qnn.run_graph(qnn.to_graph(net, x), x), wanted.double())


LAWS: tuple[Law, ...] = (
    scales_follow_the_definitions,
    values_are_the_nearest_codes,
    stochastic_rounding_is_unbiased,
    gradients_pass_inside_alone,
    gradients_are_quantized,
    the_graph_computes_the_same,
)


def _backward(change: Callable[[Tensor, Tensor], Tensor]) -> Any:
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return change(gradient, ctx.saved_tensors[0]), None, None, None

    return staticmethod(backward)


def _rounding(mode: str) -> Any:
    return lambda x, _, **keys: _original_rounding(x, mode if "seed" not in keys else "stochastic", **keys)


_original_rounding = grid.round_tensor
_original_ends = ranges._extrema
_original_grid_for = datum.grid_for
_original_constant = graph_parameters.constant


def _biased(x: Tensor, mode: str, **keys: Any) -> Tensor:
    return _original_rounding(x + 0.02 if "seed" in keys else x, mode, **keys)  # type: ignore[arg-type]


def _noise_left(x: Tensor, mode: str, **keys: Any) -> Tensor:
    if "seed" not in keys:
        return _original_rounding(x, mode, **keys)  # type: ignore[arg-type]
    return x + _original_rounding(torch.full_like(x, 0.5), "stochastic", **keys) - 0.5


def _past_the_top(*operands: Any) -> grid.Grid:
    found = _original_grid_for(*operands)
    return grid.Grid(found.step, found.zero, found.qmin, found.qmax + 1)


def _first_code_next(*operands: Any) -> Any:
    found = _original_constant(*operands)
    found.codes.view(-1)[0] += 1
    return found


FAULTS: dict[str, tuple[object, str, Any]] = {
    "range: power below": (ranges, "power_of_two_above", lambda v: 2.0 ** torch.log2(v).floor()),
    "range: power above": (ranges, "power_of_two_above", lambda v: 2.0 ** (torch.log2(v).floor() + 1)),
    "range: largest value, not magnitude": (
        ranges,
        "_extrema",
        lambda r: (0 * _original_ends(r)[0], _original_ends(r)[1] / 3),
    ),
    "range: two tenths": (ranges, "_tenth", lambda rows: rows.shape[1] // 5),
    "range: biased deviation": (ranges, "_deviation", lambda rows: rows.std(1, correction=0) * 0.99),
    "range: sweep of one": (ranges, "SWEEP", 1),
    "rounding: half away": (grid, "round_tensor", _rounding("half_away")),
    "rounding: half up": (grid, "round_tensor", _rounding("half_up")),
    "rounding: down": (grid, "round_tensor", _rounding("down")),
    "rounding: biased": (grid, "round_tensor", _biased),
    "rounding: noise left": (grid, "round_tensor", _noise_left),
    "rounding: the same draw in each forward": (fixed.Fixed, "_fix_seed", lambda *_, **__: torch.tensor(3)),
    "values: +scale has a code": (datum, "grid_for", _past_the_top),
    "gradient: everywhere": (straight_through.OnGrid, "backward", _backward(lambda g, _: g)),
    "gradient: nowhere": (straight_through.OnGrid, "backward", _backward(lambda g, _: 0 * g)),
    "gradient: halved": (straight_through.OnGrid, "backward", _backward(lambda g, inside: g * inside / 2)),
    "gradient: outside": (straight_through.OnGrid, "backward", _backward(lambda g, inside: g * ~inside)),
    "gradient: never quantized": (fixed, "with_gradient", lambda data, *_: data),
    "graph: one weight code": (calls, "constant", _first_code_next),
}


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
def test_each_law_of_fixed_point_training_holds(law: Law) -> None:
    assert law()


@pytest.mark.parametrize("fault", FAULTS)
def test_each_planted_fault_breaks_a_law(monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    place, name, change = FAULTS[fault]
    monkeypatch.setattr(place, name, change)
    assert not all(law() for law in LAWS)
