"""TensorFlow Lite Micro: the reference kernels for microcontrollers, built for this machine."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

from tflite_micro.python.tflite_micro import runtime

NAME, VERSION, FORM, FLOATS = "tflite_micro", version("tflite-micro"), "tflite", False
ARENA = 1 << 24
"""Bytes for all tensors of a model."""


def load(model: bytes, options: dict[str, Any]) -> Any:  # noqa: ARG001 - one set of kernels
    """Return an interpreter; NotImplementedError for a model whose kernels take no tensors of these types."""
    try:
        return runtime.Interpreter.from_bytes(model, arena_size=ARENA)
    except RuntimeError as err:
        if "allocate tensors" in str(err):  # all that it says where a kernel's preparation fails
            raise NotImplementedError(str(err)) from None
        raise


def run(session: Any, feeds: dict[str, Any]) -> list[Any]:
    """Return the first output; inputs are set by their place. A kernel may find only here that it lacks a type."""
    for place, values in enumerate(feeds.values()):
        session.set_input(values, place)
    try:
        session.invoke()
    except RuntimeError as err:
        raise NotImplementedError(f"{err} Its kernel takes no tensors of these types.") from None
    return [session.get_output(0).copy()]
