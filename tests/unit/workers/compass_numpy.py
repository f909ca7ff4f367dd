"""A reader of quantized Compass IR of its own, in numpy: fully connected layers and rectifiers from the layer's keys."""

import ast
import io
import zipfile

import numpy as np

NAME, VERSION, FORM, OPERATORS = "compass_numpy", "1.0", "compass-ir", ["fully_connected", "relu"]


def load(model, options):
    files = zipfile.ZipFile(io.BytesIO(model))
    _, *layers = files.read("graph.txt").decode().strip().split("\n\n")
    read = [dict(line.split("=", 1) for line in layer.strip().splitlines()) for layer in layers if layer.strip()]
    (layer,) = [one for one in read if one["layer_type"] != "Input"]
    (source,) = [one for one in read if one["layer_type"] == "Input"]
    return layer, source, files.read("graph.bin")


def number(layer, blob, key):
    """Return a number of the layer: in its text, or an array of the file of constants."""
    if f"{key}_value" in layer:
        return np.int64(layer[f"{key}_value"])
    start, size = int(layer[f"{key}_offset"]), int(layer[f"{key}_size"])
    values = np.frombuffer(blob[start : start + size], layer[f"{key}_type"])
    return values.reshape(ast.literal_eval(layer[f"{key}_shape"])).astype(np.int64)


def ends(layer):
    (zero,), ((low, high),) = (ast.literal_eval(layer[f"layer_top_{key}"]) for key in ("zp", "range"))
    return int(zero), int(low), int(high)


def run(session, feeds):
    layer, source, blob = session
    codes = feeds[source["layer_name"]].astype(np.int64)
    if layer["layer_type"] == "FullyConnected":
        sums = codes @ number(layer, blob, "weights").T + number(layer, blob, "biases")
    else:
        sums = np.maximum(codes + ends(source)[0], 0)
    scale, shift = number(layer, blob, "scale"), number(layer, blob, "shift")
    zero, low, high = ends(layer)
    if layer.get("with_activation", "NONE") not in ("NONE", "RELU"):
        raise NotImplementedError(layer["with_activation"])
    low = max(low, -zero) if layer.get("with_activation") == "RELU" else low
    rounded = np.floor(sums * scale / 2.0**shift + 0.5).astype(np.int64) - zero
    kind = layer["layer_top_type"].strip("[]")
    return [np.clip(rounded, low, high).astype(kind)]
