"""What the room of PyTorch has."""

from __future__ import annotations

from pathlib import Path

from quantizer.core.rooms import Room

ROOM = Room(Path(__file__).parent, platforms=("torch_fbgemm", "torch_qnnpack", "torch_x86"))
