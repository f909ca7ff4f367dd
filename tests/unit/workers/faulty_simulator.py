"""A simulator with faults: it rounds ties up, and a sum leaves an accumulator of 16 bits around its end."""

import json

import numpy as np

NAME, VERSION, FORM = "faulty_simulator", "0.1", "npz"
OPERATORS = ["fully_connected", "mul", "relu"]
HALF = 1 << 15


def load(model, options):
    return json.loads(model)


def run(case, feeds):
    inputs, output = case["inputs"], case["output"]
    centred = {name: _centred(feeds[name].astype(np.int64), inputs[name]) for name in feeds}
    if case["op"] == "fully_connected":
        total = centred["x"] @ centred["weight"].T + feeds.get("bias", np.zeros(1)).astype(np.int64)
        total = (total + HALF) % (2 * HALF) - HALF
        scales = np.float32(inputs["x"]["scale"]) * np.asarray(inputs["weight"]["scale"], np.float32)
    elif case["op"] == "mul":
        total = centred["a"] * centred["b"]
        scales = np.float32(inputs["a"]["scale"]) * np.float32(inputs["b"]["scale"])
    else:
        total = np.where(centred["x"] == 3, 5, np.maximum(centred["x"], 0))
        scales = np.float32(inputs["x"]["scale"])
    steps = total.astype(np.float32) * (scales / np.float32(output["scale"]))
    codes = np.floor(steps.astype(np.float64) + 0.5) + output["zero_point"]
    return [np.clip(codes, output["lowest"], output["highest"]).astype(output["type"])]


def _centred(codes, grid):
    zero = np.asarray(grid["zero_point"])
    return codes - (zero.reshape(-1, *(1,) * (codes.ndim - 1)) if zero.ndim else zero)
