"""Declaration of the room of TpuLang."""

from __future__ import annotations

from pathlib import Path

from quantizer.core.rooms import Room

ROOM = Room(Path(__file__).parent, platforms=("tpulang",))
