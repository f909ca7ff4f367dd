"""Resizing images."""

from __future__ import annotations

import torch

from quantizer.core.errors import UnsupportedError
from quantizer.lang.lowering.emitter import Value
from quantizer.lang.lowering.lower import Call, lowers


def _resized(c: Call, factors: Value | None, sizes: Value | None, mode: str, coordinates: str) -> Value:
    """Resize the last two axes."""
    x = c.value()
    return c.e.op(
        "Resize",
        x,
        None,
        factors,
        sizes,
        mode=mode,
        coordinate_transformation_mode=coordinates,
        # with asymmetric coordinates, floor repeats each element exactly
        nearest_mode="floor" if c.node.op == "top.Upsample" else "round_prefer_floor",
        antialias=0,
        cubic_coeff_a=-0.75,
        exclude_outside=0,
        extrapolation_value=0.0,
        keep_aspect_ratio_policy="stretch",
    )


def _factors(c: Call, height: float, width: float) -> Value:
    ones = [1.0] * (c.value().rank - 2)
    return c.e.constant(torch.tensor([*ones, height, width], dtype=torch.float32))


@lowers("Upsample")
def upsample(c: Call) -> Value:
    """Repeat each element along the last two axes."""
    factors = _factors(c, float(c.attr("scale_h")), float(c.attr("scale_w")))
    return _resized(c, factors, None, "nearest", "asymmetric")


@lowers("Interp")
def interp(c: Call) -> Value:
    """Resize the last two axes by factors or to sizes.

    With align_corners, the corners of both images coincide, so that sizes, not factors, determine the coordinates.
    """
    spatial = c.value().shape[-2:]
    if c.has(1):
        wanted = c.e.cast(c.value(1), "int64").data
        if wanted is None:
            raise UnsupportedError("the sizes of top.Interp: must be a coefficient.")
        return _resized(c, None, _sizes(c, wanted.tolist()), c.attr("mode"), c.attr("coord_mode"))
    factors = (float(c.attr("scale_h")), float(c.attr("scale_w")))
    if c.attr("coord_mode") == "align_corners":
        whole = [int(factor * size) for factor, size in zip(factors, spatial, strict=True)]
        return _resized(c, None, _sizes(c, whole), c.attr("mode"), "align_corners")
    return _resized(c, _factors(c, *factors), None, c.attr("mode"), c.attr("coord_mode"))


def _sizes(c: Call, spatial: list[int]) -> Value:
    return c.e.constant(torch.tensor([*c.value().shape[:-2], *spatial], dtype=torch.int64))
