"""Rooms: one folder per system with everything that only this system needs; all are found through an entry-point group.

An entry point of the group names a `Room`, which says where things are without importing them: reading platforms needs
no torch.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

from quantizer.core.errors import PluginError
from quantizer.core.reading import Readable
from quantizer.core.wording import shown_path

GROUP = "quantizer.platforms"
ENGINES = "quantizer.engines"
"""The group of engines that belong to no room: each names an `Engine`."""
LAYER_FORMATS = "quantizer.layer_formats"
"""The group of file formats whose layers are described by specs. Each entry names the module that reads and writes
it."""
UNRELEASED_ENGINE = "own"
"""The name of the engine `builtin` in builds before the first release."""
DISTRIBUTION = "quantizer-conformance"
PROJECT = "pyproject.toml"
CASES_FOLDER = "cases"
WHOLE_MODELS = "onnx-qdq"
"""The form whose workers run any ONNX file."""
SHARED_FORMS: Mapping[str, str] = {
    WHOLE_MODELS: "quantizer.runtime.engines.forms.onnx_qdq",
    "npz": "quantizer.runtime.engines.forms.npz",
}
"""Form of models that belongs to no system -> the module that lowers cases to it."""
_PROJECT = Readable("a pyproject.toml", 1 << 20, PluginError)


@dataclass(frozen=True)
class Pin:
    """One variable of a worker's environment, read when the library is first used."""

    variable: str
    values: Mapping[str, str]
    """Level -> the value that restricts the library to it."""
    library: str = ""
    """The library's name in defects; empty if the variable does not concern instruction sets."""
    leaves: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Value, in lower case -> the instruction sets that the library may then use. Any other value permits all."""


@dataclass(frozen=True)
class Pins:
    """Environment variables that restrict an engine to an instruction-set level."""

    pins: tuple[Pin, ...]
    provided_on: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """Variant -> (an instruction set, another variant). Without that set the system itself uses the other variant. It
    asks the processor, not a variable, so that at a lower level we call the other variant, as it would.
    """


NONE = Pins(())
"""The pins of an engine that has no switches for instruction sets."""


@dataclass(frozen=True)
class Engine:
    """A real system: the packages that it needs, and which of its variants computes which platform.

    Nothing is imported.
    """

    name: str
    """The engine's name for `--op-engine`."""
    form: str
    """The form of models that it runs, one of `forms()`."""
    worker: str
    """The module or Python file that runs these models in a separate process (quantizer.runtime.engines.serve)."""
    distributions: tuple[str, ...]
    """Distributions that must be installed. The first one provides the version."""
    variant_of_platform: Mapping[str, str]
    """Platform -> the variant of the system that computes it."""
    extra: str = "engines"
    """The extra of this package that installs it; empty: its own distribution installs it."""
    pins: Pins = NONE
    """The environment variables that restrict its instruction sets."""
    guest: bool = False
    """Whether it may also be judged on a platform that is not its own, if the run names one."""
    models: str = ""
    """The module that runs whole ONNX models in a separate process, plain or `optimized`; empty if there is none."""
    threads: bool = False
    """Whether its worker reads the option `threads`: the number of threads of a session, by default 1."""
    title: str = ""
    """Its name in sentences."""
    script: str = ""
    """`module:function` that writes the lines of a stand-alone script on the system's own API
    (quantizer.runtime.engines.scripts); empty if there is none."""

    def __post_init__(self) -> None:
        """Raise PluginError for a name that only files of unreleased builds use."""
        if self.name == UNRELEASED_ENGINE:
            raise PluginError(f"engine {self.name!r}: earlier builds called their own engine so. Choose another name.")


@dataclass(frozen=True)
class Oracle:
    """A room's second implementation of an operator, which judges it, as `module:function`.

    It is not imported here. It replaces the generic judge. Its module may import only numpy, core and
    quantizer.conformance.oracle.
    """

    family: str
    """The family of operators that it judges, as specs name it (`quantization.family`)."""
    codes: str
    """Asked -> the output's codes before clamping; None for a case that the generic arithmetic judges."""
    entries: str = ""
    """Asked, name of a table -> its entries; None if the table is judged by the function that it tabulates."""
    numbers: str = ""
    """Asked -> integers of the rule, by name."""
    lost: str = ""
    """Asked -> the error, in steps, that `accuracy` allows each code in addition to half a step: further roundings,
    lost low bits."""
    platforms: tuple[str, ...] = ()
    """The room's platforms on which it judges; empty: all."""


@dataclass(frozen=True)
class Flow:
    """The system's own tools, through which `pipeline` runs a case, as `module:function`.

    They are not imported here.
    """

    writes: str
    """Trial -> the tools' input, by name: plain data and tensors. It runs in the judge."""
    runs: str
    """Spec, platform and the written input -> the codes from the tools, a tensor of integers. It runs in the process of
    the functions under test (for a plugin, the plugin process).
    """


