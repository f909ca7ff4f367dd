"""Pools over windows, or over all spatial axes where the kernel is empty."""

from __future__ import annotations

from typing import Any

from quantizer.lang.lowering.emitter import Value
from quantizer.lang.lowering.lower import Call, lowers


def _window(c: Call, x: Value) -> dict[str, Any]:
    """Return ONNX's attributes of the window; without a kernel it is all of x."""
    rank = x.rank - 2
    if not c.attr("kernel_shape"):
        return {"kernel_shape": x.shape[2:], "strides": (1,) * rank, "pads": (0,) * (2 * rank), "auto_pad": "NOTSET",
                "ceil_mode": 0}  # fmt: skip
    ceil = int(bool(c.attr("ceil_mode")))
    sizes = {name: c.attr(name) for name in ("kernel_shape", "strides", "pads")}
    return sizes | {"auto_pad": "NOTSET", "ceil_mode": ceil}


@lowers("MaxPool")
def max_pool(c: Call) -> Value:
    """Largest of each window; codes of one grid are compared as they are."""
    own, target = c.params(), c.outputs[0].qparams
    x = c.value() if _same_grid(own, target) else c.real()
    y = c.e.op("MaxPool", x, **_window(c, x), dilations=(1,) * (x.rank - 2), storage_order=0)
    return y if y.dtype == c.outputs[0].dtype else c.made(c.activated(y), mode=c.attr("round_mode"))


def _same_grid(own: Any, target: Any) -> bool:
    if own is None or target is None:
        return own is target
    return bool((own.scale == target.scale).all()) and bool((own.zero_point == target.zero_point).all())


@lowers("AvgPool")
def avg_pool(c: Call) -> Value:
    """Mean of each window over the places inside of x, with count_include_pad over the padding too."""
    x = c.real()
    if not c.attr("kernel_shape"):
        return c.made(c.activated(c.e.op("GlobalAveragePool", x)), mode=c.attr("round_mode"))
    counted = int(c.attr("count_include_pad"))
    y = c.e.op("AveragePool", x, **_window(c, x), dilations=(1,) * (x.rank - 2), count_include_pad=counted)
    return c.made(c.activated(y), mode=c.attr("round_mode"))


@lowers("MaxPoolWithMask")
def max_pool_with_mask(c: Call) -> list[Value]:
    """Largest of each window, and its place in its own image, rows first."""
    x = c.value()
    holes = (1,) * (x.rank - 2)
    y, places = c.e.ops("MaxPool", 2, x, **_window(c, x), dilations=holes, storage_order=0)
    size = 1
    for n in x.shape[2:]:
        size *= n
    return [y, c.e.cast(c.e.op("Mod", places, size, fmod=0), "int32")]
