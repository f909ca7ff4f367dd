"""`quantizer spec lint`: all findings on files of specs, schemes and platforms, and on references between them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from quantizer.core.arithmetics import is_copy, refusals, runs
from quantizer.core.errors import SpecError
from quantizer.core.files import is_file, resolved
from quantizer.core.library import (
    PLATFORMS_FOLDER,
    SCHEMES_FILE,
    Library,
    all_parts,
    collect,
    load_library,
    near_operator,
    platform_files,
    read_platform,
    read_spec,
    scheme_files,
    shipped_folder,
    spec_files,
)
from quantizer.core.platforms import Platform
from quantizer.core.rooms import Room, room_of, rooms
from quantizer.core.setting_rules import setting_problems
from quantizer.core.wording import shown_path, suggestion
from quantizer.core.yaml_source import Location


def unused_names(library: Library) -> Iterator[str]:
    """Yield a message for each operator or family that a platform or an oracle names and that no spec has.

    Such a rule is never applied. It does no harm, so only `quantizer spec lint` reports it.
    """
    own = {spec.quantization.family for spec in library.specs.values()}
    families = own | {"default"}
    families |= {name for spec in library.specs.values() for form in spec.formats.values() for name in form.fuses}
    for name, platform in library.platforms.items():
        positions = library.platform_positions[name]
        for location, op in _operators_named(platform):
            if op not in library.specs:
                text = f"no such operator.{near_operator(op, library.specs)}"
                yield positions.message(location, text, key=location[-1] == op)
        for location, family in _families_named(platform):
            if family not in families and family not in platform.activations:
                text = _no_family(family, families, library)
                yield positions.message(location, text, key=location[-1] == family)
    for room in rooms():
        for oracle in room.oracles:
            if oracle.family not in own:
                yield f"{room.origin}: oracle of {oracle.family}: {_no_family(oracle.family, own, library)}"


def _no_family(name: str, families: Collection[str], library: Library) -> str:
    """Return a message about a family that no operator has.

    If *name* is an operator, it suggests that operator's family, else the nearest family.
    """
    if (spec := library.specs.get(name)) is not None:
        return f"no operator is of that family. Write {spec.quantization.family}: {name} is of that family."
    return f"no operator is of that family.{suggestion(name, sorted(families), 'Known')}"


def _operators_named(platform: Platform) -> Iterator[tuple[Location, str]]:
    yield from ((("ops", index), op) for index, op in enumerate(platform.ops or []))
    yield from ((("fixed_outputs", op), op) for op in platform.fixed_outputs)
    yield from ((("fixed_ranges", op), op) for op in platform.fixed_ranges)
    yield from ((("full_range_outputs", index), op) for index, op in enumerate(platform.full_range_outputs))
    yield from ((("padded_tiles", op), op) for op in platform.padded_tiles)
    yield from ((("stages", op), op) for op in platform.stages)
    sums = platform.accumulator.float32_sums
    yield from ((("accumulator", "float32_sums", index), op) for index, op in enumerate(sums))
    for index, order in enumerate(platform.accumulator.any_order):
        yield from ((("accumulator", "any_order", index, "ops", place), op) for place, op in enumerate(order.ops))
    for index, defect in enumerate(platform.defects):
        yield from ((("defects", index, "ops", place), op) for place, op in enumerate(defect.ops or ()))


FAMILY_LISTS = (
    "absorbs_zero_point",
    "ones_complement_outputs",
    "per_channel_weights",
    "per_tensor_weights",
    "same_as_equal_inputs",
    "same_as_input",
    "shared_parameters",
    "unit_range_above_8_bits",
    "clamp_range_to_output_limits",
)
FAMILY_KEYS = (
    "aligned_within",
    "bias_effective_bits",
    "graph_requantize",
    "output_signs",
    "requantize",
    "variants",
    "weight_bits",
)


def _families_named(platform: Platform) -> Iterator[tuple[Location, str]]:
    """Yield the place and the name of each operator family that *platform* has a rule for."""
    lists: dict[Location, Sequence[str]] = {(key,): getattr(platform, key) for key in FAMILY_LISTS}
    lists |= {
        ("multiplier", "own_shifts"): platform.multiplier.own_shifts,
        ("multiplier", "unscaled"): platform.multiplier.unscaled,
        ("tables", "no_guard_entry"): platform.tables.no_guard_entry,
        ("accumulator", "float32"): platform.accumulator.float32,
    }
    keyed: dict[Location, Mapping[str, object]] = {(key,): getattr(platform, key) for key in FAMILY_KEYS}
    keyed |= {("multiplier", "ratio"): platform.multiplier.ratio, ("tables", "fast"): platform.tables.fast}
    lists |= {("scheme_families", name): families for name, families in platform.scheme_families.items()}
    for location, names in lists.items():
        yield from (((*location, index), family) for index, family in enumerate(names))
    for location, rules in keyed.items():
        yield from (((*location, family), family) for family in rules)


def lint(paths: Sequence[Path] = (), known: Sequence[Path] = ()) -> tuple[list[str], dict[str, int]]:
    """Return all findings on files and folders (the shipped ones if *paths* is empty), and the files that were read.

    known: further folders of specs, whose operators the files may name.
    References between files are checked only after each file is valid by itself.
    """
    problems: list[str] = []
    shipped = shipped_folder().resolve()
    found = [_files_at(resolved(path)) for path in paths or [shipped, *(room.folder for room in rooms())]]
    for path, files in zip(paths, found, strict=False):
        if not files.count:
            problems.append(f"{shown_path(path)}: holds no spec. Name a folder with *.yaml files.")
    specs = list(dict.fromkeys(file for files in found for file in files.specs))
    platforms = list(dict.fromkeys(file for files in found for file in files.platforms))
    schemes = list(dict.fromkeys(file for files in found for file in files.schemes))
    collect(specs, read_spec, lambda spec: spec.op, "operator", problems)
    collect(platforms, read_platform, lambda item: item.platform, "platform", problems)
    all_parts(scheme_files([file.parent for file in schemes]), problems)
    # a broken file would give follow-up errors in every file that refers to it
    if not problems:
        try:
            library = load_library([*(files.root for files in found if files.root is not None), *known])
            problems += unused_names(library)
            problems += _refused(library, platforms)
        except SpecError as err:
            problems.append(str(err))
    return problems, {"spec": len(specs), "platform": len(platforms), "schemes file": len(schemes)}


def others(paths: Sequence[Path], known: Sequence[Path]) -> list[Path]:
    """Return the folders of *known* that hold none of the operators in *paths*: these are linted as they stand."""
    named = {file.stem for path in paths for file in _files_at(resolved(path)).specs}
    return [folder for folder in known if not named & {file.stem for file in spec_files([folder])}]


def linted_platforms(paths: Sequence[Path] = ()) -> list[tuple[str, Path | None]]:
    """Return the platforms whose files `lint` reads, each with the folder that a library must read to know it."""
    found = [_files_at(resolved(path)) for path in paths or (room.folder for room in rooms())]
    return [(file.stem, files.root) for files in found for file in files.platforms]


PACKAGE = Path(__file__).resolve().parents[1]


def _refused(library: Library, files: Sequence[Path]) -> Iterator[str]:
    """Yield a message for each operator that built-in functions cannot compute on a platform of *files*.

    A room from outside may bring its own functions and oracles. So only generic requantizations are refused there, and
    only in families whose oracle has no `numbers`: then the built-in rule provides them.
    """
    for file in files:
        platform = library.platforms.get(file.stem)
        if platform is None or PACKAGE in resolved(file).parents:
            continue
        specs, room = list(library.specs.values()), room_of(platform.platform)
        if room is not None:
            judged = {
                oracle.family
                for oracle in room.oracles
                if oracle.numbers and platform.platform in (oracle.platforms or room.platforms)
            }
            specs = [spec for spec in specs if spec.quantization.family not in judged]
        positions = library.platform_positions[platform.platform]
        home = library.platforms.get(platform.functions or "")
        for place, text in refusals(platform, specs, home, generic=room is not None):
            yield positions.message(place, text)
        if home is None or not is_copy(platform, home):
            there = [spec for spec in specs if runs(platform, spec)]
            for place, text in setting_problems(platform, there, library.schemes):
                yield positions.message(place, text)


@dataclass(frozen=True)
class _Files:
    """The files of one folder, or the one file that was named."""

    root: Path | None
    """The folder that the library must read for these files; None for files of rooms, which it always reads."""
    specs: Sequence[Path] = ()
    platforms: Sequence[Path] = ()
    schemes: Sequence[Path] = ()

    @property
    def count(self) -> int:
        return len(self.specs) + len(self.platforms) + len(self.schemes)


def _files_at(path: Path) -> _Files:
    if (room := _room_at(path)) is not None:
        own = [
            file for file in (*room.files, room.folder / SCHEMES_FILE) if path in (file, room.folder) and is_file(file)
        ]
        platforms, schemes = ([file for file in own if (file.name == SCHEMES_FILE) is kind] for kind in (False, True))
        return _Files(None, platforms=platforms, schemes=schemes)
    if is_file(path) and path.parent.name == PLATFORMS_FOLDER:
        return _Files(path.parent.parent, platforms=[path])
    if is_file(path) and path.name == SCHEMES_FILE:
        return _Files(path.parent, schemes=[path])
    schemes = [path / SCHEMES_FILE] if is_file(path / SCHEMES_FILE) else []
    return _Files(path, spec_files([path]), platform_files([path]), schemes)


def _room_at(path: Path) -> Room | None:
    """Return the room to which the folder or file *path* belongs."""
    named = (room for room in rooms() if path in (room.folder, *room.files, room.folder / SCHEMES_FILE))
    return next(named, None)
