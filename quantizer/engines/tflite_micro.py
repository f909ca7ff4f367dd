"""TensorFlow Lite Micro: the reference kernels for microcontrollers, built for this machine."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

import numpy as np
from tflite_micro.python.tflite_micro import runtime

NAME, VERSION, FORM, FLOATS = "tflite_micro", version("tflite-micro"), "tflite", False
ARENA = 1 << 24
"""The number of bytes for all tensors of a model."""


def load(model: bytes, options: dict[str, Any]) -> Any:
    """Return an interpreter; NotImplementedError for a model whose kernels take no tensors of these types."""
    try:
        return runtime.Interpreter.from_bytes(model, arena_size=ARENA)
    except RuntimeError as err:
        if "allocate tensors" in str(err):  # the only message if a kernel's preparation fails
            raise NotImplementedError(str(err)) from None
        raise


def run(session: Any, feeds: dict[str, Any]) -> list[Any]:
    """Return the first output; inputs are set by their index.

    A kernel may detect only here that it lacks a type. It then also fails on zeros, and NotImplementedError is raised.
    """
    try:
        _invoke(session, feeds)
    except RuntimeError as err:
        if _takes_zeros(session, feeds):
            raise
        raise NotImplementedError(f"{err} Its kernel fails on zeros too: it lacks these types.") from None
    return [session.get_output(0).copy()]


def _invoke(session: Any, feeds: dict[str, Any]) -> None:
    for place, values in enumerate(feeds.values()):
        session.set_input(values, place)
    session.invoke()


def _takes_zeros(session: Any, feeds: dict[str, Any]) -> bool:
    # a failed invocation leaves the interpreter in an unknown state
    session.reset()
    try:
        _invoke(session, {name: np.zeros_like(values) for name, values in feeds.items()})
    except RuntimeError:
        return False
    return True
