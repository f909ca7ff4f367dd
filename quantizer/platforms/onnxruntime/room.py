"""What the room of ONNX Runtime has."""

from __future__ import annotations

from pathlib import Path

from quantizer.core.rooms import Engine, Room

ROOM = Room(
    Path(__file__).parent,
    platforms=("ort",),
    engines=(
        Engine(
            "onnxruntime", "quantizer.platforms.onnxruntime.engine", "quantizer.platforms.onnxruntime.worker",
            ("onnxruntime", "onnx"), {"ort": "cpu"},
        ),
    ),
)  # fmt: skip
