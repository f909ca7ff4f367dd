"""Instance, group and root-mean-square normalisation: floats against torch, codes against their definitions."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from quantizer.conformance.checks.round_trip import float_graph
from quantizer.conformance.generation.builder import build_case
from quantizer.conformance.generation.choice_sources import HashChoices
from quantizer.conformance.judging.judge import judge
from quantizer.conformance.setup.options import Options
from quantizer.conformance.setup.session import open_session
from quantizer.conformance.trials.trial import Trial
from quantizer.core.case import Case, DataRecipe, TilePlan
from quantizer.core.errors import GraphError
from quantizer.core.library import load_library
from quantizer.core.verdict import CHECKS
from quantizer.ir.formats import compass
from quantizer.ir.formats.compass_mapping import FORMAT
from quantizer.ir.graph import same
from quantizer.numerics.qparams import Parameters
from quantizer.numerics.request import Request
from quantizer.ops import REGISTRY, load_built_ins

LIBRARY = load_library()
load_built_ins()
SESSION = open_session(Options(root=Path.cwd()))
SHAPES = {"instance_norm": (2, 6, 4, 5), "group_norm": (2, 6, 4, 5), "rms_norm": (3, 7, 12)}
ATTRS: dict[str, dict[str, Any]] = {
    "instance_norm": {"epsilon": 1e-5},
    "group_norm": {"num_groups": 3, "epsilon": 1e-3},
    "rms_norm": {"axis": -1, "epsilon": 1e-5},
}


def wave(shape: tuple[int, ...], factor: float) -> Tensor:
    return torch.sin(torch.arange(math.prod(shape), dtype=torch.float64) * factor).reshape(shape)


def operands(op: str) -> dict[str, Tensor]:
    shape = SHAPES[op]
    affine = shape[-1:] if op == "rms_norm" else (shape[1],)
    return {"x": 2 * wave(shape, 0.7) + 0.3, "gamma": wave(affine, 1.3) + 1.2, "beta": wave(affine, 2.1)}


def by_torch(op: str, x: Tensor, gamma: Tensor, beta: Tensor) -> Tensor:
    epsilon = ATTRS[op]["epsilon"]
    match op:
        case "instance_norm":
            return F.instance_norm(x, weight=gamma, bias=beta, eps=epsilon)
        case "group_norm":
            return F.group_norm(x, ATTRS[op]["num_groups"], gamma, beta, epsilon)
        case _:
            return F.rms_norm(x, gamma.shape, gamma, epsilon) + beta


@pytest.mark.parametrize("op", SHAPES)
def test_the_float_forward_is_that_of_torch(op: str) -> None:
    given = operands(op)
    got = REGISTRY.get(op, "reference")(**given, **ATTRS[op])
    wanted = by_torch(op, **given)
    roundings = 4 * given["x"].numel()  # both sum twice and in any order; the largest value bounds what cancels
    assert (got - wanted).abs().max() <= roundings * 2.0**-53 * wanted.abs().max()


def compass_codes(op: str, codes: Tensor, parameters: Parameters) -> Tensor:
    """Return Compass's codes with loops over rows: 8 bits, a mean taken off; written from facts, sharing nothing."""
    numbers, rescale, y = parameters.numbers, parameters.rescale, parameters.outputs["y"]
    assert rescale is not None
    entries = parameters.tables["inverse_root"].entries.tolist()
    gamma, beta = (parameters.constants[name].codes.tolist() for name in ("gamma", "beta"))
    channels = codes.shape[1]
    share = channels // (ATTRS[op].get("num_groups") or channels)
    made = torch.empty_like(codes)
    for image in range(codes.shape[0]):
        for start in range(0, channels, share):
            row = codes[image, start : start + share]
            mean = round(row.double().mean().item())
            variance = max(int(((row - mean) ** 2).sum()) >> numbers["variance_shift"], 1)
            halves = (variance.bit_length() - 1) // 2
            place = variance / 4**halves * 64 - 64
            low = min(int(place), len(entries) - 2)
            chord = entries[low] - (entries[low] - entries[low + 1]) * (place - low)
            root = math.floor(chord / 2**halves + 0.5)
            normal = torch.round((row - mean).double() * root * 2.0 ** -(8 + numbers["norm_shift"])).clamp(-128, 127)
            for channel in range(share):
                at = start + channel
                gain = rescale.mantissa[at] * 2.0 ** -rescale.shift[at].double()
                made[image, at] = torch.round((normal[channel] * gamma[at] + beta[at]) * gain).long() + y.zero_point
    return made.clamp(y.qmin, y.qmax)


