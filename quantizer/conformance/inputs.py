"""Detects changes of the files that a run is judged by (specs, goldens, baselines) while plugins or an engine run.

A plugin or an engine that changes a spec, a golden or a conftest.py changes what it is judged by, and so does one that
changes this package, what Python runs at its start, or what it would import from a folder of the run; one that changes
its own file is not the one that a statement names. Files are known by size, inode and times: a run with one that
changed is not whole.
"""

from __future__ import annotations

import os
import site
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

import quantizer
from quantizer.conformance.options import Options

Stamp = tuple[int, int, int, int]
SETTINGS = ("tox.ini", "pyproject.toml", "pytest.ini", ".pytest.ini", "setup.cfg", "conftest.py", "baseline.jsonl")
STARTED = ("*.pth", "sitecustomize.py", "usercustomize.py", "*-info/entry_points.txt", "quantizer_conformance.py")
"""Files in folders of packages that Python and pytest run before a program starts."""
IMPORTED = ("*.py", "*/__init__.py")
"""Files that could replace a module in a folder that pytest adds to the path (the folder of a conftest.py)."""
SUFFIXES = (".yaml", ".jsonl", ".py")


class Inputs:
    """The files of a run as they were when this was made."""

    def __init__(self, config: pytest.Config, asked: Options, engine: Sequence[Path] = ()) -> None:
        """engine: the files of a real engine."""
        words = [str(word).split("::", maxsplit=1)[0] for word in config.args]
        self._folders = [(config.invocation_params.dir / word).resolve() for word in words] + [*asked.specs]
        if asked.golden_update is None:
            self._folders.append(asked.cases)
        files = [asked.root / name for name in SETTINGS] + [one for one in (asked.baseline, asked.xfails) if one]
        files += engine
        for path in asked.plugins:
            files += [path] if path.is_file() else sorted(path.rglob("*.py"))
        self._files = files
        self._packages = [Path(place) for place in {*site.getsitepackages(), site.getusersitepackages()}]
        self._ours = Path(quantizer.__file__).parent
        self._away = asked.reports
        self._root = asked.root
        # compiled files appear where a module is first imported; one that was there changes with its source alone
        self._compiled = [*self._ours.rglob("*.pyc")]
        self._stamps = self._now()

    def changed(self) -> str | None:
        """Return the first file that is another one, appeared or is gone since; None if all are as they were."""
        now = self._now()
        for path in sorted(now.keys() | self._stamps.keys()):
            if now.get(path) != self._stamps.get(path):
                return str(path.relative_to(self._root)) if path.is_relative_to(self._root) else str(path)
        return None

    def _now(self) -> Mapping[Path, Stamp]:
        started = [path for place in self._packages for name in STARTED for path in place.glob(name)]
        root = [path for name in IMPORTED for path in self._root.glob(name)]
        beside = self._ours.with_name("quantizer_conformance.py")
        code = [*self._ours.rglob("*.py"), *self._compiled, beside, *started, *root]
        found = ((path, _stamp(path)) for path in [*self._files, *code, *_walked(self._folders, self._away)])
        return {path: stamp for path, stamp in found if stamp is not None}


def _walked(places: Sequence[Path], away: Path) -> Iterator[Path]:
    """Yield the files that a run reads in the folders *places* and single files among them, except below *away*."""
    for place in places:
        if place.is_file():
            yield place
        for folder, below, names in os.walk(place):
            below[:] = [name for name in below if name[0] not in "._" and Path(folder, name) != away]
            yield from (Path(folder, name) for name in names if name.endswith(SUFFIXES))


def _stamp(path: Path) -> Stamp | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_size, found.st_ino, found.st_mtime_ns, found.st_ctime_ns
