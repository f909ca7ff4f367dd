"""The simulator as an engine under test: quantizer starts this file, it needs numpy and the compiled library alone."""

import ctypes
import json
from pathlib import Path

import numpy as np

NAME, VERSION, FORM = "c_simulator", "1.0", "npz"
OPERATORS = ["fully_connected", "relu"]
LIBRARY = ctypes.CDLL(str(Path(__file__).with_name("libsimulator.so")))


def load(model, options):
    """Return the case; what the simulator cannot do is refused."""
    case = json.loads(model)
    if case["activation"] not in ("none", "relu"):
        raise NotImplementedError(f"the simulator fuses no {case['activation']}")
    return case


def run(case, feeds):
    """Return the codes of the output."""
    into, out = case["inputs"]["x"], case["output"]
    ends = [ctypes.c_int32(out[key]) for key in ("zero_point", "lowest", "highest")]
    # the C functions take bare addresses, so the elements must lie one after the other
    x, y = np.ascontiguousarray(feeds["x"]), np.empty(out["shape"], np.int8)
    if case["op"] == "relu":
        ratio = ctypes.c_float(into["scale"] / out["scale"])
        LIBRARY.relu(at(x), at(y), ctypes.c_int64(x.size), ctypes.c_int32(into["zero_point"]), ratio, *ends)
        return [y]
    weight, bias = np.ascontiguousarray(feeds["weight"]), feeds.get("bias")
    # rounded to float32 once, after the whole product; one for the tensor, or one for each row of weights
    ratio = np.float32(into["scale"] * np.array(case["inputs"]["weight"]["scale"]) / out["scale"])
    ratios = np.ascontiguousarray(np.broadcast_to(ratio, weight.shape[:1]))
    sizes = [ctypes.c_int32(n) for n in (x.shape[0], x.shape[1], weight.shape[0], into["zero_point"])]
    LIBRARY.fully_connected(
        at(x), at(weight), at(bias), at(y), *sizes, at(ratios), *ends, ctypes.c_int32(case["activation"] == "relu")
    )
    return [y]


def at(array):
    """Return where an array lies; None for one that is absent."""
    return None if array is None else ctypes.c_void_p(array.ctypes.data)
