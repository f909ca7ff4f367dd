"""The flow against the errors noted of further runs of the original, whose IRs are not recorded.

Two numbers are known for each run: the largest error of the first two calibration samples, in the output's unit and in codes. Inputs
are those of the recorded runs, `RandomState(100)`; weights too come from the seeds that the recorded ones come from. A code that is one
off where the error is largest, another scale, or another order of operations shows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.unit.one_layer import SCHEMES, Array, ran

Constants = Mapping[str, Array]
SAMPLES, JUDGED = 4, 2


def spread(z: Array) -> Array:
    return z * 1.5 + 0.2


def positive(z: Array) -> Array:
    return np.abs(z) + 0.05


def wide(z: Array) -> Array:
    return 4 * z


def seeded(seed: int) -> Any:
    return np.random.RandomState(seed)  # noqa: TID251 - the recorded inputs and weights come from it


def drawn(first: int, *shapes: tuple[int, ...]) -> list[Array]:
    """Return normal numbers of the stream of seed 7 from its *first* one on, in arrays."""
    stream = seeded(7).randn(first + sum(int(np.prod(shape)) for shape in shapes))
    ends = first + np.cumsum([int(np.prod(shape)) for shape in shapes])
    return [stream[end - int(np.prod(shape)) : end].reshape(shape) for end, shape in zip(ends, shapes, strict=True)]


def products(first: int, *shape: int, times: float = 1.0) -> Constants:
    weights, biases = drawn(first, shape, shape[:1])
    return {"weights": weights * times, "biases": biases}


def filters(seed: int, *shape: int) -> Constants:
    """Return weights of unlike ranges by channel, and biases."""
    stream = seeded(seed)
    weights, ranges = stream.randn(*shape), stream.rand(shape[0]) + 0.2
    return {"weights": weights * ranges.reshape(-1, 1, 1, 1), "biases": stream.randn(shape[0])}


def affine(first: int, channels: int) -> Constants:
    weights, biases = drawn(first, (channels,), (channels,))
    return {"weights": 1 + 0.1 * weights, "biases": 0.1 * biases}


def windows(size: int, stride: int, padding: int) -> str:
    sides = "".join(f"pad_{side}={padding}\n" for side in ("left", "right", "top", "bottom"))
    return f"kernel_x={size}\nkernel_y={size}\nstride_x={stride}\nstride_y={stride}\n{sides}"


def conv(
    size: int, stride: int, padding: int, channels: int, *, dilation: int = 1, groups: int = 1, then: str = "NONE"
) -> str:
    return (
        f"{windows(size, stride, padding)}dilation_x={dilation}\ndilation_y={dilation}\ngroup={groups}\n"
        f"num_output={channels}\nwith_activation={then}\n"
    )


def average(count: str) -> str:
    return f"method=AVG\n{windows(3, 2, 1)}dilation_x=1\ndilation_y=1\ncount_include_pad={count}\nceil_mode=false\n"


@dataclass(frozen=True)
class Noted:
    """One layer, and what is noted of its four runs: default, ext, pc_asym, a16."""

    kind: str
    shape: tuple[int, ...]
    """Of the input, without the batch."""
    errors: tuple[tuple[float, float], ...]
    """In the output's unit, and in codes."""
    lines: str = ""
    constants: Constants = field(default_factory=dict)
    made: tuple[int, ...] | None = None
    """Shape of the output without the batch; None: the input's."""
    values: Callable[[Array], Array] = spread
    inputs: int = 1


IMAGE, SMALL = (6, 6, 8), (4, 4, 8)
PADS = "mode=CONSTANT\nconstant_value=0\npads=[[0,0],[1,1],[1,1],[0,0]]\n"
RESIZE = "method=BILINEAR\nmode=half_pixel\nratio_x=2.0\nratio_y=2.0\n"
SLOPE = "negative_slope_type=float32\nnegative_slope_value=0.1\n"
NORM = "epsilon=1e-05\n"


def activation(method: str, *errors: tuple[float, float], lines: str = "", values: Any = spread) -> Noted:
    return Noted("Activation", IMAGE, errors, f"method={method}\n{lines}", values=values)


def elementwise(method: str, *errors: tuple[float, float]) -> Noted:
    return Noted("Eltwise", SMALL, errors, f"method={method}\nwith_activation=NONE\n", inputs=2)


def function(kind: str, *errors: tuple[float, float], values: Any = positive) -> Noted:
    return Noted(kind, IMAGE, errors, values=values)


