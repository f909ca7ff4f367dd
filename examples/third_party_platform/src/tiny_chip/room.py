"""What the room of the chip has; quantizer finds it through the entry point in pyproject.toml."""

from pathlib import Path

from quantizer.core import Engine, Oracle, Room

ROOM = Room(
    Path(__file__).parent,
    platforms=("tiny_chip",),
    functions=("tiny_chip.kernels",),
    oracles=(
        Oracle(
            "rectifier",
            "tiny_chip.oracle:relu",
            numbers="tiny_chip.oracle:relu_numbers",
            lost="tiny_chip.oracle:relu_lost",
        ),
    ),
    engines=(
        Engine("tiny_chip", "tiny-chip", "tiny_chip.worker", ("tiny-chip",), {"tiny_chip": "simulator"}, extra=""),
    ),
    forms={"tiny-chip": "tiny_chip.engine"},
)
