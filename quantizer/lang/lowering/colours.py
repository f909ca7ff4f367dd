"""Converts video colours with operators of ONNX.

Products are in float64, as in the original's simulator, then float32.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from quantizer.lang.lowering.emitter import Value
from quantizer.lang.lowering.lower import Call, lowers
from quantizer.lang.lowering.rounding import rounded, saturated

Weights = Sequence[tuple[float, float, float]]
FORMULAS: Mapping[str, tuple[int, Weights]] = {
    "_601_limited": (16, ((1.16438, 0.0, 1.59603), (1.16438, -0.39176, -0.81297), (1.16438, 2.01723, 0.0))),
    "_601_full": (0, ((1.0, 0.0, 1.40189), (1.0, -0.34581, -0.71490), (1.0, 1.77098, 0.0))),
}
"""Formula -> the code of black, and the coefficients of y, u and v for red, green and blue. Source: tpu-mlir's
simulator."""
FIRST_U = (0, 2)
"""Formats with u before v."""
PLANES = (0, 1)
"""Formats with separate planes for u and v; in the others u and v alternate."""
# the code of u and v that stands for no colour
GREY = 128


@lowers("Yuv2rgbFormula")
def yuv2rgb(c: Call) -> Value:
    """Multiply by a matrix: each pixel's brightness, and the colour that its block of 2 x 2 pixels shares."""
    x = c.value()
    *lead, rows, width = x.shape
    # h rows of brightness, then h / 2 rows with u and v of blocks of 2 x 2 pixels
    height = rows // 3 * 2
    black, weights = FORMULAS[str(c.attr("formula_mode"))]
    y = _less(c, c.e.op("Slice", x, [0], [height], [x.rank - 2]), black)
    chroma = c.e.op("Slice", x, [height], [rows], [x.rank - 2])
    u, v = (_less(c, each, GREY) for each in _spread(c, chroma, lead, height, width))
    mixed = [_mixed(c, y, u, v, row) for row in weights]
    if c.attr("dst_format") == 5:
        mixed.reverse()
    bounded = c.e.op("Clip", c.e.cast(c.e.op("Concat", *mixed, axis=len(lead)), "float32"), 0.0, 255.0)
    whole = c.e.cast(rounded(c.e, bounded, str(c.attr("round_mode"))), "int64")
    return saturated(c.e, whole, c.outputs[0].dtype)


def _less(c: Call, codes: Value, grey: int) -> Value:
    real = c.e.cast(codes, "float64")
    return c.e.op("Sub", real, float(grey)) if grey else real


def _spread(c: Call, chroma: Value, lead: list[int], height: int, width: int) -> list[Value]:
    """Return u and v of every pixel."""
    half = [height // 2, width // 2]
    if c.attr("src_format") in PLANES:
        both, axis = c.e.op("Reshape", chroma, [*lead, 2, *half], allowzero=0), len(lead)
    else:
        both, axis = c.e.op("Reshape", chroma, [*lead, *half, 2], allowzero=0), len(lead) + 2
    parts = c.e.ops("Split", 2, both, axis=axis, num_outputs=2)
    found = []
    for part in parts:
        # [h / 2, w / 2] -> [h / 2, 2, w / 2, 2]: each value stands for a block of 2 x 2 pixels
        apart = c.e.op("Reshape", part, [*lead, half[0], 1, half[1], 1], allowzero=0)
        wide = c.e.op("Expand", apart, [*lead, half[0], 2, half[1], 2])
        found.append(c.e.op("Reshape", wide, [*lead, height, width], allowzero=0))
    return found if c.attr("src_format") in FIRST_U else found[::-1]


def _mixed(c: Call, y: Value, u: Value, v: Value, row: tuple[float, float, float]) -> Value:
    """Return one colour along a new axis; a factor of 0 adds nothing."""
    total = y if row[0] == 1.0 else c.e.op("Mul", y, row[0])
    for values, factor in ((u, row[1]), (v, row[2])):
        if factor:
            total = c.e.op("Add", total, c.e.op("Mul", values, factor))
    return c.e.op("Unsqueeze", total, [y.rank - 2])
