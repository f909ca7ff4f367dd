"""Platforms of torch's quantized operators against its kernels, beyond the domains of the specs.

Rows longer than a vector, channels around the widths of vectors, windows of many places; under scales that are powers of two
(exact ties), any float32 numbers, or numbers that leave sums within 2**-23 of a tie (where orders of operations show).
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pytest
import torch

from quantizer.conformance.checks.arithmetic import arithmetic
from quantizer.conformance.generation.builder import build_case
from quantizer.conformance.generation.choice_sources import HashChoices
from quantizer.conformance.generation.hashing import integers, uniform
from quantizer.conformance.generation.ranges import range_of
from quantizer.conformance.judging.known_defects import known_defect
from quantizer.conformance.setup.releases import at_release
from quantizer.conformance.target import Target
from quantizer.conformance.trials.trial import Trial
from quantizer.core.dtypes import dtype
from quantizer.core.library import load_library
from quantizer.numerics.qparams import QParams
from quantizer.numerics.request import Request
from quantizer.ops import load_built_ins
from quantizer.platforms.torch import lane_tables
from quantizer.runtime.engines.builtin import BuiltinEngine
from quantizer.runtime.engines.catalogue import Chosen
from quantizer.runtime.engines.external import ExternalEngine
from quantizer.runtime.engines.frames import Job
from quantizer.runtime.engines.process import Worker

load_built_ins()
LIBRARY = at_release(load_library(), Chosen("torch"))
PLATFORMS = ("torch_x86", "torch_fbgemm", "torch_qnnpack")
ENGINE = ExternalEngine(Chosen("torch"))
POPULATIONS = ("powers", "any", "near")
PADS: dict[str, Any] = {"padding": (0, 0, 0, 0), "ceil_mode": False}
WINDOW: dict[str, Any] = {"stride": (1, 2), "padding": (1, 0, 1, 0), "dilation": (1, 1)}
CASES: dict[str, tuple[dict[str, tuple[int, ...]], dict[str, Any]]] = {
    "add": ({"a": (3, 70), "b": (3, 70)}, {}),
    "add of columns": ({"a": (3, 4, 35), "b": (3, 1, 1)}, {}),
    "add of a row": ({"a": (2, 130), "b": (130,)}, {}),
    "mul": ({"a": (3, 70), "b": (3, 1)}, {}),
    "leaky_relu": ({"x": (2, 97)}, {"slope": 0.3}),
    "tanh": ({"x": (5, 61)}, {}),
    "sigmoid": ({"x": (5, 61)}, {}),
    "clip": ({"x": (2, 97)}, {"low": -0.5, "high": 0.75}),
    "softmax": ({"x": (7, 150)}, {"axis": 1}),
    "concat": ({"a": (3, 40), "b": (3, 31), "c": (3, 65)}, {"axis": 1}),
    "avg_pool2d": ({"x": (2, 65, 9, 8)}, {**PADS, "kernel": (5, 6), "stride": (1, 1), "count_include_pad": True}),
    "avg_pool2d of one channel": (
        {"x": (9, 1, 4, 7)},
        {**PADS, "kernel": (2, 3), "stride": (1, 2), "count_include_pad": True},
    ),
    "max_pool2d": ({"x": (2, 33, 9, 8)}, {**PADS, "kernel": (5, 6), "stride": (2, 1)}),
    "global_avg_pool2d": ({"x": (2, 65, 5, 6)}, {}),
    "global_avg_pool2d of one channel": ({"x": (9, 1, 2, 7)}, {}),
    "reduce_mean": ({"x": (2, 65, 2, 7)}, {"axes": (2, 3), "keepdims": True}),
    "reduce_mean of channels": ({"x": (2, 9, 5, 7)}, {"axes": (1,), "keepdims": False}),
    "matmul": ({"a": (2, 5, 33), "b": (2, 33, 9)}, {}),
    "batch_norm": ({"x": (2, 17, 5, 3), "weight": (17,), "bias": (17,)}, {"axis": 1}),
    "fully_connected": ({"x": (33, 17), "weight": (65, 17), "bias": (65,)}, {}),
    "conv1d": (
        {"x": (2, 34, 9), "weight": (18, 17, 3), "bias": (18,)},
        {"stride": (2,), "padding": (1, 1), "dilation": (1,), "groups": 2},
    ),
    "conv2d": ({"x": (2, 17, 6, 5), "weight": (33, 17, 3, 2), "bias": (33,)}, {**WINDOW, "groups": 1}),
    "conv2d without bias": ({"x": (1, 64, 6, 5), "weight": (16, 16, 2, 2)}, {**WINDOW, "groups": 4}),
    "depthwise_conv2d": ({"x": (2, 33, 6, 5), "weight": (33, 1, 3, 2), "bias": (33,)}, WINDOW),
    "conv3d": (
        {"x": (1, 9, 3, 4, 4), "weight": (17, 9, 2, 2, 2), "bias": (17,)},
        {"stride": (1, 1, 2), "padding": (0, 1, 0, 0, 1, 0), "dilation": (1, 1, 1), "groups": 1},
    ),
    "conv_transpose2d": (
        {"x": (1, 16, 4, 3), "weight": (16, 16, 3, 2), "bias": (16,)},
        {**WINDOW, "output_padding": (0, 0), "groups": 1},
    ),
}


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
    ENGINE.close()


@pytest.mark.parametrize("population", POPULATIONS)
@pytest.mark.parametrize("platform", PLATFORMS)
@pytest.mark.parametrize("name", CASES)
def test_codes_equal_the_kernel_and_pass_the_checks(name: str, platform: str, population: str) -> None:
    op = name.split(" ", maxsplit=1)[0]
    if op not in (LIBRARY.platform(platform).ops or ()):
        return
    for scheme in LIBRARY.schemes_for(LIBRARY.spec(op), LIBRARY.platform(platform)):
        for seed in range(3):
            own = trial_of(name, platform, scheme, population, seed)
            real = Trial(own.target, own.case, ENGINE)
            real.tensors, real.parameters, real.codes = own.tensors, own.parameters, own.codes
            known = known_defect(real, "engine")
            assert np.array_equal(own.got, real.got) or known, (scheme, seed, np.argwhere(own.got != real.got)[:3])
            assert arithmetic(real).status == "pass" or known, (scheme, seed, arithmetic(real))


@pytest.mark.parametrize("length", [64, 63, 1])
@pytest.mark.parametrize("platform", PLATFORMS)
def test_sigmoid_codes_next_to_ties_equal_the_kernel(platform: str, length: int) -> None:
    target = Target(LIBRARY.spec("sigmoid"), LIBRARY.scheme("a8"), LIBRARY.platform(platform))
    case = build_case(target, HashChoices(0, {})).but(shapes={"x": (length,)}, attrs={}, activation="none")
    for seed in range(12 if length == 1 else 120):
        zero, place = int(integers(seed, "zero", (), 0, 255)), int(integers(seed, "place", (), 128, 254))
        share, distance = (place + 0.5) / 256, int(integers(seed, "distance", (), 1, 127))
        code = zero + distance if zero < 128 else zero - distance
        scale = float(np.float32(np.log(share / (1 - share)) / distance))
        given = {"x": _uint8(scale, zero)}
        request = Request(
            target.spec, target.scheme, target.platform, {"x": (length,)}, {}, {"y": (0.0, 1.0)}, {}, given
        )
        own, real = Trial(target, case, BuiltinEngine()), Trial(target, case, ENGINE)
        for trial in (own, real):
            trial.tensors, trial.parameters = {}, own.engine.quantize(request)
            trial.codes = {"x": (code + torch.arange(length) * 7) % 256}
        known = known_defect(real, "engine")
        assert np.array_equal(own.got, real.got) or known, (seed, np.argwhere(own.got != real.got)[:3])


def test_the_exponential_of_vectors_is_not_the_nearest_float32() -> None:
    x = torch.linspace(-110, 101, 4001)
    got, real = lane_tables.vector_exponential(x), torch.exp(x.double())
    kept = (x > -87) & (x < 88)
    ratio = (got.double() / real - 1).abs()[kept]
    assert 2.0**-25 < float(ratio.max()) < 2.0**-23
    assert got[x < -104].eq(0).all()
    assert got[x > 100].isinf().all()


def test_every_operator_of_the_platforms_is_compared() -> None:
    moves = {"relu", "transpose", "pad", "reshape", "gather", "quantize"}
    compared = {name.split(" ")[0] for name in CASES}
    assert compared | moves == {op for name in PLATFORMS for op in LIBRARY.platform(name).ops or ()}


@pytest.mark.parametrize("scheme", ["w8a8", "w8pta8"])
def test_pairs_of_taps_saturate_in_fbgemm(scheme: str) -> None:
    """The codes of fbgemm's depthwise kernel follow from sums of two products cut to 16 bits each."""
    trial, real = depthwise(scheme)
    assert not np.array_equal(trial.got, real.got)
    x, weight = trial.codes["x"].numpy(), trial.codes["weight"].numpy()
    zero = int(trial.parameters.inputs["x"].zero_point)
    wide = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)), constant_values=zero)
    taps = [
        wide[:, :, i : i + 4, j : j + 4] * weight[:, 0, i, j].reshape(1, -1, 1, 1) for i in range(3) for j in range(3)
    ]
    pairs = [sum(taps[i : i + 2]) for i in range(0, 9, 2)]
    sums = sum(np.clip(pair, -(1 << 15), (1 << 15) - 1) for pair in pairs)
    sums = sums - zero * weight.reshape(len(weight), -1).sum(1).reshape(1, -1, 1, 1)
    rescale, y = trial.parameters.rescale, trial.output
    assert rescale is not None
    scaled = np.rint(sums.astype(np.float32) * trial.per_channel(rescale.mantissa).astype(np.float32))
    assert np.array_equal(np.clip(scaled + int(y.zero_point), 0, 255), real.got)


