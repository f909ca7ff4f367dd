"""Boxes in operators of ONNX."""

from __future__ import annotations

import torch

from quantizer.core.errors import UnsupportedError
from quantizer.ir.graph import FREE
from quantizer.lang.lowering.emitter import Value
from quantizer.lang.lowering.lower import Call, lowers


@lowers("Nms")
def nms(c: Call) -> Value:
    """Emit NonMaxSuppression with its default thresholds; the number of boxes is known only when the graph runs."""
    if len(c.values) != 2:
        raise UnsupportedError(f"top.Nms with {len(c.values)} operands: must have boxes and scores only.")
    most = c.e.constant(torch.tensor([int(c.attr("max_output_size"))]))
    chosen = c.e.free(
        "NonMaxSuppression",
        [c.value(), c.value(1), most],
        "int64",
        (FREE, 3),
        center_point_box=int(c.attr("center_point_box")),
    )
    return c.e.cast(chosen, c.outputs[0].dtype)
