"""The chip's simulator: numpy only, in its own process."""

import json

import numpy as np


def load(model, options):
    """Return the layer that the job describes."""
    return json.loads(model)


def run(layer, feeds):
    """Return the codes: product, shift, the last bit set where one that is shifted out was set, saturation."""
    product = np.maximum(feeds["x"].astype(np.int64) - layer["zero_in"], 0) * layer["multiplier"]
    product, shift = product << max(-layer["shift"], 0), max(layer["shift"], 0)
    kept = product >> shift
    codes = np.where(kept << shift == product, kept, kept | 1) + layer["zero_out"]
    return [np.clip(codes, layer["lowest"], layer["highest"])]
