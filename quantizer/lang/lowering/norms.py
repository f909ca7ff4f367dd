"""Normalisations of floats."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from quantizer.lang.lowering.emitter import Value
from quantizer.lang.lowering.lower import Call, lowers


def _filled(c: Call, i: int, shape: Sequence[int], number: float) -> Value:
    """Return operand *i* in a shape; if it is absent, a tensor filled with *number*."""
    kind = getattr(torch, c.value().dtype.name)
    if not c.has(i):
        return c.e.constant(torch.full(tuple(shape), number, dtype=kind))
    value = c.value(i)
    return value if value.shape == tuple(shape) else c.e.op("Reshape", value, list(shape), allowzero=0)


@lowers("BatchNorm")
def batch_norm(c: Call) -> Value:
    """Return (x - mean) / sqrt(variance + epsilon) * gamma + beta for each channel."""
    x = c.value()
    channels = [x.shape[1]]
    gamma, beta = _filled(c, 3, channels, 1.0), _filled(c, 4, channels, 0.0)
    mean, variance = _filled(c, 1, channels, 0.0), _filled(c, 2, channels, 1.0)
    y = c.e.op(
        "BatchNormalization",
        x,
        gamma,
        beta,
        mean,
        variance,
        epsilon=float(c.attr("epsilon")),
        momentum=0.9,
        training_mode=0,
    )
    return c.activated(y)


@lowers("LayerNorm")
def layer_norm(c: Call) -> Value:
    """Normalise over the axes from *axis* on; then multiply each element by its gamma and add its beta."""
    x, axis = c.value(), c.attr("axis") % c.value().rank
    shape = x.shape[axis:]
    gamma, beta = _filled(c, 1, shape, 1.0), _filled(c, 2, shape, 0.0)
    # stash_type 1 is float32: the type in which mean and deviation are computed
    return c.e.op("LayerNormalization", x, gamma, beta, axis=axis, epsilon=float(c.attr("eps")), stash_type=1)


@lowers("GroupNorm")
def group_norm(c: Call) -> Value:
    """Normalise groups of channels; then multiply each channel by its gamma and add its beta."""
    x = c.value()
    gamma, beta = _filled(c, 1, [x.shape[1]], 1.0), _filled(c, 2, [x.shape[1]], 0.0)
    return c.e.op(
        "GroupNormalization",
        x,
        gamma,
        beta,
        epsilon=float(c.attr("eps")),
        num_groups=c.attr("num_groups"),
        stash_type=1,
    )


@lowers("RMSNorm")
def rms_norm(c: Call) -> Value:
    """Divide by the root of the mean square over the last axis, times gamma; computed in float32."""
    x = c.e.cast(c.value(), "float32")
    square = c.e.op("ReduceMean", c.e.op("Mul", x, x), [-1], keepdims=1, noop_with_empty_axes=0)
    y = c.e.cast(c.e.op("Div", x, c.e.op("Sqrt", c.e.op("Add", square, float(c.attr("eps"))))), c.value().dtype)
    return c.e.op("Mul", y, c.value(1)) if c.has(1) else y
