"""Plain int64 sums over explicit windows in numpy, one function per operator family; no platform, no torch kernel."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quantizer.conformance.trials.trial import Trial

Array = NDArray[Any]


def operands(trial: Trial) -> dict[str, Array]:
    """Return code - zero_point of every operand, int64."""
    return {name: values.numpy().astype(np.int64) for name, values in trial.centred.items()}


def convolution(trial: Trial) -> Array:
    """Return sum over windows of (x - z_x) * (w - z_w), plus the bias; channels first, any rank."""
    found = operands(trial)
    x, w = found["x"], found["weight"]
    attrs: Mapping[str, Any] = trial.case.attrs
    rank = w.ndim - 2
    # a depthwise convolution has one group for each channel
    groups = int(attrs["groups"]) if "groups" in attrs else x.shape[1]
    x = np.pad(x, [(0, 0), (0, 0), *zip(attrs["padding"][:rank], attrs["padding"][rank:], strict=True)])
    sizes = _sizes(x.shape[2:], w.shape[2:], attrs["stride"], attrs["dilation"])
    out = np.zeros((x.shape[0], w.shape[0], *sizes), dtype=np.int64)
    per_group, inputs = w.shape[0] // groups, w.shape[1]
    # one tap of the window at a time, for all windows at once; products and sums stay in int64
    for offset, window in _windows(w.shape[2:], sizes, attrs["stride"], attrs["dilation"]):
        seen = x[(slice(None), slice(None), *window)]
        for group in range(groups):
            rows = slice(group * per_group, (group + 1) * per_group)
            part = seen[:, group * inputs : (group + 1) * inputs]
            taps: Array = w[(rows, slice(None), *offset)]  # type: ignore[arg-type]
            out[:, rows] += np.einsum("nc...,oc->no...", part, taps)
    return _with_bias(out, found, rank)


def transposed_convolution(trial: Trial) -> Array:
    """Return the products of every input element with the filters, added at the places of its window, plus the bias."""
    found = operands(trial)
    x, w = found["x"], found["weight"]
    attrs: Mapping[str, Any] = trial.case.attrs
    rank, groups = w.ndim - 2, int(attrs["groups"])
    stride, dilation, padding = attrs["stride"], attrs["dilation"], attrs["padding"]
    reach = [d * (k - 1) + 1 for d, k in zip(dilation, w.shape[2:], strict=True)]
    extra = attrs["output_padding"]
    full = [(n - 1) * s + r + e for n, s, r, e in zip(x.shape[2:], stride, reach, extra, strict=True)]
    # weights are [O/groups, C, kernel...]
    outputs, inputs = w.shape[0], x.shape[1] // groups
    out = np.zeros((x.shape[0], outputs * groups, *full), dtype=np.int64)
    for offset, window in _windows(w.shape[2:], x.shape[2:], stride, dilation):
        for group in range(groups):
            part = x[:, group * inputs : (group + 1) * inputs]
            taps: Array = w[(slice(None), slice(group * inputs, (group + 1) * inputs), *offset)]  # type: ignore[arg-type]
            rows = slice(group * outputs, (group + 1) * outputs)
            out[(slice(None), rows, *window)] += np.einsum("nc...,oc->no...", part, taps)
    crop = tuple(slice(padding[i], full[i] - padding[i + rank]) for i in range(rank))
    return _with_bias(out[(slice(None), slice(None), *crop)], found, rank)


def fully_connected(trial: Trial) -> Array:
    """Return rows times filters, plus the bias."""
    found = operands(trial)
    return _with_bias(np.einsum("nc,oc->no", found["x"], found["weight"]), found, 0)


def matrix_product(trial: Trial) -> Array:
    """Return the products of matrices, leading axes broadcast."""
    found = operands(trial)
    return np.asarray(np.einsum("...ik,...kj->...ij", found["a"], found["b"]))


def multiplication(trial: Trial) -> Array:
    """Return element-wise products."""
    found = operands(trial)
    return np.asarray(found["a"] * found["b"])


def scaling(trial: Trial) -> Array:
    """Return x times the factor of its slice, plus the constant; in float32 on raw codes if the platform does so.

    The platform adds zero_point * weight to the constant, and rounds product and sum to float32.
    """
    found = operands(trial)
    attrs: Mapping[str, Any] = trial.case.attrs
    axis = attrs["axis"] % found["x"].ndim
    along = [-1 if i == axis else 1 for i in range(found["x"].ndim)]
    factor = found["weight"].reshape(along)
    constant = found["bias"].reshape(along) if "bias" in found else np.zeros_like(factor)
    if trial.spec.quantization.family not in trial.target.platform.accumulator.float32:
        return np.asarray(found["x"] * factor + constant)
    absorbed = (constant - int(trial.qparams("x").zero_point) * factor).astype(np.float32)
    # of the codes as stored, because the constant has absorbed the zero point
    product = trial.codes["x"].numpy().astype(np.float32) * factor.astype(np.float32)
    return np.asarray((product + absorbed).astype(np.int64))


def reduction(trial: Trial) -> Array:
    """Return sums along the reduced axes."""
    # a global average has no axes: it covers the image
    x, attrs = operands(trial)["x"], trial.case.attrs
    if "axes" not in attrs:
        return np.asarray(x.sum(axis=(2, 3), keepdims=True))
    axes: Any = attrs["axes"]
    return np.asarray(x.sum(axis=tuple(axes), keepdims=bool(attrs["keepdims"])))


def squares(trial: Trial) -> Array:
    """Return sums of squares along the reduced axes."""
    ((_, x),), attrs = operands(trial).items(), trial.case.attrs
    axes: Any = attrs["axes"]
    return np.asarray((x * x).sum(axis=tuple(axes), keepdims=bool(attrs["keepdims"])))


def pooling(trial: Trial) -> Array:
    """Return sums over windows. Positions outside the input add 0."""
    return _pooled(trial, operands(trial)["x"])


def counts(trial: Trial) -> Array:
    """Return the divisor of each sum of a mean, int64, in the shape of the output."""
    attrs: Mapping[str, Any] = trial.case.attrs
    if "kernel" not in attrs:
        axes = tuple(attrs["axes"]) if "axes" in attrs else (2, 3)
        return np.full(trial.output_shape, math.prod(trial.case.shapes["x"][axis] for axis in axes))
    if attrs["count_include_pad"]:
        return np.full(trial.output_shape, math.prod(attrs["kernel"]))
    return _pooled(trial, np.ones(trial.case.shapes["x"], dtype=np.int64))


def window_sums(trial: Trial) -> Array | None:
    """Return the sums of the spec's family; None for another family, or for other operands or attributes."""
    return _of_family(lambda: SUMS[trial.spec.quantization.family](trial))


