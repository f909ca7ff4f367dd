"""The chip's simulator: numpy only, in its own process."""

import json

import numpy as np


def load(model, options):
    """Return the layer that the job describes."""
    return json.loads(model)


def run(layer, feeds):
    """Return the codes: product, half of what is shifted out, shift, saturation."""
    product = np.maximum(feeds["x"].astype(np.int64) - layer["zero_in"], 0) * layer["multiplier"]
    half = 1 << (layer["shift"] - 1) if layer["shift"] > 0 else 0
    codes = ((product + half) >> layer["shift"]) + layer["zero_out"]
    return [np.clip(codes, layer["lowest"], layer["highest"])]
