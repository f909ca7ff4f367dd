"""ONNX models on torch: what loads them ready to run, and one kernel for each operator of the standard."""

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
"""Every module whose kernels are in the table."""
