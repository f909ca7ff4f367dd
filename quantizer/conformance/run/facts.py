"""Gathers the facts for run.json: versions, files, selection, declared exceptions, the commit."""

from __future__ import annotations

import hashlib
import platform as machine
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from quantizer import __version__
from quantizer.conformance.setup.options import Options
from quantizer.conformance.setup.xfails import read_xfails
from quantizer.core.errors import UnsupportedError
from quantizer.core.facts import ExceptionFacts, Facts, PluginFacts, SpecFacts, TreeFacts
from quantizer.core.files import is_file
from quantizer.core.library import Library, platform_files, scheme_files, shipped_folder, shipped_platforms
from quantizer.core.reading import Readable
from quantizer.core.rooms import rooms
from quantizer.core.spec import Spec
from quantizer.core.yaml_source import YAML, Positions
from quantizer.plugins.discovery import Plugin
from quantizer.runtime.engines.catalogue import files as files_of_engine

PACKAGES = ("hypothesis", "numpy", "torch")
"""Packages, other than this one, that influence the numbers of a run."""
JUDGED = Readable("a file of what is judged", 1 << 30, UnsupportedError)


def run_facts(
    options: Options,
    library: Library,
    plugins: Sequence[Plugin],
    specs: Mapping[str, SpecFacts],
    *,
    seed: int | None,
    selection: Sequence[str],
) -> Facts:
    """Return the facts of a run; *specs*: facts of its operators; *selection*: options that left items out."""
    real = options.real
    return Facts(
        quantizer=__version__,
        python=machine.python_version(),
        packages={name: _version(name) for name in PACKAGES},
        engine=f"{options.under_test} {real.version or ''}".strip() if real else options.engine,
        greeting={} if real is None or real.greeting is None else real.greeting.told(),
        judged=_judged(options),
        isa=list(filter(None, options.levels)),
        profile=options.profile,
        seed=seed,
        checks=list(options.checks),
        selection=list(selection),
        arguments=options.arguments.strip(),
        files=_files(options),
        specs=dict(sorted(specs.items())),
        plugins=[_plugin(plugin, options.root) for plugin in plugins],
        exceptions=_exceptions(options, library),
        in_process=options.in_process,
        readings=[
            f"{op}/{platform}:{reading}"
            for op, known in sorted(specs.items())
            for platform, reading in sorted(known.readings.items())
        ],
        tree=tree_of(options.root),
        shard=str(options.shard or ""),
    )


def spec_facts(path: Path, known: Path, options: Options, spec: Spec, positions: Positions) -> SpecFacts:
    """Return the facts of a run about one spec; *known*: the library's file, of which *path* may be a copy."""
    root = options.root
    return SpecFacts(
        version=spec.version,
        path=shown(path, root),
        sha256=_digest(path),
        lines={str(key[0]): mark.line for key, mark in positions.keys.items() if len(key) == 1},
        readings=dict(spec.readings),
        shipped=path.resolve().is_relative_to(shipped_folder().resolve())
        and not path.resolve().is_relative_to(root.resolve()),
        path_only=path.resolve() == known.resolve() and named_by_path_alone(path, options),
    )


def named_by_path_alone(path: Path, options: Options) -> bool:
    """Return whether a command must name the spec at *path*: it is neither shipped nor below an option's folder."""
    folders = (folder.resolve() for folder in (shipped_folder(), *options.specs))
    return not any(path.resolve().is_relative_to(folder) for folder in folders)


def shown(path: Path, root: Path) -> str:
    """Return *path* relative to the run's root or to the shipped specs, so that it is the same on every machine."""
    resolved = path.resolve()
    for base in (root.resolve(), shipped_folder().resolve().parent):
        if resolved.is_relative_to(base):
            return resolved.relative_to(base).as_posix()
    return str(resolved)


def tree_of(root: Path) -> TreeFacts | None:
    """Return the commit that is checked out at *root*; None if it lies in no git repository."""
    answer = _git(root, "log", "-1", "--format=%H %T %cs").split()
    if len(answer) != 3:
        return None
    # untracked files are outputs of runs more often than changes
    changed = _git(root, "status", "--porcelain", "--untracked-files=no")
    return TreeFacts(commit=answer[0], tree=answer[1], date=answer[2], clean=not changed)


def _git(root: Path, *words: str) -> str:
    command = ["git", "-C", str(root), *words]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()  # noqa: S603
    except OSError:
        return ""


def _files(options: Options) -> dict[str, str]:
    folders = [path for path in options.specs if path.is_dir()]
    files = {
        shown(path, options.root): path
        for path in (*scheme_files(folders), *shipped_platforms(), *platform_files(folders))
    }
    # files of rooms are named by their room, since several rooms may have files of one name
    files = {name: path for name, path in files.items() if path.parent not in {room.folder for room in rooms()}}
    files |= {f"platforms/{room.name}/{file.name}": file for room in rooms() for file in room.files}
    return {name: _digest(path) for name, path in files.items()}


def _judged(options: Options) -> dict[str, str]:
    """Return the digests of plugin files, and of the files of a user's own engine, that lie below the root."""
    own = options.real is not None and options.real.greeting is not None
    found = [*files_of_engine(options.engine, options.engine_command)] if own else []
    for path in options.plugins:
        found += [path] if path.is_file() else sorted(path.rglob("*.py"))
    below = [path for path in found if path.resolve().is_relative_to(options.root.resolve()) and is_file(path)]
    digests = {}
    for path in below:
        with JUDGED.opened(path) as stream:
            digests[shown(path, options.root)] = hashlib.file_digest(stream, "sha256").hexdigest()
    return digests


def _digest(path: Path) -> str:
    return hashlib.sha256(YAML.bytes_of(path)).hexdigest()


def _plugin(plugin: Plugin, root: Path) -> PluginFacts:
    path = Path(plugin.origin)
    origin = shown(path, root) if path.suffix == ".py" else plugin.origin
    return PluginFacts(
        name=plugin.name,
        origin=origin,
        version="" if path.suffix == ".py" else _version(plugin.origin),
        operators=list(plugin.operators),
    )


def _version(distribution: str) -> str:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return ""


def _exceptions(options: Options, library: Library) -> list[ExceptionFacts]:
    found = [
        ExceptionFacts(
            id=defect.id,
            kind="defect",
            platforms=[name],
            ops=list(defect.ops or ()),
            reason=_line(defect.reason),
            since=defect.since,
        )
        for name, platform in library.platforms.items()
        for defect in platform.defects
    ]
    known: Iterable[ExceptionFacts] = (
        ExceptionFacts(
            id=entry.id,
            kind="xfail",
            platforms=list(entry.platforms),
            ops=list(entry.ops or ()),
            reason=_line(entry.reason),
            since=entry.since,
            owner=entry.owner,
            expires=entry.expires,
        )
        for entry in (read_xfails(options.xfails).xfails if options.xfails else ())
    )
    return [*found, *known]


def _line(text: str) -> str:
    return " ".join(text.split())
