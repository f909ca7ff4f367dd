"""Fused activations that take numbers, in every layer that has them: restated in numpy from the formulas of Compass."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from quantizer.core.errors import GraphError, UnsupportedError
from tests.unit.one_layer import SCHEMES, Array, Ran, noise, ran

SLOPES = np.array([0.25, -0.125, 0.5, 1.5], np.float32)
LINES = {
    "CLIP": "clip_min=-1.5\nclip_max=4.0\n",
    "LEAKYRELU": "negative_slope_value=0.1\n",
    "PRELU": "",
    "RELU": "",
    "RELU6": "",
}
X = [noise(1, 3, 4, 2, seed=0), noise(1, 3, 4, 2, seed=5)]
ROWS = [noise(3, 5, seed=0), noise(3, 5, seed=3)]
FOURS = [noise(1, 2, 3, 4, seed=1), noise(1, 2, 3, 4, seed=2)]
OTHERS = [3 * noise(1, 2, 3, 4, seed=8), 3 * noise(1, 2, 3, 4, seed=9)]


def layer(folder: Path, kind: str, activation: str, lines: str | None = None, **cfg: object) -> Ran:
    """Return a layer of four channels with a fused activation; *lines* of the layer instead of the usual ones."""
    tail = f"with_activation={activation}\n" + (LINES[activation] if lines is None else lines)
    more = {"negative_slope": SLOPES} if activation == "PRELU" else {}
    match kind:
        case "Convolution":
            given = {"weights": noise(4, 2, 2, 2, seed=4) / 6, "biases": noise(4)} | more
            sizes = "kernel_x=2\nkernel_y=2\nstride_x=1\nstride_y=1\npad_left=0\npad_right=0\npad_top=0\npad_bottom=0\n"
            sizes += "dilation_x=1\ndilation_y=1\ngroup=1\nnum_output=4\n"
            return ran(folder, kind, [X], [(1, 2, 3, 4)], sizes + tail, given, **cfg)
        case "FullyConnected":
            given = {"weights": noise(4, 5, seed=4) / 6, "biases": noise(4)} | more
            return ran(folder, kind, [ROWS], [(3, 4)], "num_output=4\n" + tail, given, **cfg)
        case "BatchNorm":
            given = {"weights": noise(4, seed=4), "biases": noise(4)} | more
            return ran(folder, kind, [FOURS], [(1, 2, 3, 4)], "axis=3\n" + tail, given, **cfg)
        case _:
            return ran(folder, "Eltwise", [FOURS, OTHERS], [(1, 2, 3, 4)], f"method={kind}\n" + tail, more, **cfg)


def summed(made: Ran, kind: str) -> Array:
    """Return the sums before the activation, of the codes that were read and of the numbers in the file."""
    codes = [values.astype(np.int64) for values in made.inputs]
    if kind in ("ADD", "SUB", "MUL", "MAX", "MIN"):
        a, b = (code + made.zero(name) for code, name in zip(codes, ("x0", "x1"), strict=True))
        if kind == "MUL":
            return a * b
        _, k_a, k_b = made.params["scale_value"]
        f: Any = {"ADD": np.add, "SUB": np.subtract, "MAX": np.maximum, "MIN": np.minimum}[kind]
        return np.asarray(f(a * k_a, b * k_b))
    weights = made.constants["weights"][1].astype(np.int64)
    biases = made.constants["biases"][1].astype(np.int64)
    if kind == "BatchNorm":
        return (codes[0].astype(np.float32) * weights.astype(np.float32) + biases.astype(np.float32)).astype(np.int64)
    if kind == "FullyConnected":
        return codes[0] @ weights.T + biases
    spots = [(i, j) for i in range(2) for j in range(2)]
    return np.asarray(sum(codes[0][:, i : i + 2, j : j + 3] @ weights[:, i, j].T for i, j in spots) + biases)


def ratio(made: Ran, shift: int = 0) -> Array:
    if isinstance(made.params.get("scale_value"), tuple):
        return np.asarray(float(made.params["scale_value"][0]) * 2.0 ** (shift - made.params["shift_value"]))
    return made.ratio(shift=shift)


def sloped(acc: Array, slopes: Array, places: int, kind: str) -> Array:
    """Return sums of which those below 0 are multiplied and rounded; what a BatchNorm has is rounded to float32."""
    held = np.rint(np.minimum(acc, 0) * slopes * 2.0**-places) + np.maximum(acc, 0)
    return held.astype(np.float32).astype(np.float64) if kind == "BatchNorm" else held


def codes_of(made: Ran, held: Array, gain: Array) -> Array:
    low, high = made.ends("y0")
    return np.clip(np.rint(held * gain) - made.zero("y0"), low, high).astype(np.int64)


LAYERS = ("Convolution", "FullyConnected", "BatchNorm", "ADD", "SUB", "MUL", "MAX", "MIN")


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("kind", LAYERS)
def test_leaky_relu_rounds_twice(tmp_path: Path, kind: str, scheme: str) -> None:
    """The slope has as many places as the output has bits; sums below 0 are multiplied with it and rounded, then all sums."""
    made = layer(tmp_path, kind, "LEAKYRELU", **SCHEMES[scheme])
    bits = int(SCHEMES[scheme].get("activation_bits", 8))  # type: ignore[call-overload]
    slope = round(0.1 * 2**bits)
    assert made.params["negative_slope_value"] == slope
    assert str(made.params["negative_slope_type"]) == ("uint8" if bits == 8 else "uint16")
    own = [key for key in made.params if not key.startswith(("weights_", "biases_"))]
    assert own[-2] == "negative_slope_type"
    assert made.ends("y0")[0] < 0
    held = sloped(summed(made, kind), np.float64(slope), bits, kind)
    assert np.array_equal(made.outputs[0], codes_of(made, held, ratio(made)))


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("kind", ["Convolution", "FullyConnected", "BatchNorm", "ADD", "MUL"])
def test_prelu_has_slopes_of_12_places(tmp_path: Path, kind: str, scheme: str) -> None:
    """A constant of int16, one number for each channel, whatever the width of the codes."""
    made = layer(tmp_path, kind, "PRELU", **SCHEMES[scheme])
    dtype, slopes = made.constants["negative_slope"]
    assert dtype == "int16"
    assert slopes.tolist() == np.rint(SLOPES * 2**12).tolist()
    assert made.params["negative_slope_shift"] == 12
    held = sloped(summed(made, kind), slopes.astype(np.float64), 12, kind)
    assert np.array_equal(made.outputs[0], codes_of(made, held, ratio(made)))


@pytest.mark.parametrize("scheme", [*SCHEMES, "asym12"])
@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("ends", [(-1.5, 4.0), (1.0, 4.0)])
def test_clip_clamps_between_two_roundings(tmp_path: Path, kind: str, scheme: str, ends: tuple[float, float]) -> None:
    """Bounds are codes of eight bits more, by the scale of the range that is clamped to them; of over eight bits none more."""
    own = {"quantize_method_for_activation": "per_tensor_asymmetric", "activation_bits": 12}
    cfg: Any = SCHEMES.get(scheme, own)
    made = layer(tmp_path, kind, "CLIP", "clip_min={}\nclip_max={}\n".format(*ends), **cfg)
    bits = int(cfg.get("activation_bits", 8))
    relay = 8 if bits == 8 else 0
    span = made.work.ranges["y0"]
    low, high = (np.float32(min(max(end, ends[0]), ends[1])) for end in (span.low, span.high))
    largest = 2**bits - 1
    asymmetric = str(cfg.get("quantize_method_for_activation", "")).endswith("asymmetric")
    if asymmetric:
        width = np.float32(high - low)
        scale = np.float32(largest) / (width if width >= np.finfo(np.float32).eps else np.float32(largest))
        lowest = 0 if ends[0] >= 0 else -(2 ** (bits - 1))
        zero = np.clip(np.rint(scale * low) - lowest, 1 - 2 ** (bits - 1), 2 ** (bits - 1) - 1)
    else:
        width = np.float32(max(abs(low), abs(high)) * np.float32(1 if ends[0] >= 0 else 2))
        scale, zero = np.float32(largest) / width, np.float32(0)
    bounds = [int(np.rint(np.float32(end) * (scale * np.float32(2**relay)) - (0 if relay else zero))) for end in ends]
    assert [made.params["clip_min"], made.params["clip_max"]] == bounds
    assert (made.ends("y0")[0] == 0) == (ends[0] >= 0)
    held = np.clip(np.rint(summed(made, kind) * ratio(made, relay)), *bounds)
    assert np.array_equal(made.outputs[0], codes_of(made, held, np.asarray(2.0**-relay)))


@pytest.mark.parametrize("activation", ["RELU", "RELU6"])
def test_a_batch_norm_fuses_rectifiers(tmp_path: Path, activation: str) -> None:
    made = layer(tmp_path, "BatchNorm", activation)
    held = np.maximum(summed(made, "BatchNorm"), 0)
    assert made.ends("y0") == (0, 255)
    assert np.array_equal(made.outputs[0], codes_of(made, held, ratio(made)))


@pytest.mark.parametrize(
    ("shape", "kept"),
    [((4,), (4,)), ((1,), (1,)), ((1, 1, 1, 4), (1, 1, 4)), ((1, 1, 4), (1, 1, 4)), ((3, 1, 1, 1), (1, 1, 1))],
)
def test_a_first_axis_of_equal_slopes_is_dropped(tmp_path: Path, shape: tuple[int, ...], kept: tuple[int, ...]) -> None:
    """A first axis of equal slices goes where the slopes have as many axes as the input."""
    slopes = np.broadcast_to(SLOPES if shape[-1] == 4 else SLOPES[:1], shape).copy()
    made = ran(
        tmp_path,
        "Eltwise",
        [FOURS, OTHERS],
        [(1, 2, 3, 4)],
        "method=ADD\nwith_activation=PRELU\n",
        {"negative_slope": slopes},
    )
    assert made.constants["negative_slope"][1].shape == kept


def test_errors_name_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(GraphError, match="CLIP without clip_min: write clip_min"):
        layer(tmp_path, "ADD", "CLIP", "clip_max=2.0\n")
    with pytest.raises(GraphError, match="PRELU without constant 'negative_slope'"):
        ran(tmp_path, "Eltwise", [FOURS, OTHERS], [(1, 2, 3, 4)], "method=ADD\nwith_activation=PRELU\n")
    with pytest.raises(GraphError, match="one slope, or one for each channel"):
        ran(
            tmp_path,
            "Eltwise",
            [FOURS, OTHERS],
            [(1, 2, 3, 4)],
            "method=ADD\nwith_activation=PRELU\n",
            {"negative_slope": noise(2, 3, 4)},
        )
    with pytest.raises(UnsupportedError, match="slope below 0 turns the order"):
        layer(tmp_path, "MAX", "PRELU")
