"""Runs graphs on the TOSA reference model and returns the status that the model reports for each run."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np
import tosa_reference_model
from numpy.typing import NDArray

os.environ["PATH"] = os.devnull  # the model looks for a debugger on PATH when it refuses a graph, and would start it


def load(model: bytes, options: Mapping[str, str | int]) -> bytes:  # noqa: ARG001 - the worker has one variant
    """Return the serialized graph, which the model reads anew in every run."""
    return model


def run(session: bytes, feeds: Mapping[str, NDArray[Any]]) -> list[NDArray[Any]]:
    """Return the outputs, then the status; the model raises an error for a graph that it considers invalid."""
    outputs, status = tosa_reference_model.run(session, list(feeds.values()))
    return [*outputs, np.array(status.value)]
