"""What the room of the enclosing platforms has."""

from __future__ import annotations

from pathlib import Path

from quantizer.core.rooms import Room

ROOM = Room(Path(__file__).parent, platforms=("float32_any_order",))
