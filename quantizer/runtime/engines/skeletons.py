"""The short workers that `quantizer engine new` writes, one for each form."""

from __future__ import annotations

from collections.abc import Mapping

from quantizer.core.rooms import loaded, rooms

_HEAD = '''"""{name} as an engine under test; docs/engines.md explains each line."""

NAME, VERSION, FORM = "{name}", "0.1", "{form}"
FLOATS = False  # True: it runs float models of the form too
OPERATORS = ["{operator}"]  # quantizer's names of what it has; no line: all that the form can express
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
import onnx
from onnx import version_converter
from onnx.reference import ReferenceEvaluator  # your engine's own package


def load(model, options):
    """Return a session for the bytes of an ONNX file; raise NotImplementedError for what it cannot run."""
    return ReferenceEvaluator(version_converter.convert_version(onnx.load_from_string(model), 21))


def run(session, feeds):
    """Return every output of the graph; feeds are arrays by the names of its inputs."""
    return session.run(None, feeds)
'''
_SHARED: Mapping[str, str] = {"npz": _NPZ, "onnx-qdq": _ONNX}


FIRST = "add"
"""The operator of a new worker. Every form can express it."""
_FIRST: Mapping[str, str] = {"npz": "relu"}


def first_operator(form: str) -> str:
    """Return the operator that a worker of *form* computes as it is written."""
    return _FIRST.get(form, FIRST)


def only_platform(form: str) -> str:
    """Return the platform that *form* implies: the only one of its room; "" if it implies none."""
    platforms = [room.platforms for room in rooms() if form in room.skeletons]
    return platforms[0][0] if platforms and len(platforms[0]) == 1 else ""


def bodies() -> Mapping[str, str]:
    """Return form -> the text of a worker's `load` and `run`, for shared forms and forms of rooms."""
    of_rooms = {form: loaded(place) for room in rooms() for form, place in room.skeletons.items()}
    return {**_SHARED, **of_rooms}


def skeleton(name: str, form: str) -> str:
    """Return the worker of an engine called *name* that runs *form*, one of `bodies`."""
    return _HEAD.format(name=name, form=form, operator=first_operator(form)) + bodies()[form]
