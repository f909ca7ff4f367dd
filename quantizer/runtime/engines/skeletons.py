"""What `quantizer engine new` writes: the twenty lines of a worker, for each form."""

from __future__ import annotations

from collections.abc import Mapping

_HEAD = '''"""{name} as an engine under test; docs/engines.md explains each line."""

NAME, VERSION, FORM = "{name}", "0.1", "{form}"
FLOATS = False  # True: it runs float models of the form too
OPERATORS = ["relu"]  # quantizer's names of what it has; remove the line where it has all that the form can express
'''
_NPZ = '''
import json

import numpy as np


def load(model, options):
    """Return the case: its operator, attributes and numbers (docs/engines.md lists the keys)."""
    case = json.loads(model)
    if case["activation"] != "none":
        raise NotImplementedError("it fuses nothing")  # a case that it cannot run is refused, and counted
    return case


def run(case, feeds):
    """Return the output codes; feeds are the codes of the operands by name. Call your simulator here."""
    into, out = case["inputs"]["x"], case["output"]
    real = into["scale"] * np.maximum(feeds["x"].astype(np.int64) - into["zero_point"], 0)
    codes = np.rint(real / out["scale"]) + out["zero_point"]
    return [np.clip(codes, out["lowest"], out["highest"]).astype(out["type"])]
'''
_ONNX = '''
import onnxruntime  # your engine's own package


def load(model, options):
    """Return a session for the bytes of an ONNX file; raise NotImplementedError for what it cannot run."""
    return onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])


def run(session, feeds):
    """Return every output of the graph; feeds are arrays by the names of its inputs."""
    return session.run(None, feeds)
'''
_TFLITE = '''
from ai_edge_litert.interpreter import Interpreter  # your engine's own package


def load(model, options):
    """Return an interpreter for the bytes of a TFLite file; raise NotImplementedError for what it cannot run."""
    interpreter = Interpreter(model_content=model, num_threads=1)
    interpreter.allocate_tensors()
    return interpreter


def run(session, feeds):
    """Return every output of the graph; feeds are arrays by the names of its inputs."""
    for detail in session.get_input_details():
        session.set_tensor(detail["index"], feeds[detail["name"]])
    session.invoke()
    return [session.get_tensor(detail["index"]) for detail in session.get_output_details()]
'''
BODIES: Mapping[str, str] = {"npz": _NPZ, "onnx-qdq": _ONNX, "tflite": _TFLITE}
"""Form -> how a worker loads and runs it."""


def skeleton(name: str, form: str) -> str:
    """Return the worker of an engine called *name* that runs *form*, one of BODIES."""
    return _HEAD.format(name=name, form=form) + BODIES[form]