NOTED = {
    "conv3x3_s2_relu": Noted("Convolution", (9, 7, 3), ((10.97, 156.10), (0.2316, 2.04), (0.1772, 1.56), (0.0009179, 2.08)),
                             conv(3, 2, 1, 8, then="RELU"), filters(2, 8, 3, 3, 3), (5, 4, 8)),
    "conv_group2": Noted("Convolution", (6, 6, 4), ((4.878, 37.04), (0.2608, 1.17), (0.2274, 1.22), (0.0009577, 1.10)),
                         conv(3, 1, 1, 4, groups=2), filters(4, 4, 3, 3, 2)),
    "conv_dil2": Noted("Convolution", (9, 9, 3), ((1.621, 9.32), (0.375, 1.26), (0.2769, 1.21), (0.001313, 1.13)),
                       conv(3, 1, 2, 5, dilation=2), filters(5, 5, 3, 3, 3), (9, 9, 5)),
    "conv_one": Noted("Convolution", (1, 1, 1), ((0.282, 29.38), (0.007205, 0.61), (0.005886, 1.00), (2.289e-05, 0.50)),
                      conv(1, 1, 0, 1), filters(6, 1, 1, 1, 1)),
    "fc_relu": Noted("FullyConnected", (64,), ((0.09727, 8.77), (0.02292, 1.59), (0.02967, 2.06), (8.72e-05, 1.55)),
                     "num_output=16\nwith_activation=RELU\n", products(390, 16, 64, times=0.1), (16,)),
    "deconv": Noted("ConvTranspose", (4, 4, 3), ((1.422, 17.61), (0.1096, 1.15), (0.1237, 1.39), (0.0004199, 1.13)),
                    conv(2, 2, 0, 5), products(1574, 5, 2, 2, 3), (8, 8, 5)),
    "act_tanh": activation("TANH", (0.02418, 3.08), (0.02396, 3.06), (0.02288, 2.92), (0.005871, 192.37)),
    "act_gelu": activation("GELU", (0.7275, 17.57), (0.04693, 1.00), (0.03124, 1.29), (0.01089, 59.58)),
    "act_relu6": activation("RELU6", (0.06872, 2.92), (0.07946, 3.38), (0.06953, 2.96), (0.0003762, 4.11), values=wide),
    "act_leakyrelu": activation("LEAKYRELU", (0.7275, 17.57), (0.0298, 0.63), (0.0342, 1.35), (0.0001103, 0.60), lines=SLOPE),
    "act_clip": activation("CLIP", (0.02713, 2.31), (0.02612, 2.22), (0.0261, 2.66), (0.0001206, 2.64),
                           lines="clip_min=-1.0\nclip_max=1.5\n"),
    "exp": function("Exp", (205.5, 248.47), (9.369, 6.00), (2.071, 1.33), (2.42, 398.32), values=spread),
    "log": function("Log", (0.1265, 5.52), (0.1322, 5.74), (0.1204, 7.14), (0.007753, 86.50)),
    "sqrt": function("Sqrt", (0.1242, 17.10), (0.01617, 2.09), (0.01617, 2.09), (0.0008855, 29.35)),
    "rsqrt": function("Rsqrt", (0.2246, 13.30), (0.2686, 15.77), (0.2686, 15.77), (0.01683, 254.00)),
    "reciprocal": function("Reciprocal", (1.889, 25.98), (2.186, 29.56), (2.186, 29.56), (0.1456, 506.00)),
    "floor": function("Floor", (1.001, 26.04), (1.02, 26.00), (1.02, 26.00), (0.8125, 5324.50), values=spread),
    "elt_sub": elementwise("SUB", (1.441, 29.09), (0.05618, 1.12), (0.05095, 1.05), (0.0003781, 1.93)),
    "elt_mul": elementwise("MUL", (2.167, 31.31), (0.1289, 1.50), (0.102, 1.27), (0.0006351, 1.90)),
    "elt_max": elementwise("MAX", (1.441, 42.98), (0.03899, 0.83), (0.03953, 1.16), (0.0001591, 0.87)),
    "div": Noted("Div", SMALL, ((1.763, 14.03), (1.718, 9.99), (1.718, 9.99), (0.4523, 675.48)), values=positive, inputs=2),
    "avgpool3_pad": Noted("Pooling", (9, 9, 4), ((0.1004, 2.43), (0.0282, 0.60), (0.02818, 0.68), (0.00252, 13.79)),
                          average("true"), made=(5, 5, 4)),
    "avgpool3_nopadcount": Noted("Pooling", (9, 9, 4), ((0.141, 3.42), (0.03488, 0.74), (0.02818, 0.68), (0.003581, 19.60)),
                                 average("false"), made=(5, 5, 4)),
    "softmax_big": Noted("Softmax", (100,), ((0.0009803, 1.89), (0.001919, 1.45), (0.001919, 1.45), (0.001023, 199.28)),
                         "axis=1\n"),
    "logsoftmax": Noted("LogSoftmax", (10,), ((0.141, 1.12), (0.06547, 0.52), (0.02942, 0.47), (0.003133, 6.42)), "axis=1\n"),
    "instancenorm": Noted("InstanceNorm", IMAGE, ((0.454, 19.40), (0.07387, 2.75), (0.05609, 2.24), (0.3827, 3659.12)),
                          NORM, affine(1494, 8)),
    "groupnorm": Noted("GroupNorm", IMAGE, ((0.327, 13.06), (0.07196, 2.72), (0.07209, 2.90), (0.3763, 3648.86)),
                       f"{NORM}group=2\naxis=3\n", affine(1510, 8)),
    "rmsnorm": Noted("RMSNorm", (6, 32), ((0.6303, 0.63), (0.01885, 0.02), (0.01826, 0.02), (0.001842, 0.00)),
                     f"{NORM}axis=[2]\n", {"weights": 1 + 0.1 * drawn(1542, (32,))[0]}),
    "reduce_sum": Noted("Reduce", IMAGE, ((2.331, 26.19), (0.1364, 1.28), (0.09426, 0.97), (0.0004556, 1.09)),
                        "method=SUM\naxis=[3]\n", made=(6, 6, 1)),
    "pad": Noted("Pad", (4, 4, 3), ((0.4244, 19.06), (0.01643, 0.49), (0.01543, 0.50), (6.306e-05, 0.49)), PADS, made=(6, 6, 3)),
    "resize_bilinear": Noted("Resize", (4, 4, 3), ((0.3256, 14.63), (0.02881, 0.86), (0.02928, 0.94), (0.0001161, 0.89)),
                             RESIZE, made=(8, 8, 3)),
}  # fmt: skip
CONV3X3 = Noted("Convolution", (8, 8, 4), (), conv(3, 1, 1, 6), filters(1, 6, 3, 3, 4), (8, 8, 6))
PRODUCTS = Noted("FullyConnected", (32,), (), "num_output=10\nwith_activation=NONE\n", products(60, 10, 32), (10,))
BY_CHANNEL = {"quantize_method_for_weight": "per_channel_asymmetric"}
BOTH = {**BY_CHANNEL, "quantize_method_for_activation": "per_tensor_asymmetric"}


