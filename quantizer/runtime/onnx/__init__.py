"""ONNX models on torch: a loader, and one kernel for each operator of the standard."""

from __future__ import annotations

from quantizer.runtime.onnx import (
    activations,
    attention,
    bits,
    casts,
    control,
    detection,
    elementwise,
    indexing,
    layout,
    norms,
    pools,
    products,
    recurrent,
    reductions,
    resize,
    sampling,
    sequences,
    signals,
    slicing,
    training,
)

FAMILIES = (
    activations,
    attention,
    bits,
    casts,
    control,
    detection,
    elementwise,
    indexing,
    layout,
    norms,
    pools,
    products,
    recurrent,
    reductions,
    resize,
    sampling,
    sequences,
    signals,
    slicing,
    training,
)
"""The modules with kernels."""
