"""Rooms: the folders of all that one system alone needs, found through an entry-point group, the built-in ones too.

An entry point of the group names a `Room`, which says where things are and imports none of them: reading platforms needs no torch.
"""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

from quantizer.core.errors import PluginError
from quantizer.core.reading import Readable
from quantizer.core.wording import shown_path

GROUP = "quantizer.platforms"
DISTRIBUTION = "quantizer-conformance"
PROJECT = "pyproject.toml"
CASES_FOLDER = "cases"
_PROJECT = Readable("a pyproject.toml", 1 << 20, PluginError)


@dataclass(frozen=True)
class Room:
    """What one system has, by names; every file of it lies in one folder."""

    folder: Path
    """Where its files are: a platform is `<name>.yaml` there, its schemes are `schemes.yaml`."""
    platforms: tuple[str, ...]
    """The platforms that it declares."""
    functions: tuple[str, ...] = ()
    """Modules that register functions of operators for these platforms, to import before anything runs."""
    name: str = field(default="", compare=False)
    """The name of its entry point."""

    @property
    def files(self) -> tuple[Path, ...]:
        """The files of its platforms."""
        return tuple(self.folder / f"{platform}.yaml" for platform in self.platforms)

    @property
    def cases(self) -> Path:
        """The folder of its stored cases: golden, regressions, defects."""
        return self.folder / CASES_FOLDER


def room_of(platform: str) -> Room | None:
    """Return the room that declares *platform*, None where no room does."""
    return next((room for room in rooms() if platform in room.platforms), None)


@functools.cache
def rooms() -> tuple[Room, ...]:
    """Return every room, sorted by name; PluginError for one that cannot be loaded, and for a name that two have."""
    found: dict[str, Room] = {}
    named: dict[str, EntryPoint] = {}
    owners: dict[str, EntryPoint] = {}
    for entry in sorted(_entries(), key=lambda entry: (entry.name, entry.value)):
        room = _loaded(entry)
        if entry.name in found:
            raise PluginError(f"{_shown(entry)}: {_shown(named[entry.name])} is called so too. Rename one of the two.")
        for platform in room.platforms:
            if platform in owners:
                raise PluginError(
                    f"{_shown(entry)}: platform {platform!r} is declared by {_shown(owners[platform])} too."
                )
        found[entry.name] = room
        named[entry.name] = entry
        owners |= dict.fromkeys(room.platforms, entry)
    return tuple(found.values())


def _loaded(entry: EntryPoint) -> Room:
    try:
        room = entry.load()
    except Exception as err:
        raise PluginError(f"{_shown(entry)}: cannot be loaded: {type(err).__name__}: {err}") from err
    if not isinstance(room, Room):
        raise PluginError(f"{_shown(entry)}: must be a quantizer.core.rooms.Room, got {type(room).__name__}.")
    for file in room.files:
        if not file.is_file():
            raise PluginError(
                f"{_shown(entry)}: {shown_path(file)}: no such file, though the room declares the platform."
            )
    return Room(room.folder.resolve(), room.platforms, room.functions, entry.name)


def _shown(entry: EntryPoint) -> str:
    return f"room {entry.name} ({entry.value}{f' of {entry.dist.name}' if entry.dist else ''})"


def _entries() -> Iterator[EntryPoint]:
    """Yield the entry points of the group; those of a checkout as its pyproject.toml says them now, not when it was installed."""
    own = _declared(Path(__file__).resolve().parents[2] / PROJECT)
    yield from own or ()
    for entry in _once(entry_points(group=GROUP)):
        if own is None or entry.dist is None or entry.dist.name != DISTRIBUTION:
            yield entry


def _once(entries: Iterable[EntryPoint]) -> Iterator[EntryPoint]:
    """Yield each entry point once: a distribution that lies on the path twice counts as one."""
    seen = set()
    for entry in entries:
        key = (entry.name, entry.value, entry.dist.name if entry.dist else "")
        if key not in seen:
            seen.add(key)
            yield entry


def _declared(path: Path) -> list[EntryPoint] | None:
    """Return the entry points that the checkout's own project file declares; None where there is none beside the package."""
    if not path.is_file():
        return None
    try:
        project = tomllib.loads(_PROJECT.text_of(path)).get("project", {})
    except tomllib.TOMLDecodeError as err:
        raise PluginError(f"{shown_path(path)}: cannot be read: {err}") from None
    if project.get("name") != DISTRIBUTION:
        return None
    return [EntryPoint(name, value, GROUP) for name, value in project.get("entry-points", {}).get(GROUP, {}).items()]