def mean_counts(trial: Trial) -> Array | None:
    """Return the divisor of each element of a mean; None if neither family nor spec determines it."""
    known = _of_family(lambda: counts(trial)) if trial.spec.quantization.family in SUMS else None
    if known is None and trial.spec.error_model.terms is not None:
        return np.full(trial.output_shape, trial.terms)
    return known


def mean_sums(trial: Trial) -> tuple[Array, Array] | None:
    """Return the sums of a mean's centred codes and the divisor of each; None if the divisor is not declared.

    For a family without a sum over windows, this is the reference times the number of terms, an integer.
    """
    sums, known = window_sums(trial), mean_counts(trial)
    if known is None:
        return None
    return np.rint(trial.sums * known).astype(np.int64) if sums is None else sums, known


def _of_family(found: Callable[[], Array]) -> Array | None:
    try:
        return found()
    # an operator of a user's own may name the family without its operands or attributes
    except (KeyError, IndexError, ValueError):
        return None


def running_sum(trial: Trial) -> Array:
    """Return the sum of the elements before (or after) each place along the axis, its own included unless exclusive."""
    ((_, x),) = operands(trial).items()
    attrs: Mapping[str, Any] = trial.case.attrs
    lines = np.moveaxis(x, int(attrs["axis"]), 0)
    out, total = np.zeros_like(lines), np.zeros_like(lines[0])
    for place in reversed(range(len(lines))) if attrs["reverse"] else range(len(lines)):
        out[place] = total if attrs["exclusive"] else total + lines[place]
        total = total + lines[place]
    return np.moveaxis(out, 0, int(attrs["axis"]))


def _pooled(trial: Trial, x: Array) -> Array:
    """Return sums over windows with zeros around *x*, as many after it as the last window reaches."""
    attrs: Mapping[str, Any] = trial.case.attrs
    kernel, stride, sizes = attrs["kernel"], attrs["stride"], trial.output_shape[2:]
    before = attrs["padding"][: len(sizes)]
    reach = [(n - 1) * s + k for n, s, k in zip(sizes, stride, kernel, strict=True)]
    after = [max(0, r - p - size) for r, p, size in zip(reach, before, x.shape[2:], strict=True)]
    axes = tuple(range(2, x.ndim))
    padded = np.pad(x, [(0, 0), (0, 0), *zip(before, after, strict=True)])
    windows = np.lib.stride_tricks.sliding_window_view(padded, kernel, axes)
    # the view has a window at every place; strides choose some of them
    chosen = (slice(0, (n - 1) * s + 1, s) for n, s in zip(sizes, stride, strict=True))
    return np.asarray(windows[(slice(None), slice(None), *chosen)].sum(axis=tuple(range(-len(axes), 0))))


def _sizes(size: Sequence[int], kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int]) -> list[int]:
    return [(n - d * (k - 1) - 1) // s + 1 for n, k, s, d in zip(size, kernel, stride, dilation, strict=True)]


def _windows(
    kernel: Sequence[int], sizes: Sequence[int], stride: Sequence[int], dilation: Sequence[int]
) -> Iterator[tuple[tuple[int, ...], tuple[slice, ...]]]:
    """Yield each place of the window with the input elements that all windows have there."""
    for offset in np.ndindex(*kernel):
        steps = zip(offset, dilation, stride, sizes, strict=True)
        yield offset, tuple(slice(o * d, o * d + s * (n - 1) + 1, s) for o, d, s, n in steps)


def _with_bias(out: Array, found: Mapping[str, Array], rank: int) -> Array:
    return out + found["bias"].reshape([-1] + [1] * rank) if "bias" in found else out


SUMS: Mapping[str, Callable[[Trial], Array]] = {
    "convolution": convolution,
    "depthwise_convolution": convolution,
    "transposed_convolution": transposed_convolution,
    "fully_connected": fully_connected,
    "matrix_product": matrix_product,
    "multiplication": multiplication,
    "scaling": scaling,
    "mean": reduction,
    "sum": reduction,
    "euclidean": squares,
    "running_sum": running_sum,
    "global_average": reduction,
    "average_pooling": pooling,
}
