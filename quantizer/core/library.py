"""Loads specs, schemes and platforms from YAML files; an error lists everything that is wrong with a file."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Generic, TypeVar, get_args

from pydantic import ValidationError

from quantizer.core.defect_statements import check_statement
from quantizer.core.errors import SpecError
from quantizer.core.files import is_file, is_folder, resolved
from quantizer.core.grid_rules import check_grids
from quantizer.core.model import Model
from quantizer.core.model_errors import Finding, explain, render
from quantizer.core.platform_rules import check_platform
from quantizer.core.platforms import Platform
from quantizer.core.roles import applies
from quantizer.core.rooms import declared_platforms, rooms
from quantizer.core.schemes import Scheme, Schemes, all_schemes, check_schemes
from quantizer.core.spec import Spec
from quantizer.core.spec_rules import check_spec
from quantizer.core.spec_values import Activation
from quantizer.core.stage_rules import check_stages
from quantizer.core.wording import meant, shown_path, suggestion
from quantizer.core.yaml_source import Location, Positions, load_yaml

MAX_LINES = 2000
"""The largest number of lines of one file.

A platform's file is long because it lists the known defects of each of its engines.
"""
MOST_FILES = 16384
"""The size of the cache of parsed files: a run of up to that many specs reads each file once."""
SCHEMES_FILE = "schemes.yaml"
INSTALLED = "site-packages"
"""The folder where pip puts packages: specs of an installed plugin lie below it."""
PLATFORMS_FOLDER = "platforms"

M = TypeVar("M", bound=Model)
T = TypeVar("T")


@dataclass(frozen=True)
class Library:
    """Every operator, scheme and platform that a run knows, with the files they came from."""

    specs: Mapping[str, Spec]
    """Operator -> its spec."""
    paths: Mapping[str, Path]
    """Operator -> its spec file."""
    positions: Mapping[str, Positions] = field(repr=False)
    """Operator -> the places of its spec's keys, for annotations."""
    schemes: Mapping[str, Scheme]
    """Name -> scheme: the declared combinations, and each activation part by itself."""
    platforms: Mapping[str, Platform]
    platform_paths: Mapping[str, Path]
    """Platform -> its file."""
    platform_positions: Mapping[str, Positions] = field(repr=False)

    def schemes_for(self, spec: Spec, platform: Platform) -> list[str]:
        """Return the names of the schemes under which *platform* runs *spec*, in the platform's order."""
        if platform.ops is not None and spec.op not in platform.ops and platform.ops_named_for not in spec.names:
            return []
        excluded = {item.scheme for item in spec.excludes if item.platform in (None, *platform.places)}
        if None in excluded:
            return []
        return [
            name
            for name in platform.schemes
            if name not in excluded
            and applies(spec, self.schemes[name], platform)
            and (not self.schemes[name].activation.fast or spec.quantization.family in platform.tables.fast)
        ]

    def with_file(self, path: Path) -> Library:
        """Return the library with one more spec file, reading that file only; SpecError as `load_library` raises it."""
        spec, positions = spec_once(path)
        if spec.op in self.specs:
            raise SpecError(_twice("operator", spec.op, self.paths[spec.op], positions))
        if problems := [*_unknown_excludes([_Entry(spec, positions, path)], self.platforms, self.schemes)]:
            raise SpecError("\n".join(problems))
        return replace(
            self,
            specs=MappingProxyType({**self.specs, spec.op: spec}),
            paths=MappingProxyType({**self.paths, spec.op: path}),
            positions=MappingProxyType({**self.positions, spec.op: positions}),
        )

    def without(self, platforms: Collection[str]) -> Library:
        """Return the library without *platforms*."""
        kept = {name: platform for name, platform in self.platforms.items() if name not in platforms}
        return replace(self, platforms=MappingProxyType(kept))

    def spec(self, op: str) -> Spec:
        """Return the spec of *op*; SpecError with the nearest name if it does not exist."""
        if op not in self.specs:
            raise SpecError(f"{op!r}: no such operator.{near_operator(op, self.specs)}")
        return self.specs[op]

    def scheme(self, name: str) -> Scheme:
        """Return the scheme called *name*; SpecError with the nearest name if it does not exist."""
        return _named(self.schemes, name, "scheme")

    def platform(self, name: str) -> Platform:
        """Return the platform called *name*; SpecError with the nearest name if it does not exist."""
        return _named(self.platforms, name, "platform")


def near_operator(word: str, specs: Mapping[str, Spec]) -> str:
    """Return ` Did you mean 'x'?` for the operators that another system calls *word*, else for the nearest name."""
    if word in get_args(Activation):
        return f" Operators fuse {word}; on its own it is the operator clip, with limits."
    called = [op for op, spec in specs.items() if word.lower() in map(str.lower, spec.names.values())]
    return meant(called) if called else suggestion(word, specs, "Known")


def _named(known: Mapping[str, T], name: str, what: str) -> T:
    if name not in known:
        raise SpecError(f"{name!r}: no such {what}.{suggestion(name, known, 'Known')}")
    return known[name]


