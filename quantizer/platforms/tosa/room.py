"""Declaration of the room of TOSA."""

from __future__ import annotations

from pathlib import Path

from quantizer.core.rooms import Engine, Room

ROOM = Room(
    Path(__file__).parent,
    platforms=("tosa",),
    functions=("quantizer.platforms.tosa.rules", "quantizer.platforms.tosa.kernels"),
    engines=(
        Engine(
            "tosa",
            "tosa",
            "quantizer.platforms.tosa.worker",
            ("tosa-tools",),
            {"tosa": "reference_model"},
            script="quantizer.platforms.tosa.script:script",
        ),
    ),
    forms={"tosa": "quantizer.platforms.tosa.engine"},
    skeletons={"tosa": "quantizer.platforms.tosa.skeleton:BODY"},
    policies="quantizer.platforms.tosa.policies:POLICIES",
)
