"""Writes an operator as a few lines of numpy for a stand-alone script: sums in int64, the rest in float64.

The lines read codes by the names of operands, scales as `s_<name>` and zero points as `z_<name>`. They end with `real`,
the value of the output before its activation. A convolution is a sum over a view of windows, so that it depends on no
library's kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from quantizer.conformance.trials.trial import Trial

SPACE, TAPS = "yxv", "ijl"
"""Letters of an einsum: axes of the output, axes of the kernel."""
CONVOLUTIONS = ("conv1d", "conv2d", "conv3d", "depthwise_conv2d")
ELEMENTS: Mapping[str, str] = {
    "add": "A + B",
    "sub": "A - B",
    "mul": "A * B",
    "maximum": "np.maximum(A, B)",
    "minimum": "np.minimum(A, B)",
    "div": "A / B",
    "relu": "np.maximum(X, 0)",
    "sigmoid": "1 / (1 + np.exp(-X))",
    "tanh": "np.tanh(X)",
    "abs": "np.abs(X)",
    "negative": "-X",
    "exp": "np.exp(X)",
    "sqrt": "np.sqrt(X)",
    "log": "np.log(X)",
    "rsqrt": "1 / np.sqrt(X)",
    "reciprocal": "1 / X",
    "square": "X * X",
    "sine": "np.sin(X)",
    "cosine": "np.cos(X)",
    "tan": "np.tan(X)",
    "atan": "np.arctan(X)",
    "softplus": "np.logaddexp(0, X)",
    "softsign": "X / (1 + np.abs(X))",
    "hard_swish": "X * np.clip(X / 6 + 0.5, 0, 1)",
    "global_avg_pool2d": "X.mean((2, 3), keepdims=True)",
    "global_max_pool2d": "X.max((2, 3), keepdims=True)",
    "mish": "X * np.tanh(np.logaddexp(0, X))",
}
"""Operator -> formula of its value; capital letters are the real values of its operands."""


def formula(trial: Trial) -> list[str] | None:
    """Return the lines of a case; None for an operator or a case that needs more than a few lines."""
    op, attrs = trial.spec.op, dict(trial.case.attrs)
    if op in CONVOLUTIONS:
        return _convolution(trial)
    if op in ELEMENTS:
        return [*_values(trial), f"real = {ELEMENTS[op]}"]
    write = _OTHERS.get(op)
    return None if write is None else write(trial, attrs)


def _values(trial: Trial) -> list[str]:
    names = [name for name in trial.codes if trial.spec.inputs[name].kind == "value"]
    return [f"{name.upper()} = s_{name} * ({name}.astype(np.int64) - z_{name})" for name in names]


def _bias(trial: Trial, rank: int) -> str:
    """Return the term of the bias, with its channels along the second axis and *rank* axes after it."""
    if "bias" not in trial.codes:
        return ""
    along = "" if rank == 0 else f".reshape([1, -1{', 1' * rank}])"
    return f" + (s_bias * bias.astype(np.int64)){along}"


def _scale(trial: Trial, rank: int, groups: int = 1) -> str:
    """Return the scale of a sum, per channel or for all; *groups*: the number of groups that share scales."""
    if not trial.qparams("weight").scale.dim():
        return "s_x * s_weight"
    scales = f"np.tile(s_weight, {groups})" if groups > 1 else "s_weight"
    return f"s_x * {scales}.reshape([1, -1{', 1' * rank}])" if rank else f"s_x * {scales}"


def _pairs(padding: Sequence[int]) -> str:
    rank = len(padding) // 2
    return str([(0, 0), (0, 0), *zip(padding[:rank], padding[rank:], strict=True)])


def _windows(name: str, kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int]) -> str:
    """Return the view of all windows: first the axes of their positions, then the axes inside each window."""
    spans = tuple(d * (k - 1) + 1 for k, d in zip(kernel, dilation, strict=True))
    axes = tuple(range(2, 2 + len(spans)))
    steps = ", ".join([*(f"::{s}" for s in stride), *(f"::{d}" for d in dilation)])
    return f"np.lib.stride_tricks.sliding_window_view({name}, {spans}, {axes})[:, :, {steps}]"


def _convolution(trial: Trial) -> list[str]:
    """Return the sums over all windows; a 1x1 kernel of one group needs no view of the windows."""
    attrs: Mapping[str, Any] = trial.case.attrs
    kernel = tuple(trial.codes["weight"].shape[2:])
    rank, groups = len(kernel), attrs.get("groups", trial.codes["x"].shape[1])
    space, taps = SPACE[:rank], TAPS[:rank]
    centred, weights = "x.astype(np.int64) - z_x", f"weight.astype(np.int64){_less_zero(trial, rank + 1)}"
    real = f"real = sums * ({_scale(trial, rank)}){_bias(trial, rank)}"
    if any(attrs["padding"]):
        centred = f"np.pad({centred}, {_pairs(attrs['padding'])})"
    if groups == 1 and set(kernel) == set(attrs["stride"]) == {1}:
        summed = f'sums = np.einsum("nc{space},kc{taps}->nk{space}", X, W)'
        # the image is [n, c, y, x], the weight [k, c, 1, 1]
        return [f"X, W = {centred}, {weights}", summed, real]
    view = [f"X = {centred}", f"windows = {_windows('X', kernel, attrs['stride'], attrs['dilation'])}"]
    if groups == 1:
        summed = f'sums = np.einsum("nc{space}{taps},kc{taps}->nk{space}", windows, {weights})'
        return [*view, summed, real]
    return [
        *view,
        f"windows = windows.reshape(len(x), {groups}, -1, *windows.shape[2:])",
        f"W = ({weights}).reshape({groups}, -1, *weight.shape[1:])",
        f'sums = np.einsum("ngc{space}{taps},gkc{taps}->ngk{space}", windows, W)',
        "sums = sums.reshape(len(x), -1, *sums.shape[3:])",
        real,
    ]


def _less_zero(trial: Trial, rank: int) -> str:
    """Return the subtraction of the weights' zero point, with *rank* axes after the channels; empty for 0."""
    zero = trial.qparams("weight").zero_point
    if not zero.any():
        return ""
    return f" - z_weight.reshape([-1{', 1' * rank}])" if zero.dim() else " - z_weight"