def depthwise(scheme: str) -> tuple[Trial, Trial]:
    """Return a 3x3 depthwise convolution of 8 channels with the same padding, on our engine and on fbgemm."""
    shapes = {"x": (1, 8, 4, 4), "weight": (8, 1, 3, 3)}
    attrs = {"stride": (1, 1), "padding": (1, 1, 1, 1), "dilation": (1, 1)}
    own = _trial("depthwise_conv2d", shapes, attrs, "torch_fbgemm", scheme, "any", 5)
    real = Trial(own.target, own.case, ENGINE)
    real.tensors, real.parameters, real.codes = own.tensors, own.parameters, own.codes
    return own, real


def trial_of(name: str, platform: str, scheme: str, population: str, seed: int) -> Trial:
    """Return a trial of our engine on codes over their whole range, under scales of *population*."""
    shapes, attrs = CASES[name]
    return _trial(name.split(" ", maxsplit=1)[0], shapes, attrs, platform, scheme, population, seed)


def _trial(
    op: str,
    shapes: Mapping[str, tuple[int, ...]],
    attrs: Mapping[str, Any],
    platform: str,
    scheme: str,
    population: str,
    seed: int,
) -> Trial:
    target = Target(LIBRARY.spec(op), LIBRARY.scheme(scheme), LIBRARY.platform(platform))
    activations = [item for item in target.spec.activations if item in shapes]
    given = {
        item: _uint8(_scale(population, seed, item), int(integers(seed, f"{item}.zero", (), 0, 255)))
        for item in activations
    }
    codes = {item: torch.from_numpy(integers(seed, item, shapes[item], 0, 255)) for item in activations}
    codes[activations[0]].view(-1)[:2] = torch.tensor([0, 255])
    constants = {}
    if "weight" in shapes:
        step = _scale(population, seed, "weight")
        weight = integers(seed, "weight", shapes["weight"], -127, 127).astype(np.float64)
        weight.reshape(shapes["weight"][0], -1)[:, 0] = 127
        constants["weight"] = torch.from_numpy(weight * step).float()
    if "bias" in shapes:
        unit = float(given["x"].scale) * (step if "weight" in shapes else 1.0)
        constants["bias"] = torch.from_numpy(integers(seed, "bias", shapes["bias"], -4000, 4000) * unit).float()
    spread = 2.0 ** int(integers(seed, "y.scale", (), 1, 3))
    reach = _reach(target, shapes, attrs, given, constants) * spread
    scale = _snapped(reach / 255, population, given, constants)
    zero = int(integers(seed, "y.zero", (), 0, 255))
    request = Request(
        target.spec,
        target.scheme,
        target.platform,
        shapes,
        attrs,
        {"y": range_of(target, scale, zero)},
        constants,
        given,
    )
    case = build_case(target, HashChoices(0, {})).but(shapes=shapes, attrs=attrs, activation="none")
    trial = Trial(target, case, BuiltinEngine())
    trial.tensors, trial.parameters = constants, trial.engine.quantize(request)
    trial.codes = codes | {item: constant.codes for item, constant in trial.parameters.constants.items()}
    return trial