@dataclass(frozen=True)
class Room:
    """Declaration of a room: platforms, functions, oracles, engine and form of one system, by module and file name."""

    folder: Path
    """The folder of its files: `<name>.yaml` for each platform, and `schemes.yaml`."""
    platforms: tuple[str, ...]
    """The platforms that it declares."""
    functions: tuple[str, ...] = ()
    """Modules that register functions of operators for these platforms, to import before anything runs."""
    oracles: tuple[Oracle, ...] = ()
    """Oracles for operators that the generic arithmetic does not describe."""
    engines: tuple[Engine, ...] = ()
    """The real systems that compute these platforms."""
    forms: Mapping[str, str] = field(default_factory=dict)
    """Form of models -> the module that lowers cases to it (quantizer.runtime.engines.lowering)."""
    skeletons: Mapping[str, str] = field(default_factory=dict)
    """Form of models -> the text that `quantizer engine new` writes below the head of a worker, as `module:text`."""
    names: tuple[str, ...] = ()
    """Further systems for which specs may list operator names under `names`."""
    flow: Flow | None = None
    """The flow that `pipeline` runs; None: the system has no tools that run a case."""
    exports: Mapping[str, str] = field(default_factory=dict)
    """Format of the system's tools -> the function that writes a case in it, as `module:function`
    (`conformance.failures.exported`)."""
    faults: str = ""
    """Faults in the room's own functions, as `module:tuple`: `quantizer faults` plants them in addition to its own."""
    policies: str = ""
    """Tolerances of the system's own tests, as `module:tuple`: `quantizer faults` counts the faults that they find."""
    graphs: str = ""
    """The platform that is the default for quantized graphs of ONNX operators; only one room may name it."""
    name: str = field(default="", compare=False)
    """The name of its entry point."""
    origin: str = field(default="", compare=False)
    """Its entry point and distribution, in the words of messages."""

    @property
    def files(self) -> tuple[Path, ...]:
        """The files of its platforms."""
        return tuple(self.folder / f"{platform}.yaml" for platform in self.platforms)

    @property
    def cases(self) -> Path:
        """The folder of its stored cases: goldens, regressions, defects."""
        return self.folder / CASES_FOLDER


@functools.cache
def loaded(place: str) -> Any:
    """Return the object that a room names as `module:name`; PluginError if it cannot be imported."""
    module, _, name = place.partition(":")
    try:
        return getattr(importlib.import_module(module), name)
    except Exception as err:
        raise PluginError(f"{place}: cannot be imported: {type(err).__name__}: {err}") from err


def room_of(platform: str) -> Room | None:
    """Return the room that declares *platform*, None if no room does."""
    return next((room for room in rooms() if platform in room.platforms), None)


def declared_platforms() -> tuple[str, ...]:
    """Return the platforms that rooms declare, in the order of rooms."""
    return tuple(platform for room in rooms() for platform in room.platforms)


def graph_platform() -> str:
    """Return the default platform of a quantized ONNX graph; PluginError unless exactly one room declares it."""
    named = [room for room in rooms() if room.graphs]
    if len(named) == 1:
        return named[0].graphs
    if not named:
        raise PluginError("no room says which platform a quantized graph has by default. Name a platform.")
    raise PluginError(
        f"rooms {named[0].name} and {named[1].name}: both say which platform a quantized graph has by default."
    )


def oracle_of(family: str, places: Iterable[str]) -> Oracle | None:
    """Return the oracle of an operator family, from the first of *places* that has one; None: the generic judge.

    places: the names of one platform (`Platform.places`).
    """
    named = ((name, room) for name in places if (room := room_of(name)) is not None)
    known = ((name, oracle) for name, room in named for oracle in room.oracles if oracle.family == family)
    # an oracle without platforms judges each of them
    return next((oracle for name, oracle in known if name in (oracle.platforms or (name,))), None)


def engines() -> Mapping[str, Engine]:
    """Return the real engines of all rooms and entry points by name; PluginError if two share a name."""
    found: dict[str, Engine] = {}
    known = forms()
    listed = [(f"room {room.name}", engine) for room in rooms() for engine in room.engines]
    listed += _guests()
    for origin, engine in listed:
        if engine.name in found:
            raise PluginError(f"{origin}: engine {engine.name!r}: the name is taken. Rename one of the two.")
        if engine.form not in known:
            raise PluginError(
                f"{origin}: engine {engine.name}: form {engine.form!r}: no such form. Known: {', '.join(known)}."
            )
        found[engine.name] = engine
    return found


