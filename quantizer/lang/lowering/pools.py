"""Pools over windows, or over all spatial axes where the kernel is empty."""

from __future__ import annotations

from typing import Any

import torch

from quantizer.core.dtypes import DType
from quantizer.ir.graph import container
from quantizer.lang.lowering.emitter import Value
from quantizer.lang.lowering.lower import Call, lowers


def _lacking(c: Call, x: Value) -> list[int]:
    """Return how many more windows ceil_mode adds at the end of each axis than in ONNX.

    TpuLang's documentation widens the end padding until the last step fits; ONNX leaves out windows that would begin in
    this padding. Such windows contain only padding. With different pads at both ends, ONNX's rule holds.
    """
    kernel, strides, pads = (c.attr(name) for name in ("kernel_shape", "strides", "pads"))
    rank = x.rank - 2
    if not kernel or not c.attr("ceil_mode") or tuple(pads[:rank]) != tuple(pads[rank:]):
        return [0] * rank
    return [
        # whether the last window begins at or behind the end of x
        int(-(-(size + 2 * pad - k) // step) * step >= size + pad)
        for size, k, step, pad in zip(x.shape[2:], kernel, strides, pads[:rank], strict=True)
    ]


def _widened(c: Call, x: Value, y: Value, value: float) -> Value:
    """Return y with *value* for the windows that contain no element of x."""
    ends = _lacking(c, x)
    if not any(ends):
        return y
    fill = c.e.constant(torch.tensor(value, dtype=torch.float64 if y.dtype.kind == "float" else torch.int64), y.dtype)
    return c.e.op("Pad", y, [0] * (y.rank + 2) + ends, fill, mode="constant")


def _lowest(dtype: DType) -> float:
    """Return the smallest number of a format, which is the maximum of an empty window."""
    return dtype.min if dtype.is_integer else torch.finfo(container(dtype)).min


def _window(c: Call, x: Value) -> dict[str, Any]:
    """Return ONNX's attributes of the window; without a kernel the window is the whole image."""
    rank = x.rank - 2
    if not c.attr("kernel_shape"):
        return {
            "kernel_shape": x.shape[2:],
            "strides": (1,) * rank,
            "pads": (0,) * (2 * rank),
            "auto_pad": "NOTSET",
            "ceil_mode": 0,
        }
    ceil = int(bool(c.attr("ceil_mode")))
    sizes = {name: c.attr(name) for name in ("kernel_shape", "strides", "pads")}
    return sizes | {"auto_pad": "NOTSET", "ceil_mode": ceil}


@lowers("MaxPool")
def max_pool(c: Call) -> Value:
    """Return the largest element of each window; the smallest number if a window contains no element of x.

    Codes with the same parameters are compared directly.
    """
    own, target = c.params(), c.outputs[0].qparams
    x = c.value() if _same_grid(own, target) else c.real()
    y = c.e.op("MaxPool", x, **_window(c, x), dilations=(1,) * (x.rank - 2), storage_order=0)
    y = _widened(c, x, y, _lowest(y.dtype))
    return y if y.dtype == c.outputs[0].dtype else c.made(c.activated(y), mode=c.attr("round_mode"))


def _same_grid(own: Any, target: Any) -> bool:
    if own is None or target is None:
        return own is target
    return bool((own.scale == target.scale).all()) and bool((own.zero_point == target.zero_point).all())


def _padded(c: Call, x: Value) -> Value:
    """Return x padded with zeros, at the end until the last step fits."""
    kernel, strides, pads = (c.attr(name) for name in ("kernel_shape", "strides", "pads"))
    rank = x.rank - 2
    spans = [size + pads[i] + pads[i + rank] - kernel[i] for i, size in enumerate(x.shape[2:])]
    # -span % stride places are missing for the last step
    ends = [pads[i + rank] + -span % strides[i] for i, span in enumerate(spans)]
    fill = c.e.constant(torch.tensor(0.0), x.dtype)
    return c.e.op("Pad", x, [0, 0, *pads[:rank], 0, 0, *ends], fill, mode="constant")


@lowers("AvgPool")
def avg_pool(c: Call) -> Value:
    """Return the mean of each window over its elements inside x, 0 if there are none.

    With count_include_pad the whole padding counts, too.
    """
    x = c.real()
    if not c.attr("kernel_shape"):
        return c.made(c.activated(c.e.op("GlobalAveragePool", x)), mode=c.attr("round_mode"))
    counted, holes = int(c.attr("count_include_pad")), (1,) * (x.rank - 2)
    # padded beforehand, because ONNX does not count the padding that ceil_mode adds
    if counted and c.attr("ceil_mode"):
        x, sizes = _padded(c, x), {"kernel_shape": c.attr("kernel_shape"), "strides": c.attr("strides"), "ceil_mode": 0}
        y = c.e.op(
            "AveragePool",
            x,
            **sizes,
            pads=(0,) * (2 * x.rank - 4),
            auto_pad="NOTSET",
            dilations=holes,
            count_include_pad=1,
        )
    else:
        y = c.e.op("AveragePool", x, **_window(c, x), dilations=holes, count_include_pad=counted)
        y = _widened(c, x, y, 0.0)
    return c.made(c.activated(y), mode=c.attr("round_mode"))


@lowers("MaxPoolWithMask")
def max_pool_with_mask(c: Call) -> list[Value]:
    """Return the largest element of each window and its index in its image, rows first; -1 for an empty window."""
    x = c.value()
    holes = (1,) * (x.rank - 2)
    y, places = c.e.ops("MaxPool", 2, x, **_window(c, x), dilations=holes, storage_order=0)
    # ONNX's index counts through the whole tensor; modulo the size of an image it counts within one
    size = 1
    for n in x.shape[2:]:
        size *= n
    mask = c.e.cast(c.e.op("Mod", places, size, fmod=0), "int32")
    return [_widened(c, x, y, _lowest(y.dtype)), _widened(c, x, mask, -1)]
