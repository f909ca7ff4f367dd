"""Declaration of the room of the Compass Optimizer."""

from __future__ import annotations

from pathlib import Path

from quantizer.core.rooms import Room

ROOM = Room(
    Path(__file__).parent,
    platforms=("compass",),
    functions=("quantizer.platforms.compass.rules", "quantizer.platforms.compass.kernels"),
)