def largest_error(folder: Path, layer: Noted, **cfg: object) -> tuple[float, float]:
    """Return the largest error of the judged samples, in the output's unit and in codes."""
    stream = seeded(100)
    drawn_values = [stream.randn(SAMPLES, *layer.shape) for _ in range(layer.inputs)]
    inputs = [list(layer.values(values).astype(np.float32)[:, None]) for values in drawn_values]
    constants = {key: values.astype(np.float32) for key, values in layer.constants.items()}
    made = ran(folder, layer.kind, inputs, [(1, *(layer.made or layer.shape))], layer.lines, constants, **cfg).work
    params = made.quantized_graph.tensor("y0").qparams
    zero, steps = (
        (0.0, 1.0) if params is None or params.steps is None else (float(params.zero_point), float(params.steps))
    )
    worst = 0.0
    for number in range(JUDGED):
        feeds = {f"x{place}": torch.from_numpy(samples[number]) for place, samples in enumerate(inputs)}
        wanted, codes = (
            next(values for name, _, values in made.runs.forward(graph, feeds) if name == "y0").double()
            for graph in (made.float_graph, made.quantized_graph)
        )
        worst = max(worst, float(((codes - zero) / steps - wanted).abs().max()))
    return worst, worst * steps


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("name", NOTED)
def test_errors_equal_those_of_the_original(tmp_path: Path, name: str, scheme: str) -> None:
    real, codes = NOTED[name].errors[list(SCHEMES).index(scheme)]
    got = largest_error(tmp_path, NOTED[name], **SCHEMES[scheme])
    assert got[0] == pytest.approx(real, rel=1e-3)
    assert got[1] == pytest.approx(codes, abs=0.011)


@pytest.mark.parametrize(
    ("layer", "cfg", "codes", "half_digit"),
    [
        (CONV3X3, BY_CHANNEL, 1.5, 0.05),
        (PRODUCTS, BY_CHANNEL, 0.7, 0.05),
        (CONV3X3, BOTH, 42.9, 0.06),
        (PRODUCTS, BOTH, 62.0, 0.05),
        (CONV3X3, {"weight_bits": 4}, 11, 0.5),
        (PRODUCTS, {"weight_bits": 4}, 10, 0.5),
        (CONV3X3, {"activation_bits": 12}, 8, 0.5),
        (PRODUCTS, {"activation_bits": 12}, 8, 0.5),
        (activation("SIGMOID"), {"activation_bits": 16, "lut_items_in_bits": 12}, 24, 0.5),
        (activation("SIGMOID"), {"activation_bits": 16, "lut_items_in_bits": 16}, 1.9, 0.05),
    ],
)
def test_errors_under_other_settings(
    tmp_path: Path, layer: Noted, cfg: Mapping[str, object], codes: float, half_digit: float
) -> None:
    assert largest_error(tmp_path, layer, **cfg)[1] == pytest.approx(codes, abs=half_digit)
