"""Declaration of the room of enclosing platforms."""

from __future__ import annotations

from pathlib import Path

from quantizer.core.rooms import Room

ROOM = Room(Path(__file__).parent, platforms=("float32_any_order",))