def forms() -> Mapping[str, str]:
    """Return the module that lowers cases to each form of models; PluginError if two modules have the same form."""
    found = dict(SHARED_FORMS)
    for room in rooms():
        if twice := sorted(found.keys() & room.forms.keys()):
            raise PluginError(f"room {room.name}: form {twice[0]!r}: the name is taken. Rename one of the two.")
        found |= room.forms
    return found


def speaks_for_itself(engine: Engine) -> bool:
    """Return whether a worker's greeting says which operators it has, and whether it runs float models.

    A form of the room that declares the engine says both, because no other system has it.
    """
    own = [room for room in rooms() if engine in room.engines and engine.form in room.forms]
    return not own


@functools.cache
def layer_formats() -> Mapping[str, str]:
    """Return the module of each file format, by its name in specs; PluginError if two formats have the same name."""
    found: dict[str, str] = {}
    for entry in sorted(_entries(LAYER_FORMATS), key=lambda entry: (entry.name, entry.value)):
        if entry.name in found:
            raise PluginError(f"file format {_origin(entry)}: another is called so too. Rename one of the two.")
        found[entry.name] = entry.value
    return found


@functools.cache
def _guests() -> tuple[tuple[str, Engine], ...]:
    """Return the engines that belong to no room, each with its entry point, in the order of names."""
    return tuple(
        (f"entry point {_origin(entry)}", _engine(entry))
        for entry in sorted(_entries(ENGINES), key=lambda entry: entry.name)
    )


def _engine(entry: EntryPoint) -> Engine:
    try:
        engine = entry.load()
    except Exception as err:
        raise PluginError(f"engine {_origin(entry)}: cannot be loaded: {type(err).__name__}: {err}") from err
    if not isinstance(engine, Engine):
        raise PluginError(
            f"engine {_origin(entry)}: must be a quantizer.core.rooms.Engine, got {type(engine).__name__}."
        )
    return engine


@functools.cache
def rooms() -> tuple[Room, ...]:
    """Return every room, sorted by name; PluginError for a room that cannot be loaded, and for duplicate names."""
    found: dict[str, Room] = {}
    named: dict[str, EntryPoint] = {}
    owners: dict[str, EntryPoint] = {}
    # sorted, because their order depends on the installation
    for entry in sorted(_entries(GROUP), key=lambda entry: (entry.name, entry.value)):
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
    for oracle in room.oracles:
        if foreign := sorted(set(oracle.platforms) - set(room.platforms)):
            raise PluginError(
                f"{_shown(entry)}: oracle of {oracle.family}: platform {foreign[0]!r} is not of this room."
            )
        _check_places(
            f"{_shown(entry)}: oracle of {oracle.family}", oracle.codes, oracle.entries, oracle.numbers, oracle.lost
        )
    if room.flow is not None:
        _check_places(f"{_shown(entry)}: flow", room.flow.writes, room.flow.runs)
    _check_places(_shown(entry), room.faults, room.policies, *room.exports.values(), *room.skeletons.values())
    if room.graphs and room.graphs not in room.platforms:
        raise PluginError(f"{_shown(entry)}: graphs: platform {room.graphs!r} is not of this room.")
    for engine in room.engines:
        if foreign := sorted(engine.variant_of_platform.keys() - set(room.platforms)):
            raise PluginError(f"{_shown(entry)}: engine {engine.name}: platform {foreign[0]!r} is not of this room.")
    return replace(room, folder=room.folder.resolve(), name=entry.name, origin=_shown(entry))


def _check_places(where: str, *places: str) -> None:
    """Raise PluginError for a non-empty place that is not written as `module:name`."""
    for place in filter(None, places):
        # one of module, colon and name is empty
        if not all(place.partition(":")):
            raise PluginError(f"{where}: {place!r}: write module:function.")


def _shown(entry: EntryPoint) -> str:
    return f"room {_origin(entry)}"


def _origin(entry: EntryPoint) -> str:
    return f"{entry.name} ({entry.value}{f' of {entry.dist.name}' if entry.dist else ''})"


def _entries(group: str) -> Iterator[EntryPoint]:
    """Yield the entry points of a group; a checkout's come from its present pyproject.toml."""
    # an editable installation keeps the entry points of the day it was made
    own = _declared(Path(__file__).resolve().parents[2] / PROJECT, group)
    yield from own or ()
    for entry in _once(entry_points(group=group)):
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


def _declared(path: Path, group: str) -> list[EntryPoint] | None:
    """Return the entry points that the checkout's own project file declares; None without such a file."""
    if not path.is_file():
        return None
    project = _table(_PROJECT.toml_of(path), "project")
    if project.get("name") != DISTRIBUTION:
        return None
    named = _table(_table(project, "entry-points"), group)
    return [EntryPoint(name, str(value), group) for name, value in named.items()]


def _table(found: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return a table of *found*; an empty one if there is no such table."""
    table = found.get(name)
    return table if isinstance(table, dict) else {}
