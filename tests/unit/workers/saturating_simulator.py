"""A simulator whose accumulator of 20 bits starts with the bias, and saturates at each addition; ties go away from 0."""

import json
from fractions import Fraction

import numpy as np

NAME, VERSION, FORM = "saturating_simulator", "0.1", "npz"
OPERATORS = ["fully_connected"]
HALF = 1 << 19


def load(model, options):
    return json.loads(model)


def run(case, feeds):
    inputs, output = case["inputs"], case["output"]
    x = feeds["x"].astype(np.int64) - inputs["x"]["zero_point"]
    weight = feeds["weight"].astype(np.int64)
    total = np.zeros((len(x), len(weight)), np.int64) + feeds.get("bias", 0)
    for place in range(x.shape[1]):
        total = np.clip(np.clip(total, -HALF, HALF - 1) + np.outer(x[:, place], weight[:, place]), -HALF, HALF - 1)
    scales = np.broadcast_to(inputs["weight"]["scale"], len(weight))
    ratios = [Fraction(float(s)) * Fraction(inputs["x"]["scale"]) / Fraction(output["scale"]) for s in scales]
    codes = [[rounded(int(v) * ratio) + output["zero_point"] for v, ratio in zip(row, ratios)] for row in total]
    return [np.clip(np.array(codes), output["lowest"], output["highest"]).astype(output["type"])]


def rounded(value):
    below = int(abs(value) + Fraction(1, 2))
    return below if value > 0 else -below
