"""Declaration of the room of the platform `ideal`."""

from __future__ import annotations

from pathlib import Path

from quantizer.core.rooms import Room

ROOM = Room(Path(__file__).parent, platforms=("ideal",))
