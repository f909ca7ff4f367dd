"""What the room of LiteRT has."""

from __future__ import annotations

from pathlib import Path

from quantizer.core.rooms import Room

ROOM = Room(Path(__file__).parent, platforms=("tflite_builtin", "tflite_ref", "xnnpack"))
