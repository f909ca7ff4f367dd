"""ONNX Runtime's arithmetic in numpy: a second implementation, checked against the running system."""

from __future__ import annotations

import math

import numpy as np

from quantizer.conformance.oracle import Array, Asked


def softmax(asked: Asked) -> Array | None:
    """Return codes of exponentials added one after the other in float32 and divided in float64, ties to even.

    Source: QLinearSoftmax of ONNX Runtime 1.32, on quotients next to ties.
    """
    if (table := asked.tables.get("exp")) is None:
        return None
    codes, axis = asked.codes["x"], asked.axis
    exponentials = table.entries[codes.max(axis=axis, keepdims=True) - codes]
    parts = np.moveaxis(exponentials.astype(np.float32), axis, 0)
    total = np.zeros(parts.shape[1:], np.float32)
    # in the order of the kernel's loop: float32 sums depend on it
    for part in parts:
        total = total + part
    quotients = parts.astype(np.float64) * math.floor(1.0 / float(asked.output.scale)) / total.astype(np.float64)
    return np.asarray(np.moveaxis(np.rint(quotients), 0, axis) + int(asked.output.zero_point))