def schemes_for(spec: Spec, platform: Platform) -> list[str]:
    """Return the names of the shipped schemes under which *platform* runs *spec*."""
    return load_library().schemes_for(spec, platform)


def load_spec(path: Path) -> Spec:
    """Read one operator's spec; SpecError lists everything that is wrong with the file."""
    return read_spec(path)[0]


def read_spec(path: Path) -> tuple[Spec, Positions]:
    """Read one operator's spec and where its keys stand."""
    return read_file(path, Spec, lambda spec: check_spec(spec, path.stem))


def _once(read: Callable[[Path], tuple[M, Positions]]) -> Callable[[Path], tuple[M, Positions]]:
    """Return *read* with a cache that all libraries share. A file is read again if its time or size changed."""

    @functools.lru_cache(maxsize=MOST_FILES)
    def unchanged(path: Path, _modified: int, _size: int) -> tuple[M, Positions]:
        return read(path)

    def once(path: Path) -> tuple[M, Positions]:
        try:
            known = path.stat()
        except OSError:
            return read(path)
        # time and size are arguments only to be part of the cache's key
        return unchanged(path, known.st_mtime_ns, known.st_size)

    return once


def load_schemes(path: Path, before: Schemes | None = None) -> Schemes:
    """Read a file of weight parts, activation parts and their combinations, which may be of parts of *before*, too."""
    return read_file(path, Schemes, functools.partial(check_schemes, before=before or Schemes()))[0]


def read_platform(path: Path) -> tuple[Platform, Positions]:
    """Return the platform in a file and the positions of its keys; SpecError lists all findings."""
    return read_file(path, Platform, lambda platform: check_platform(platform, path.stem))


spec_once = _once(read_spec)
platform_once = _once(read_platform)


def read_file(path: Path, model: type[M], rules: Callable[[M], list[Finding]]) -> tuple[M, Positions]:
    """Read the YAML file at *path* as *model*; SpecError lists all errors of *model*, or else of *rules*."""
    data, positions = load_yaml(path)
    if not isinstance(data, dict):
        raise SpecError(positions.message((), f"must be a mapping with the keys {', '.join(model.model_fields)}."))
    if len(positions.lines) > MAX_LINES:
        raise SpecError(f"{positions.name}: {len(positions.lines)} lines; at most {MAX_LINES} are read.")
    findings = list(_empty_values(data, ()))
    try:
        result = model.model_validate(data)
    except ValidationError as err:
        empty = {finding.location for finding in findings}
        # a key without a value would be reported a second time, as one of the wrong type
        findings += [finding for finding in explain(err, model, data) if finding.location not in empty]
    else:
        # rules need a complete model: with empty values they would fail themselves
        findings = findings or rules(result)
        if not findings:
            return result, positions
    raise SpecError(render(findings, positions)) from None


def _empty_values(value: object, location: Location) -> Iterator[Finding]:
    if value is None:
        yield Finding(location, "has no value. Give one or remove the key.")
    elif isinstance(value, dict | list):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _empty_values(inner, (*location, key))


def shipped_folder() -> Path:
    """Return the folder of the shipped specs: inside the installed package, or next to it in a checkout."""
    package = Path(__file__).resolve().parents[1]
    for folder in (package / "op_specs", package.parent / "op_specs"):
        if folder.is_dir():
            return folder
    raise SpecError(f"{shown_path(package / 'op_specs')}: the shipped specs are missing. Install the package again.")


def load_library(extra_paths: Sequence[Path] = ()) -> Library:
    """Return the shipped specs, schemes and platforms with those of *extra_paths* (folders or spec files) added."""
    return _load_library(tuple(dict.fromkeys(resolved(path) for path in (shipped_folder(), *extra_paths))))


def spec_files(paths: Sequence[Path]) -> list[Path]:
    """Return the spec files of folders (ordered by name) and single files; SpecError if there are none."""
    found: dict[Path, None] = {}
    for path in paths:
        if is_folder(path):
            found |= dict.fromkeys(sorted(p for p in path.glob("*.yaml") if p.name != SCHEMES_FILE))
        elif is_file(path):
            found[path] = None
        else:
            raise SpecError(f"{shown_path(path)}: no such file or folder.")
    return list(found)


def platform_files(paths: Sequence[Path]) -> list[Path]:
    """Return the platform files of folders, in the order of names."""
    return list(dict.fromkeys(file for path in paths for file in sorted((path / PLATFORMS_FOLDER).glob("*.yaml"))))


def shipped_platforms() -> list[Path]:
    """Return the platform files of all rooms, in the order of their names."""
    return sorted((file for room in rooms() for file in room.files), key=lambda file: file.name)


def scheme_files(paths: Sequence[Path]) -> list[Path]:
    """Return the schemes files of the package, of rooms and of *paths*, each once."""
    folders = (shipped_folder(), *(room.folder for room in rooms()), *paths)
    return list(dict.fromkeys(file for folder in folders if is_file(file := folder / SCHEMES_FILE)))


