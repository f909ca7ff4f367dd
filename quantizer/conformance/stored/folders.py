"""The folders of stored cases: the run's own and, for shipped operators, those of the platforms' rooms."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from quantizer.conformance.setup.options import Options
from quantizer.core.files import is_file, is_folder
from quantizer.core.rooms import Room, room_of, rooms

GOLDEN, REGRESSIONS = "golden", "regressions"


@dataclass(frozen=True)
class Stores:
    """The stored cases of one operator in a run.

    Stored cases of rooms count if the operator's spec is the run's own.
    """

    options: Options
    op: str
    spec: Path
    """The file of the operator's spec."""

    @cached_property
    def _rooms(self) -> tuple[Room, ...]:
        """The rooms whose stored cases count; cached, because collection needs them some eighty times per spec."""
        root = self.options.root.resolve()
        # with another folder of cases, a user keeps stored cases apart from ours
        usual = self.options.cases.resolve() == root / "cases"
        return rooms() if usual and self.spec.resolve().is_relative_to(root) else ()

    @property
    def folders(self) -> list[Path]:
        """The folders of stored cases: the run's own, then those of rooms."""
        return [self.options.cases, *(room.cases for room in self._rooms if is_folder(room.cases))]

    def goldens(self) -> list[Path]:
        """Return the existing files of goldens."""
        return [path for folder in self.folders if is_file(path := folder / GOLDEN / self._golden)]

    def golden(self, platform: str) -> Path:
        """Return the file for a golden on *platform*, which is the room's if the room has its own goldens.

        First goldens are never written into a room that is installed elsewhere, such as a shipped one.
        """
        room = room_of(platform)
        if room is None or room not in self._rooms or not is_folder(room.cases / GOLDEN):
            return self.options.cases / GOLDEN / self._golden
        file = room.cases / GOLDEN / self._golden
        inside = file.resolve().is_relative_to(self.options.root.resolve())
        return file if inside or is_file(file) else self.options.cases / GOLDEN / self._golden

    @property
    def _golden(self) -> str:
        return f"{self.op}.jsonl"

    def regressions(self) -> list[Path]:
        """Return the stored failures, in the order of their names."""
        found = (path for folder in self.folders for path in (folder / REGRESSIONS).glob(f"{self.op}-*.json"))
        return sorted(found, key=lambda path: path.name)

    def defect(self, platform: str, case: str) -> Path:
        """Return the file of the stored *case* for a defect of *platform*."""
        room = room_of(platform)
        if room is not None and room in self._rooms and is_folder((room.cases / case).parent):
            return room.cases / case
        return self.options.cases / case