@pytest.mark.parametrize("op", ["instance_norm", "group_norm"])
def test_compass_norm_codes_equal_a_loop_over_rows(op: str) -> None:
    given = {name: values.float() for name, values in operands(op).items()}
    spec, platform = LIBRARY.spec(op), LIBRARY.platform("compass")
    shapes = {name: tuple(values.shape) for name, values in given.items()}
    ranges = {"x": (-2.0, 2.5), "y": (-3.0, 3.5)}
    constants = {name: given[name] for name in ("gamma", "beta")}
    request = Request(spec, LIBRARY.scheme("w8a8"), platform, shapes, ATTRS[op], ranges, constants)
    parameters = REGISTRY.get(op, "quantize", "compass")(request)
    assert parameters.rescale.mantissa.numel() == 6
    assert (len(set(parameters.rescale.shift.tolist())) == 1) is (op == "group_norm")
    codes = (given["x"] * 50).round().long()
    fixed = {name: constant.codes for name, constant in parameters.constants.items()}
    got = REGISTRY.get(op, "quantized", "compass")(codes, **fixed, parameters=parameters, **ATTRS[op]).codes
    assert torch.equal(got, compass_codes(op, codes, parameters))


def test_a_root_mean_square_of_compass_has_its_zero_point_and_no_mean() -> None:
    """((x - z) * factor + 128) >> 8, factor = (1 / sqrt(mean square) in 2**-15) * m * 2**-n, by hand for one row."""
    spec, platform = LIBRARY.spec("rms_norm"), LIBRARY.platform("compass")
    request = Request(
        spec,
        LIBRARY.scheme("w8a8"),
        platform,
        {"x": (1, 4)},
        {"axis": -1, "epsilon": 1e-5},
        {"x": (-1.0, 2.0), "y": (-2.0, 2.0)},
    )
    parameters = REGISTRY.get("rms_norm", "quantize", "compass")(request)
    zero = int(parameters.inputs["x"].zero_point)
    assert zero != 0
    codes = torch.tensor([[40, -40, 20, 0]]) + zero
    staged = REGISTRY.get("rms_norm", "quantized", "compass")(codes, parameters=parameters, axis=-1, epsilon=1e-5)
    assert staged.stages["variance"].item() == (1600 + 1600 + 400) // 4
    root = staged.stages["root"].item()
    assert abs(root - 2**15 / 30) < 1
    factor = round(root * parameters.numbers["norm_multiplier"] * 2.0 ** -parameters.numbers["norm_shift"])
    assert staged.stages["factor"].item() == factor
    assert staged.stages["normalized"].tolist() == [[(c * factor + 128) >> 8 for c in (40, -40, 20, 0)]]


@pytest.mark.parametrize("op", SHAPES)
@pytest.mark.parametrize("scheme", ["w8a8", "w16a16"])
def test_every_check_runs_on_compass(op: str, scheme: str) -> None:
    """Only tiling may be inconclusive, if the case is not cut."""
    target = next(t for t in SESSION.all_targets(LIBRARY.spec(op)) if t.id == f"{op}-{scheme}-compass")
    shapes = {name: tuple(values.shape) for name, values in operands(op).items()}
    ranges = {"x": (-2.0, 2.5), "y": (-3.0, 3.5), "gamma": (0.1, 2.0), "beta": (-1.0, 1.0)}
    case = Case(
        op, scheme, "compass", shapes, ATTRS[op], ranges, "channels_last", TilePlan({}), DataRecipe("random", 5)
    )
    found = {verdict.check: verdict.status for verdict in judge(Trial(target, case, SESSION.engine), CHECKS)}
    assert found["pipeline"] == found["round_trip"] == "pass"
    assert "inconclusive" not in found.values()


@pytest.mark.parametrize(("op", "axis", "wrong"), [("group_norm", -1, 2), ("instance_norm", (-3, -2), (0, 1))])
def test_an_axis_of_a_layer_may_count_from_the_end(op: str, axis: Any, wrong: Any) -> None:
    """It stays as it was written; an axis that is not the channel's is refused."""
    spec = LIBRARY.spec(op)
    target = next(t for t in SESSION.all_targets(spec) if t.id == f"{op}-w8a8-compass")
    trial = Trial(target, build_case(target, HashChoices(3, {})), SESSION.engine)
    written = compass.foreign(float_graph(trial, "channels_last"), {op: spec})
    layer = next(node for node in written.nodes if node.op == spec.formats[FORMAT].type)
    given = written.with_node(replace(layer, attrs={**layer.attrs, "axis": axis}))
    ours = compass.native(given, {op: spec})
    assert ours.nodes[0].op == op
    assert same(given, compass.foreign(ours, {op: spec})) is None
    with pytest.raises(GraphError, match="axis="):
        compass.native(written.with_node(replace(layer, attrs={**layer.attrs, "axis": wrong})), {op: spec})