def _transposed(trial: Trial, attrs: Mapping[str, Any]) -> list[str] | None:
    if trial.qparams("weight").zero_point.dim() and trial.qparams("weight").zero_point.any():
        return None  # one for each channel, along two axes
    n, _, *sizes = trial.codes["x"].shape
    out, _, *kernel = trial.codes["weight"].shape
    steps, spread, extra, groups = attrs["stride"], attrs["dilation"], attrs["output_padding"], attrs["groups"]
    # sizes of the output before padding is cut off
    full = [
        (size - 1) * s + d * (k - 1) + 1 + e
        for size, s, d, k, e in zip(sizes, steps, spread, kernel, extra, strict=True)
    ]
    before, after = attrs["padding"][:2], attrs["padding"][2:]
    kept = ", ".join(f"{low}:{size - high}" for low, high, size in zip(before, after, full, strict=True))
    # kernel element (i, j) reaches every stride-th output, beginning at its dilated place
    reached = ", ".join(
        f"{t} * {d} : {t} * {d} + {(size - 1) * s + 1} : {s}"
        for t, d, s, size in zip("ij", spread, steps, sizes, strict=True)
    )
    weights = f"weight.astype(np.int64){_less_zero(trial, 3)}"
    return [
        f"X = (x.astype(np.int64) - z_x).reshape({n}, {groups}, -1, {', '.join(map(str, sizes))})",
        f"W = ({weights}).reshape({out}, {groups}, -1, {', '.join(map(str, kernel))})",
        f"sums = np.zeros([{n}, {groups * out}, {', '.join(map(str, full))}], np.int64)",
        f"for i, j in np.ndindex({', '.join(map(str, kernel))}):",
        '    part = np.einsum("ngcyx,kgc->ngkyx", X, W[..., i, j])',
        f"    sums[:, :, {reached}] += part.reshape({n}, -1, {', '.join(map(str, sizes))})",
        f"real = sums[:, :, {kept}] * ({_scale(trial, 2, groups)}){_bias(trial, 2)}",
    ]