@functools.lru_cache(maxsize=8)
def _load_library(paths: tuple[Path, ...]) -> Library:
    problems: list[str] = []
    specs = collect(spec_files(paths), spec_once, lambda spec: spec.op, "operator", problems)
    platforms = collect(
        dict.fromkeys((*shipped_platforms(), *platform_files(paths))),
        platform_once,
        lambda item: item.platform,
        "platform",
        problems,
    )
    schemes = all_schemes(all_parts(scheme_files(paths), problems))
    # references are checked only between files that could be read
    if not problems:
        problems += _unknown_names(specs, platforms, schemes)
    if problems:
        raise SpecError("\n".join(problems))
    return Library(
        specs=MappingProxyType({op: entry.model for op, entry in specs.items()}),
        paths=MappingProxyType({op: entry.path for op, entry in specs.items()}),
        positions=MappingProxyType({op: entry.positions for op, entry in specs.items()}),
        schemes=MappingProxyType(schemes),
        platforms=MappingProxyType({name: entry.model for name, entry in platforms.items()}),
        platform_paths=MappingProxyType({name: entry.path for name, entry in platforms.items()}),
        platform_positions=MappingProxyType({name: entry.positions for name, entry in platforms.items()}),
    )


@dataclass(frozen=True)
class _Entry(Generic[M]):
    model: M
    positions: Positions
    path: Path


def collect(
    files: Iterable[Path],
    read: Callable[[Path], tuple[M, Positions]],
    name_of: Callable[[M], str],
    what: str,
    problems: list[str],
) -> dict[str, _Entry[M]]:
    """Return name -> model for each file that *read* accepts. Errors and duplicate names are appended to *problems*."""
    found: dict[str, _Entry[M]] = {}
    for path in files:
        try:
            model, positions = read(path)
        except SpecError as err:
            problems.append(str(err))
            continue
        name = name_of(model)
        if name in found:
            problems.append(_twice(what, name, found[name].path, positions))
        else:
            found[name] = _Entry(model, positions, path)
    return found


def _twice(what: str, name: str, first: Path, positions: Positions) -> str:
    """Return the message about a name that the file *first* declares already."""
    step = "Rename one of the two."
    if INSTALLED in first.parts:
        step = "Rename one of the two; if that is your package as it was, install it again."
    text = f"{what} {name!r} is declared in {shown_path(first)} too. {step}"
    return positions.message((what if what == "platform" else "op",), text)


def all_parts(files: Sequence[Path], problems: list[str]) -> Schemes:
    """Return the parts and combinations of all schemes files; a later file may combine the parts of earlier ones."""
    merged = Schemes()
    for file in files:
        try:
            merged = merged.with_added(load_schemes(file, merged))
        except SpecError as err:
            problems.append(str(err))
    return merged


def _unknown_names(
    specs: Mapping[str, _Entry[Spec]], platforms: Mapping[str, _Entry[Platform]], schemes: Mapping[str, Scheme]
) -> Iterator[str]:
    """Yield a message for each scheme, platform, operand or attribute that a file names and that nothing declares."""
    known_specs = {op: entry.model for op, entry in specs.items()}
    for platform in platforms.values():
        if (home := platform.model.functions) is not None and home not in (known := declared_platforms()):
            text = f"{home!r}: no room has a platform of that name.{suggestion(home, known, 'Known')}"
            yield platform.positions.message(("functions",), text)
        for key, names in (("schemes", platform.model.schemes), ("graph_schemes", platform.model.graph_schemes)):
            for index, name in enumerate(names):
                if name not in schemes:
                    text = f"no such scheme.{suggestion(name, schemes, 'Known schemes')}"
                    yield platform.positions.message((key, index), text)
        for one in check_grids(platform.model, schemes):
            yield platform.positions.message(one.location, one.text, key=one.key)
        for index, defect in enumerate(platform.model.defects):
            found = check_statement(defect, known_specs, ("defects", index))
            yield from (platform.positions.message(one.location, one.text, key=one.key) for one in found)
        for op, stages in platform.model.stages.items():
            if op in specs:
                found = check_stages(specs[op].model, stages, ("stages", op))
                yield from (platform.positions.message(one.location, one.text, key=one.key) for one in found)
    yield from _unknown_excludes(specs.values(), platforms, schemes)


def _unknown_excludes(
    specs: Iterable[_Entry[Spec]], platforms: Collection[str], schemes: Mapping[str, Scheme]
) -> Iterator[str]:
    for spec in specs:
        for index, item in enumerate(spec.model.excludes):
            if item.scheme is not None and item.scheme not in schemes:
                text = f"no such scheme.{suggestion(item.scheme, schemes, 'Known schemes')}"
                yield spec.positions.message(("excludes", index, "scheme"), text)
            if item.platform is not None and item.platform not in platforms:
                text = f"no such platform.{suggestion(item.platform, platforms, 'Known platforms')}"
                yield spec.positions.message(("excludes", index, "platform"), text)
