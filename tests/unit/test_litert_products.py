"""Platforms of LiteRT against its kernels: convolutions, fully connected layers and matrix products.

Codes over the whole range under scales that are powers of two (exact ties) or any float32 numbers; channels around the
widths of vectors, which no spec's domain reaches.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from quantizer.conformance.checks.arithmetic import arithmetic
from quantizer.conformance.generation.builder import build_case
from quantizer.conformance.generation.choice_sources import HashChoices
from quantizer.conformance.generation.hashing import integers, uniform
from quantizer.conformance.target import Target
from quantizer.conformance.trials.trial import Trial
from quantizer.core.dtypes import integer
from quantizer.core.errors import RefusedError
from quantizer.core.library import load_library
from quantizer.numerics.qparams import QParams
from quantizer.numerics.request import Request
from quantizer.ops import load_built_ins
from quantizer.runtime.engines.builtin import BuiltinEngine
from quantizer.runtime.engines.catalogue import Chosen
from quantizer.runtime.engines.external import ExternalEngine

load_built_ins()
LIBRARY = load_library()
PLATFORMS = ["tflite_ref", "tflite_builtin", "xnnpack"]
OPS = ["conv1d", "conv2d", "depthwise_conv2d", "conv_transpose2d", "fully_connected", "matmul"]
ITEMS = [
    f"{op}-{scheme}-{platform}"
    for platform in PLATFORMS
    for op in OPS
    for scheme in LIBRARY.schemes_for(LIBRARY.spec(op), LIBRARY.platform(platform))
]
CHANNELS = (1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 24, 31, 33)
CROPS = ((0, 0, 0, 0), (0, 0, 1, 1), (1, 1, 1, 1), (0, 1, 1, 0))
COUNT = 6
"""Cases of each item and population."""
ENGINE = ExternalEngine(Chosen("litert"))


class Draw:
    """Numbers hashed from a seed, a name and how many there were before."""

    def __init__(self, seed: int, name: str) -> None:
        self._seed, self._name, self._count = seed, name, 0

    def integers(self, low: int, stop: int, shape: tuple[int, ...] = ()) -> Any:
        """Return whole numbers from *low*, below *stop*."""
        self._count += 1
        return integers(self._seed, f"{self._name}.{self._count}", shape, low, stop - 1)

    def integer(self, low: int, stop: int) -> int:
        """Return one of them."""
        return int(self.integers(low, stop))

    def uniform(self, low: float = 0.0, high: float = 1.0) -> float:
        """Return a real number from *low* to *high*."""
        self._count += 1
        return low + (high - low) * float(uniform(self._seed, f"{self._name}.{self._count}", ()))

    def several(self, low: int, stop: int, count: int) -> list[int]:
        """Return a list of whole numbers."""
        return [self.integer(low, stop) for _ in range(count)]


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
    ENGINE.close()


@pytest.mark.parametrize("powers", [True, False], ids=["powers", "any"])
@pytest.mark.parametrize("item", ITEMS)
def test_codes_equal_the_kernel_and_pass_the_checks(item: str, powers: bool) -> None:  # noqa: FBT001
    compared = inside = 0
    for seed in range(COUNT):
        own = trial_of(item, Draw(seed, item), powers=powers)
        real = Trial(own.target, own.case, ENGINE)
        real.tensors, real.parameters, real.codes = own.tensors, own.parameters, own.codes
        assert np.array_equal(own.got, real.got), (seed, own.case.to_json(), np.argwhere(own.got != real.got)[:3])
        assert arithmetic(real).status == "pass", (seed, own.case.to_json())
        compared += own.got.size
        inside += np.count_nonzero((own.got > own.output.qmin) & (own.got < own.output.qmax))
    assert compared > 10 * COUNT
    assert inside > compared / 8, "most outputs saturate"


def test_tie_rounding_depends_on_the_number_of_channels() -> None:
    """Ties of negative sums: half up in whole eights of channels, away from zero after them."""
    found = {o: _biased("depthwise_conv2d", "tflite_builtin", o, -6).tolist() for o in (7, 8, 11)}
    assert found[7] == [-2] * 7
    assert found[8] == [-1] * 8
    assert found[11] == [-1] * 8 + [-2] * 3


def test_a_right_operand_with_zero_point_0_goes_to_the_delegate() -> None:
    """XNNPACK takes a matrix product only then; elsewhere the kernel without a delegate runs."""
    variants = set()
    for seed in range(12):
        trial = trial_of("matmul-a8-xnnpack", Draw(seed, "b"), powers=False)
        assert trial.parameters.rescale is not None
        variants.add((int(trial.parameters.inputs["b"].zero_point) == 0, trial.parameters.rescale.variant))
    assert variants == {(True, "f32_even"), (False, "q31_double")}


@pytest.mark.parametrize("zero", [-43, -10, 81])
@pytest.mark.parametrize("platform", PLATFORMS)
def test_the_limit_of_relu6_is_quantized_as_the_platform_declares(platform: str, zero: int) -> None:
    """6 in steps of 4 is a tie; only the delegate adds the zero point before it rounds."""
    target = Target(LIBRARY.spec("fully_connected"), LIBRARY.scheme("w8a8"), LIBRARY.platform(platform))
    shapes = {"x": (1, 1), "weight": (1, 1), "bias": (1,)}
    constants = {"weight": torch.full((1, 1), 127.0), "bias": torch.full((1,), 100.0)}
    codes = {"x": torch.zeros(shapes["x"], dtype=torch.int64)}
    trial = _trial(
        target, shapes, {}, _params(target, 4.0, zero), {"x": _params(target, 1.0, 0)}, codes, constants, "relu6"
    )
    real = int(ENGINE.run(trial.call, trial.codes, trial.parameters).codes)
    assert real == int(trial.got.item()) == (round(1.5 + zero) if platform == "xnnpack" else 2 + zero)
    assert arithmetic(trial).status == "pass"


@pytest.mark.parametrize("item", [item for item in ITEMS if "matmul" not in item and "conv1d" not in item])
def test_sums_of_any_size_under_any_multiplier(item: str) -> None:
    """Biases alone: sums near ties and up to 2**31, multipliers from 2**-24 to beyond what a shift can do."""
    op, scheme, platform = item.split("-")
    target = Target(LIBRARY.spec(op), LIBRARY.scheme(scheme), LIBRARY.platform(platform))
    window = {"stride": (1, 1), "padding": (0, 0, 0, 0), "dilation": (1, 1)}
    attrs = {
        "conv2d": window | {"groups": 1},
        "depthwise_conv2d": window,
        "conv_transpose2d": window | {"groups": 1, "output_padding": (0, 0)},
        "fully_connected": {},
    }[op]
    one = (1, 1, *[1] * (0 if op == "fully_connected" else 2))
    most = 7.0 if platform == "xnnpack" else 38.0
    for seed in range(1, 8):
        draw, channels = Draw(seed, item), (1, 67)[seed % 2]
        x = _params(target, _scale(draw, -1, 0, powers=False), 0 if "a16" in scheme else draw.integer(-128, 128))
        y = _params(target, _scale(draw, -4, 3, powers=False), 0 if "a16" in scheme else -7)
        assert target.scheme.weight is not None
        exponents = [draw.uniform(-24, 0 if seed < 4 else most) for _ in range(channels)]
        ratios = torch.exp2(torch.tensor(exponents, dtype=torch.float64))
        scales = (ratios * y.scale / x.scale).float()
        if target.scheme.weight.granularity != "channel":
            scales, ratios = scales[:1].expand(channels), ratios[:1].expand(channels)
        largest = (1 << (target.scheme.weight.bits - 1)) - 1
        sums = (torch.from_numpy(draw.integers(-120, 120, (channels,))) + 0.5) / ratios
        if seed in (3, 6, 7):
            sums = torch.exp2(torch.tensor([draw.uniform(15, 31) for _ in range(channels)], dtype=torch.float64))
        top = 2.0**26 if (op, scheme, platform) == ("fully_connected", "w4a8", "xnnpack") else 2.0**31 - 1
        bias = sums.clamp(-top, top) * scales.double() * float(x.scale)
        wide = (channels, *one[1:])
        constants = {"weight": (scales * largest).reshape(wide), "bias": bias.float()}
        shapes = {"x": one, "weight": wide, "bias": (channels,)}
        codes = {"x": torch.full(one, int(x.zero_point))}
        own = _trial(target, shapes, attrs, y, {"x": x}, codes, constants)
        try:
            real = ENGINE.run(own.call, own.codes, own.parameters).codes.numpy()
        except RefusedError:
            continue
        assert np.array_equal(own.got, real), (seed, np.argwhere(own.got != real)[:3])
        assert arithmetic(own).status in ("pass", "inconclusive"), arithmetic(own)


def trial_of(item: str, rng: Draw, *, powers: bool) -> Trial:
    """Return a trial on random codes; a bias is absent from two cases in five."""
    op, scheme, platform = item.split("-")
    target = Target(LIBRARY.spec(op), LIBRARY.scheme(scheme), LIBRARY.platform(platform))
    shapes, attrs = _drawn(op, rng)
    if rng.uniform() < 0.4:
        shapes.pop("bias", None)
    wide = target.scheme.activation.bits > 8
    given, codes, step = {}, {}, 1.0
    for name in target.spec.activations:
        zero = 0 if wide or (name == "b" and rng.uniform() < 0.4) else rng.integer(-128, 128)
        given[name] = _params(target, _scale(rng, -8, 0, powers=powers), zero)
        codes[name] = torch.from_numpy(rng.integers(given[name].qmin, given[name].qmax + 1, shapes[name]))
        step *= float(given[name].scale)
    constants, weight_step, taps = {}, float(given["b"].qmax) if op == "matmul" else 1.0, shapes.get("b", (1,))[0]
    if target.scheme.weight is not None:
        constants, weight_step = _constants(target, shapes, step, rng, powers=powers)
        taps = int(np.prod(shapes["weight"])) // shapes["weight"][0]
    spread = 2.0 ** rng.uniform(-2, 1) * float(np.sqrt(taps)) / 2
    y = _near(step * weight_step * spread, powers=powers)
    output = _params(target, y, 0 if wide else rng.integer(-90, 91))
    activation = ("none", "relu", "relu6")[rng.integer(0, 3)] if op != "matmul" else "none"
    return _trial(target, shapes, attrs, output, given, codes, constants, activation)


def _trial(
    target: Target,
    shapes: dict[str, Any],
    attrs: dict[str, Any],
    y: QParams,
    given: dict[str, QParams],
    codes: dict[str, torch.Tensor],
    constants: dict[str, torch.Tensor],
    activation: str = "none",
) -> Trial:
    """Return a trial of our engine under exactly these parameters."""
    ends = tuple(float(y.scale) * (end - int(y.zero_point)) for end in (y.qmin, y.qmax))
    request = Request(
        target.spec, target.scheme, target.platform, shapes, attrs, {"y": ends}, constants, given, activation
    )
    trial = Trial(
        target,
        build_case(target, HashChoices(0, {"data": "random"})).but(
            shapes=shapes, attrs=attrs, activation=activation, order="channels_first"
        ),
        BuiltinEngine(),
    )
    trial.tensors, trial.parameters = constants, trial.engine.quantize(request)
    trial.codes = {**codes, **{name: constant.codes for name, constant in trial.parameters.constants.items()}}
    return trial


def _constants(
    target: Target, shapes: dict[str, Any], step: float, rng: Draw, *, powers: bool
) -> tuple[dict[str, torch.Tensor], float]:
    """Return weights on codes of scales that are drawn, a bias, and the median of scale times code."""
    assert target.scheme.weight is not None
    shape, largest = shapes["weight"], (1 << (target.scheme.weight.bits - 1)) - 1
    own = target.scheme.weight.granularity == "channel"
    scales = (
        np.array([_scale(rng, -6, -4, powers=powers) for _ in range(shape[0])]) if own else np.full(shape[0], 2.0**-5)
    )
    codes = rng.integers(-largest, largest + 1, shape)
    codes.reshape(shape[0], -1)[:, 0] = largest
    weight = torch.from_numpy((codes * scales.reshape(-1, *[1] * (len(shape) - 1))).astype(np.float32))
    found = {"weight": weight}
    if "bias" in shapes:
        units = np.resize(scales, shapes["bias"]) * step
        found["bias"] = torch.from_numpy(
            (rng.integers(-30 * largest, 30 * largest, shapes["bias"]) * units).astype(np.float32)
        )
    return found, float(np.median(scales)) * largest


def _drawn(op: str, rng: Draw) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return shapes and attributes, some of which LiteRT's own paddings have."""
    c, o = (CHANNELS[place] for place in rng.several(0, len(CHANNELS), 2))
    if op == "fully_connected":
        return {"x": (rng.integer(1, 6), c), "weight": (o, c), "bias": (o,)}, {}
    if op == "matmul":
        batch = tuple(rng.several(1, 3, rng.integer(0, 3)))
        return {"a": (*batch, rng.integer(1, 9), c), "b": (*batch[len(batch) // 2 :], c, o)}, {}
    rank = 1 if op == "conv1d" else 2
    groups = max(1, rng.integer(0, 4)) if op != "depthwise_conv2d" else 1
    kernel, stride, dilation = (rng.several(1, top, rank) for top in (4, 4, 3))
    size = [(k - 1) * d + rng.integer(1, 7) for k, d in zip(kernel, dilation, strict=True)]
    padding = rng.several(0, 3, 2 * rank) if rng.uniform() < 0.4 else [0] * 2 * rank
    attrs: dict[str, Any] = {"stride": tuple(stride), "padding": tuple(padding), "dilation": tuple(dilation)}
    n = rng.integer(1, 3)
    if op == "depthwise_conv2d":
        o = c * rng.integer(1, 4)
        return {"x": (n, c, *size), "weight": (o, 1, *kernel), "bias": (o,)}, attrs
    attrs["groups"] = groups
    c, o = max(1, c // groups), max(1, o // groups)
    shapes = {"x": (n, c * groups, *size), "weight": (o * groups, c, *kernel), "bias": (o * groups,)}
    if op == "conv_transpose2d":
        attrs |= {
            "output_padding": tuple(rng.integer(0, s) for s in stride),
            "padding": CROPS[rng.integer(0, len(CROPS))],
        }
        shapes["weight"] = (o, c * groups, *kernel)
        shapes["x"] = (n, c * groups, size[0] + 2, size[1] + 2)
    return shapes, attrs


def _biased(op: str, platform: str, channels: int, total: int) -> np.ndarray[Any, Any]:
    """Return a kernel's codes of *channels* sums that are *total*, a quarter of a code each."""
    target = Target(LIBRARY.spec(op), LIBRARY.scheme("w8a8"), LIBRARY.platform(platform))
    shapes = {"x": (1, 1, 1, 1), "weight": (channels, 1, 1, 1), "bias": (channels,)}
    constants = {"weight": torch.full((channels, 1, 1, 1), 127.0), "bias": torch.full((channels,), float(total))}
    x, attrs = _params(target, 1.0, 0), {"stride": (1, 1), "padding": (0,) * 4, "dilation": (1, 1)}
    codes = {"x": torch.zeros(shapes["x"], dtype=torch.int64)}
    own = _trial(target, shapes, attrs, _params(target, 4.0, 0), {"x": x}, codes, constants)
    real: np.ndarray[Any, Any] = ENGINE.run(own.call, own.codes, own.parameters).codes.numpy()
    assert np.array_equal(own.got, real)
    return real.reshape(-1)


def _params(target: Target, scale: float, zero: int) -> QParams:
    bits = target.scheme.activation.bits
    least = -(1 << (bits - 1)) + int(bits > 8 and target.scheme.activation.range == "restricted")
    return QParams(
        integer(bits, signed=True),
        torch.tensor(scale, dtype=torch.float64),
        torch.tensor(zero),
        least,
        (1 << (bits - 1)) - 1,
    )


def _scale(rng: Draw, low: float, high: float, *, powers: bool) -> float:
    return _near(2.0 ** rng.uniform(low, high), powers=powers)


def _near(number: float, *, powers: bool) -> float:
    return 2.0 ** round(np.log2(number)) if powers else float(np.float32(number))
