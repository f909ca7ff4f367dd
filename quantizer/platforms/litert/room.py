"""What the room of LiteRT has."""

from __future__ import annotations

from pathlib import Path

from quantizer.core.rooms import Engine, Room

ROOM = Room(
    Path(__file__).parent,
    platforms=("tflite_builtin", "tflite_ref", "xnnpack"),
    functions=("quantizer.platforms.litert.rules", "quantizer.platforms.litert.kernels"),
    engines=(
        Engine(
            "litert", "quantizer.platforms.litert.engine", "quantizer.platforms.litert.worker", ("ai-edge-litert",),
            {"tflite_ref": "reference", "tflite_builtin": "builtin", "xnnpack": "xnnpack"},
        ),
    ),
)  # fmt: skip
