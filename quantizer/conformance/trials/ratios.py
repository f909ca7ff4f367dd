"""Float32 ratios of scales, by which a platform may choose its arithmetic."""

from __future__ import annotations

from typing import Any

import numpy as np

from quantizer.numerics.qparams import Parameters


def ratios(parameters: Parameters) -> dict[str, float]:
    """Return the ratio of each activation's scale to the output's."""
    output = _scale_of_output(parameters)
    return {name: float(np.float32(float(one.scale)) / output) for name, one in parameters.inputs.items()}


def product_ratio(parameters: Parameters) -> float:
    """Return the ratio of the product of the activations' scales to the output's."""
    product: Any = np.float32(1.0)
    for one in parameters.inputs.values():
        product = product * np.float32(float(one.scale))
    return float(product / _scale_of_output(parameters))


def _scale_of_output(parameters: Parameters) -> np.float32:
    return np.float32(float(parameters.outputs["y"].scale))
