"""ncnn on the processor, in float32 without Winograd's transforms: dequantize, one layer, quantize.

ncnn has no batch: a case of several images runs the layer once for each. Storage in 16 bits is off.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import ncnn
import numpy as np

NAME, VERSION, FORM, FLOATS = "ncnn", ncnn.__version__, "npz", True
Made = Mapping[str, Any]
Array = Any
OFF = (
    "use_winograd_convolution",
    "use_fp16_packed",
    "use_fp16_storage",
    "use_fp16_arithmetic",
    "use_bf16_packed",
    "use_bf16_storage",
    "use_vulkan_compute",
)
BINARY = {"add": 0, "sub": 1, "mul": 2, "div": 3, "maximum": 4, "minimum": 5}
UNARY = {
    "abs": 0,
    "negative": 1,
    "floor": 2,
    "ceil": 3,
    "square": 4,
    "sqrt": 5,
    "rsqrt": 6,
    "exp": 7,
    "log": 8,
    "sine": 9,
    "cosine": 10,
    "atan": 14,
    "reciprocal": 15,
}
PLAIN = {"sigmoid": "Sigmoid", "tanh": "TanH", "silu": "Swish", "mish": "Mish", "erf": "Erf", "relu": "ReLU"}
WITH: Mapping[str, Callable[[Made], str]] = {
    "leaky_relu": lambda attrs: f"ReLU 0={attrs['slope']!r}",
    "elu": lambda attrs: f"ELU 0={attrs['alpha']!r}",
    "clip": lambda attrs: f"Clip 0={float(attrs['low'])!r} 1={float(attrs['high'])!r}",
    "gelu": lambda attrs: f"GELU 0={int(attrs['approximate'] == 'tanh')}",
    "hard_swish": lambda _: f"HardSwish 0={1 / 6!r} 1=0.5",
}
REDUCTIONS = {"reduce_sum": 0, "reduce_mean": 3, "reduce_max": 4, "reduce_min": 5}
IMAGES = (
    "conv2d",
    "depthwise_conv2d",
    "conv_transpose2d",
    "max_pool2d",
    "avg_pool2d",
    "global_avg_pool2d",
    "global_max_pool2d",
)
OPERATORS = [*BINARY, *UNARY, *PLAIN, *WITH, *REDUCTIONS, *IMAGES, "fully_connected", "softmax"]
ACTIVATIONS: Mapping[str, Callable[[Array], Array]] = {
    "none": lambda y: y,
    "relu": lambda y: np.maximum(y, 0),
    "relu6": lambda y: np.clip(y, 0, 6),
}


def layer(made: Made, shapes: Mapping[str, tuple[int, ...]]) -> str:
    """Return the layer and its parameters in the form of a .param file, without names."""
    op, attrs = made["op"], made["attrs"]
    if op in BINARY:
        return f"BinaryOp 0={BINARY[op]}"
    if op in UNARY:
        return f"UnaryOp 0={UNARY[op]}"
    if op in PLAIN:
        return PLAIN[op]
    if op in WITH:
        return WITH[op](attrs)
    if op == "softmax":
        return f"Softmax 0={attrs['axis']} 1=1"
    if op == "fully_connected":
        out, size = shapes["weight"]
        return f"InnerProduct 0={out} 1={int('bias' in shapes)} 2={out * size}"
    if op in REDUCTIONS:
        axes = attrs["axes"]
        # an array of parameter 3 has the key -23300 - 3
        chosen = f"-23303={len(axes)},{','.join(map(str, axes))}"
        return f"Reduction 0={REDUCTIONS[op]} 1=0 {chosen} 4={int(attrs['keepdims'])} 5=1"
    if op in ("global_avg_pool2d", "global_max_pool2d"):
        return f"Pooling 0={int(op == 'global_avg_pool2d')} 4=1"
    return _windowed(made, shapes)


def _windowed(made: Made, shapes: Mapping[str, tuple[int, ...]]) -> str:
    """Return a pool or a convolution; ncnn names the width first."""
    op, attrs = made["op"], made["attrs"]
    top, left, bottom, right = attrs["padding"]
    (sh, sw), mode = attrs["stride"], 1
    if op in ("max_pool2d", "avg_pool2d"):
        if attrs["ceil_mode"]:
            raise NotImplementedError("a window that begins in the padding counts or not by rules of ncnn's own")
        kh, kw = attrs["kernel"]
        pads = f"3={left} 13={top} 14={right} 15={bottom}"
        average = f" 6={int(attrs['count_include_pad'])}" if op == "avg_pool2d" else ""
        return f"Pooling 0={int(op == 'avg_pool2d')} 1={kw} 11={kh} 2={sw} 12={sh} {pads} 5={mode}{average}"
    out, inner, kh, kw = shapes["weight"]
    dh, dw = attrs["dilation"]
    groups = attrs.get("groups", shapes["x"][1])
    sizes = f"0={out} 1={kw} 11={kh} 2={dw} 12={dh} 3={sw} 13={sh} 4={left} 14={top} 15={right} 16={bottom}"
    rest = f"{sizes} 5={int('bias' in shapes)} 6={out * inner * kh * kw}"
    if op == "conv_transpose2d":
        if groups != 1:
            raise NotImplementedError("a grouped transposed convolution has weights in another order")
        more, wider = attrs["output_padding"]
        return f"Deconvolution {rest} 18={wider} 19={more}"
    return f"Convolution {rest}" if groups == 1 else f"ConvolutionDepthWise {rest} 7={groups}"


def _real(codes: Array, known: Made | None) -> Array:
    if known is None:
        return codes
    scale, zero = np.array(known["scale"], np.float32), np.array(known["zero_point"], np.int64)
    if scale.ndim:
        shape = [-1 if axis == (known["axis"] or 0) else 1 for axis in range(codes.ndim)]
        scale, zero = scale.reshape(shape), zero.reshape(shape)
    return (codes.astype(np.int64) - zero).astype(np.float32) * scale


def net_of(line: str, inputs: list[str], weights: bytes) -> Any:
    """Return a net of one layer."""
    kind, _, numbers = line.partition(" ")
    rows = [f"Input {name} 0 1 {name}" for name in inputs]
    rows.append(f"{kind} one {len(inputs)} 1 {' '.join(inputs)} y {numbers}")
    net = ncnn.Net()
    for name in OFF:
        setattr(net.opt, name, False)
    net.opt.num_threads = 1
    # 7767517 is the magic number of .param files
    text = "\n".join(["7767517", f"{len(rows)} {len(inputs) + 1}", *rows]) + "\n"
    if net.load_param_mem(text):
        raise NotImplementedError(f"ncnn loads no {line}")
    # a layer without weights still needs a buffer
    net.load_model_mem(weights or bytes(4))
    return net


def load(model: bytes, options: dict[str, Any]) -> Any:
    """Return the case. Its net is created when the weights arrive, together with the codes."""
    return json.loads(model)


def run(session: Any, feeds: dict[str, Any]) -> list[Any]:
    """Return the output."""
    made = session
    values = {name: _real(feeds[name], made["inputs"].get(name)) for name in feeds if not name.startswith("table ")}
    constants = [values.pop(name) for name in ("weight", "bias") if name in values]
    shapes = {name: feeds[name].shape for name in feeds}
    # four zero bytes mark float32 weights; a bias has no mark
    weights = b"".join((b"" if place else bytes(4)) + v.astype("<f4").tobytes() for place, v in enumerate(constants))
    if made["op"] in BINARY:
        rank = len(made["output"]["shape"])  # ncnn broadcasts like numpy if both operands have the same number of axes
        values = {name: v.reshape((1,) * (rank - v.ndim) + v.shape) for name, v in values.items()}
    net = net_of(layer(made, shapes), [*values], weights)
    single = made["op"] in (*IMAGES, "fully_connected")
    samples = [{"x": one} for one in values["x"]] if single else [values]
    found = [_ran(net, sample) for sample in samples]
    y = (np.stack(found) if single else found[0]).reshape(made["output"]["shape"])
    return [_codes(ACTIVATIONS[made["activation"]](y), made["output"])]


def _ran(net: Any, sample: Mapping[str, Array]) -> Array:
    extractor = net.create_extractor()
    for name, values in sample.items():
        if values.ndim > 4:
            raise NotImplementedError("ncnn has at most four axes")
        if not values.size:
            raise NotImplementedError("ncnn has no blob without elements")
        held = np.ascontiguousarray(values, np.float32)  # a Mat needs at least one axis, and points into this array
        extractor.input(name, ncnn.Mat(held).clone())
    status, y = extractor.extract("y")
    if status:
        raise RuntimeError(f"ncnn ended with {status}")
    return np.array(y)


def _codes(y: Array, output: Made) -> Array:
    if output["type"] == "float32":
        return y.astype(np.float32)
    steps = np.rint(y / np.float32(output["scale"])) + np.float32(output["zero_point"])
    return np.clip(steps, output["lowest"], output["highest"]).astype(output["type"])
