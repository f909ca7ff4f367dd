"""Files for a system's own tools: a room writes them beside `case.npz` (`core.rooms.Room.exports`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from quantizer.conformance.trials.trial import Array, Trial
from quantizer.core.errors import UnsupportedError
from quantizer.core.rooms import loaded, rooms

Content = str | bytes | Array | Mapping[str, Array]
"""The content of a file: text, bytes, an array for a .npy file, or arrays by name for a .npz file."""


@dataclass(frozen=True)
class Exported:
    """The files of a case by name, and the user's next step, in which `{folder}` stands for their folder."""

    files: Mapping[str, Content]
    step: str


def exported(trial: Trial) -> Iterator[tuple[str, Exported | str]]:
    """Yield the name of each form with the files that its room writes for a case, or the reason why it cannot."""
    for room in rooms():
        for name, place in room.exports.items():
            try:
                yield name, loaded(place)(trial)
            except UnsupportedError as err:
                yield name, str(err)
