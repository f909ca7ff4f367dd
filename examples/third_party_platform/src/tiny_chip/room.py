"""What the room of the chip has; quantizer finds it through the entry point in pyproject.toml."""

from pathlib import Path

from quantizer.core import Engine, Room

ROOM = Room(
    Path(__file__).parent,
    platforms=("tiny_chip",),
    functions=("tiny_chip.kernels",),
    engines=(
        Engine(
            "tiny_chip", "tiny_chip.engine", "tiny_chip.worker", ("tiny-chip",), {"tiny_chip": "simulator"}, extra=""
        ),
    ),
)