def _reach(
    target: Target,
    shapes: Mapping[str, tuple[int, ...]],
    attrs: Mapping[str, Any],
    given: Mapping[str, QParams],
    constants: Mapping[str, torch.Tensor],
) -> float:
    """Return what the outputs of random codes reach, by and large: four roots of the summed squares."""
    case = build_case(target, HashChoices(0, {})).but(shapes=shapes, attrs=attrs)
    operands = {item: torch.full(shapes[item], 74.0 * float(params.scale)).double() for item, params in given.items()}
    operands |= {item: values.double() for item, values in constants.items()}
    if target.spec.error_model.kind != "bilinear":
        return float(target.reference(operands, case).abs().max()) + 1e-6
    squares = {item: values**2 for item, values in operands.items()}
    return 4 * float(target.reference(squares, case).max()) ** 0.5


def _scale(population: str, seed: int, name: str) -> float:
    if population == "powers":
        return float(2.0 ** int(integers(seed, f"{name}.power", (), -7, -1)))
    return float(np.float32(np.exp(-6 + 5 * float(uniform(seed, f"{name}.scale", ())))))


def _snapped(
    scale: float, population: str, given: Mapping[str, QParams], constants: Mapping[str, torch.Tensor]
) -> float:
    """Return an output scale: a power of two; as it is; or one whose ratio to the operands' is nearly a power of two."""
    if population == "powers":
        return float(2.0 ** round(np.log2(scale)))
    if population == "any":
        return float(np.float32(scale))
    unit = float(np.prod([float(params.scale) for params in given.values()]))
    if "weight" in constants:
        unit *= float(constants["weight"].abs().max()) / 127
    return float(np.float32(unit * 2.0 ** round(np.log2(scale / unit))))