def _fully_connected(trial: Trial, _: Mapping[str, Any]) -> list[str]:
    return [
        f"sums = (x.astype(np.int64) - z_x) @ (weight.astype(np.int64){_less_zero(trial, 1)}).T",
        f"real = sums * ({_scale(trial, 0)}){_bias(trial, 0)}",
    ]


def _pool(trial: Trial, attrs: Mapping[str, Any]) -> list[str] | None:
    """Return the windows of an image and their sums; None if a window extends beyond the padding."""
    pads, kernel, steps = attrs["padding"], attrs["kernel"], attrs["stride"]
    sizes = [size + low + high for size, low, high in zip(trial.codes["x"].shape[2:], pads[:2], pads[2:], strict=True)]
    ends = [(n - 1) * s + k for n, s, k in zip(trial.output_shape[2:], steps, kernel, strict=True)]
    if any(end > size for end, size in zip(ends, sizes, strict=True)):
        return None
    largest = trial.spec.op == "max_pool2d"
    fill = ", constant_values=-np.inf" if largest else ""
    lines = [*_values(trial), f"X = np.pad(X, {_pairs(pads)}{fill})"]
    lines.append(f"windows = {_windows('X', kernel, steps, (1, 1))}")
    if largest:
        return [*lines, "real = windows.max((-2, -1))"]
    if attrs["count_include_pad"] or not any(pads):
        return [*lines, f"real = windows.sum((-2, -1)) / {kernel[0] * kernel[1]}"]
    lines.append(f"counted = np.pad(np.ones_like(x, np.int64), {_pairs(pads)})")
    counts = _windows("counted", kernel, steps, (1, 1))
    return [
        *lines,
        f"counts = {counts}.sum((-2, -1))",
        "real = windows.sum((-2, -1)) / np.maximum(counts, 1)",
    ]


def _softmax(trial: Trial, attrs: Mapping[str, Any]) -> list[str]:
    axis = attrs["axis"]
    return [
        *_values(trial),
        f"powers = np.exp(X - X.max({axis}, keepdims=True))",
        f"real = powers / powers.sum({axis}, keepdims=True)",
    ]


def _reduced(function: str) -> Callable[[Trial, Mapping[str, Any]], list[str]]:
    def write(trial: Trial, attrs: Mapping[str, Any]) -> list[str]:
        return [*_values(trial), f"real = X.{function}({tuple(attrs['axes'])}, keepdims={attrs['keepdims']})"]

    return write


_OTHERS: Mapping[str, Callable[[Trial, Mapping[str, Any]], list[str] | None]] = {
    "conv_transpose2d": _transposed,
    "fully_connected": _fully_connected,
    "matmul": lambda *_: [
        "sums = (a.astype(np.int64) - z_a) @ (b.astype(np.int64) - z_b)",
        "real = sums * (s_a * s_b)",
    ],
    "max_pool2d": _pool,
    "avg_pool2d": _pool,
    "softmax": _softmax,
    "reduce_mean": _reduced("mean"),
    "reduce_sum": _reduced("sum"),
    "reduce_max": _reduced("max"),
    "reduce_min": _reduced("min"),
    "leaky_relu": lambda trial, attrs: [*_values(trial), f"real = np.where(X < 0, {attrs['slope']!r} * X, X)"],
    "elu": lambda trial, attrs: [*_values(trial), f"real = np.where(X < 0, {attrs['alpha']!r} * np.expm1(X), X)"],
    "clip": lambda trial, attrs: [*_values(trial), f"real = np.clip(X, {attrs['low']!r}, {attrs['high']!r})"],
    "quantize": lambda *_: ["real = x.astype(np.float64)"],
    "concat": lambda trial, attrs: [
        *_values(trial),
        f"real = np.concatenate([{', '.join(n.upper() for n in trial.codes)}], {attrs['axis']})",
    ],
    "transpose": lambda trial, attrs: [*_values(trial), f"real = X.transpose({tuple(attrs['perm'])})"],
    "reshape": lambda trial, attrs: [*_values(trial), f"real = X.reshape({tuple(attrs['shape'])})"],
}
