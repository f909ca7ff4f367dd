"""tract, Sonos' engine in Rust."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import tract

NAME, VERSION, FORM, FLOATS = "tract", tract.version(), "onnx-qdq", True


def load(model: bytes, options: dict[str, Any]) -> Any:
    """Return a runnable model; tract reads files."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "case.onnx"
        path.write_bytes(model)
        return tract.onnx().load(str(path)).into_model().into_runnable()


def run(session: Any, feeds: dict[str, Any]) -> list[Any]:
    """Return every output of the graph; inputs are given in the model's order."""
    return [value.to_numpy() for value in session.run(list(feeds.values()))]