def _uint8(scale: float, zero: int) -> QParams:
    return QParams(dtype("uint8"), torch.tensor(scale, dtype=torch.float64), torch.tensor(zero), 0, 255)


def test_a_loaded_module_keeps_its_engine(monkeypatch):
    """Between loading and running, a job of another variant may select another engine for the process."""
    monkeypatch.delenv("ATEN_CPU_CAPABILITY", raising=False)  # without vectors both engines give the same codes
    rows = np.arange(2 * 64, dtype=np.uint8).reshape(2, 64)
    made = {
        "kind": "add",
        "suffix": "",
        "channels_last": False,
        "constants": [],
        "output": [0.37, 3],
        "inputs": {"a": [0.25, 1], "b": [0.111, 7]},
    }
    job = functools.partial(Job, json.dumps(made).encode() + b"\n", {"a": rows, "b": rows[::-1].copy()})
    worker = Worker("quantizer.platforms.torch.worker")
    try:
        alone = {name: worker.run(job({"engine": name}))[0] for name in ("fbgemm", "qnnpack")}
        again = worker.run(job({"engine": "fbgemm"}))[0]
    finally:
        worker.close()
    assert not np.array_equal(alone["fbgemm"], alone["qnnpack"])
    np.testing.assert_array_equal(again, alone["fbgemm"])
