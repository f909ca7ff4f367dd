"""Detects changes of the files that decide a run's verdicts (specs, goldens, baselines) while plugins or engines run.

A plugin or an engine must not change the files that judge it: specs, schemes, platforms and stored cases (the run's
own, this package's and those of rooms), conftest.py, this package, imported modules, files that Python runs at its
start, or modules that it would import from a folder of the run. If it changed its own file, the run's facts would name
another file than the one that was judged. A change shows in a file's size, inode or times. A run with a changed file is
not whole. Some 5,000 files are checked three times in a run. Their paths are strings, because pathlib objects would
cost more than the run of a small operator.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import site
import sys
import sysconfig
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.machinery import all_suffixes
from importlib.util import MAGIC_NUMBER, cache_from_source, source_from_cache
from pathlib import Path

import pytest

import quantizer
from quantizer.conformance.setup.options import Options
from quantizer.core.errors import FormatError
from quantizer.core.files import resolved
from quantizer.core.library import scheme_files, shipped_folder, shipped_platforms
from quantizer.core.reading import Readable
from quantizer.core.rooms import rooms

Stamp = tuple[int, int, int, int]
SETTINGS = ("tox.ini", "pyproject.toml", "pytest.ini", ".pytest.ini", "setup.cfg", "conftest.py", "baseline.jsonl")
STARTED = ("*.pth", "sitecustomize.py", "usercustomize.py", "*-info/entry_points.txt", "quantizer_conformance.py")
"""Files in package folders that Python or pytest runs before a program starts."""
MODULES = tuple(all_suffixes())
"""File name suffixes of modules: source, compiled, native."""
IMPORTED = tuple(f"{name}{suffix}" for name in ("*", "*/__init__") for suffix in MODULES)
"""Files that could replace a module, in a folder that pytest puts on the path (the folder of a conftest.py)."""
COMMANDS = ("pytest*", "py.test*", "quantizer*", "python*")
"""Programs that a CI recipe runs, in the interpreter's folder."""
SETTLED = 60.0
"""The age in seconds from which a compiled file is watched. Another process of this run may still write a younger
one."""
COMPILED = Readable("a compiled file", 1 << 26, FormatError)
PLAIN_TAIL = f".{sys.implementation.cache_tag}.pyc"
PYTEST_TAIL = f".{sys.implementation.cache_tag}-pytest-{pytest.__version__}.pyc"
"""File name suffixes of a compiled file, and of one with pytest's rewritten assertions."""
HASHED = (b"\x01", b"\x03")
"""The first byte of a compiled file's flags if it names its source by a hash, not by time and size."""
SUFFIXES = (".yaml", ".jsonl", *MODULES)
STORED = (".json", *SUFFIXES)
"""File name suffixes in a folder of stored cases: a regression, and the case of a defect, is a `.json`."""


class Inputs:
    """The files of a run, as they were when this object was made."""

    def __init__(self, config: pytest.Config, asked: Options, engine: Sequence[Path] = ()) -> None:
        """engine: the files of a real engine."""
        words = [str(word).split("::", maxsplit=1)[0] for word in config.args]
        self._folders = [resolved(config.invocation_params.dir / word) for word in words] + [*asked.specs]
        self._folders += [shipped_folder(), *shipped_platforms(), *scheme_files(())]
        # an update writes the goldens itself
        self._stored = [asked.cases, *(room.cases for room in rooms())] if asked.golden_update is None else []
        files = [asked.root / name for name in SETTINGS] + [one for one in (asked.baseline, asked.xfails) if one]
        self._files = [*files, *engine]
        self._plugins = asked.plugins
        places = {*site.getsitepackages(), site.getusersitepackages(), *filter(None, sys.path)}
        self._packages = [Path(place) for place in places]
        self._ours = Path(quantizer.__file__).parent
        self._away = asked.reports
        self._root = asked.root
        self._programs = Path(sys.executable).parent
        # as it was at the start: `read_no_caches` replaces it
        self._prefix = sys.pycache_prefix
        self._modules = _modules()
        self._known = {path for path in self._caches_of_ours() if _is_current(path)}
        others = {path for module in self._modules for path in _compiled(module)} - self._known
        compiled = [*self._known, *filter(_is_current, others)]
        self._compiled = [path for path in compiled if _is_settled(path)]
        self._since = time.time_ns()
        self._seen = self._cache_folders()
        self._caches = {path: _stamp(path) for path in _listed(self._seen, [])}
        self._stamps = self._now()

    def changed(self) -> str | None:
        """Return the first file that changed, appeared or disappeared since; None if there is no such file.

        A compiled file may disappear: another run may have removed it (`sweep`), and Python compiles its source again.
        But if this process has imported the module since, it may have run a file that was replaced and then removed.
        """
        with self._usual_caches():
            late = {path for module in _modules() - self._modules for path in _compiled(module)}
        # a compiled file that is gone is no change, except if this process imported it since
        now = self._now()
        paths = now.keys() | {path for path in self._stamps if not path.endswith(".pyc") or path in late}
        changed = [path for path in paths if now.get(path) != self._stamps.get(path)]
        for path in map(Path, sorted(changed) or self._imported_since()):
            return str(path.relative_to(self._root)) if path.is_relative_to(self._root) else str(path)
        return None

    def read_no_caches(self, config: pytest.Config) -> None:
        """Compile every module from its source until the end: a plugin could write compiled files before an import.

        Python then looks for compiled files in a folder that does not exist and whose name cannot be guessed.
        """
        before = sys.dont_write_bytecode
        config.add_cleanup(lambda: _set_caches(self._prefix, unwritten=before))
        _set_caches(f"{os.sep}{secrets.token_hex(16)}", unwritten=True)

    def sweep(self) -> list[str]:
        """Remove compiled modules written or moved since the start, and those of ours that were missing or outdated.

        Any process may have written them, and the next process would run them. Python compiles their sources again.
        Return a sentence for each that cannot be read or removed.
        """
        problems: list[str] = []
        found = _listed(self._cache_folders(), problems)
        for path in {path for path in found if self._is_new(path)} | {*self._caches_of_ours()} - self._known:
            try:
                Path(path).unlink(missing_ok=True)
            except OSError as err:
                problems.append(_left(path, err))
        return problems

    def _is_new(self, path: str) -> bool:
        """Return whether a compiled file is not as it was at the start; a file that was moved here keeps its times.

        In a folder that was not read at the start, a file is new if it or the folder was written since.
        """
        if path in self._caches:
            return _stamp(path) != self._caches[path]
        # a file that was not there at the start: in a folder that was read it is new, whatever its times say
        folder = str(Path(path).parent)
        return folder in self._seen or any(_is_written_since(place, self._since) for place in (path, folder))

    def _cache_folders(self) -> set[str]:
        """Return the folders in which Python looks for compiled forms of this package and of imported modules."""
        files = [path for path in _modules() if path.endswith(".py")] + _below(self._ours, ".py")
        sources = {os.path.split(path)[0]: path for path in files}
        with self._usual_caches():
            return {os.path.split(path)[0] for source in sources.values() for path in _compiled(source)}

    def _caches_of_ours(self) -> list[str]:
        """Return the compiled files of this package."""
        if self._prefix is None:
            return _below(self._ours, ".pyc")
        return _below(Path(_compiled(str(self._ours / "__init__.py"))[0]).parent, ".pyc")

    @contextlib.contextmanager
    def _usual_caches(self) -> Iterator[None]:
        """Restore the names of compiled files that another process uses."""
        before, sys.pycache_prefix = sys.pycache_prefix, self._prefix
        try:
            yield
        finally:
            sys.pycache_prefix = before

    def _imported_since(self) -> list[str]:
        """Return the files of Python and of installed packages that were both imported and written since the start."""
        places = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
        inside = tuple(f"{place}{os.sep}" for place in places)
        found = {path: _stamp(path) for path in _modules() - self._modules if path.startswith(inside)}
        return sorted(path for path, stamp in found.items() if stamp is not None and stamp[-1] > self._since)

    def _now(self) -> Mapping[str, Stamp]:
        started = [path for place in self._packages for name in STARTED for path in place.glob(name)]
        root = [path for name in IMPORTED for path in self._root.glob(name)]
        beside = self._ours.with_name("quantizer_conformance.py")
        programs = [path for name in COMMANDS for path in self._programs.glob(name)]
        # zip files on the path, and entries that do not exist
        archives = [place for place in self._packages if not place.is_dir()]
        places = [self._programs.with_name("pyvenv.cfg"), *programs, *archives]
        code = [*_below(self._ours, (".py", ".html")), *self._compiled, *self._modules]
        plugins = [path for place in self._plugins for path in ([place] if place.is_file() else _below(place, ".py"))]
        files = [*self._files, *plugins, beside, *started, *places, *root]
        files += _walked(self._folders, SUFFIXES, self._away)
        files += _walked(self._stored, STORED, self._away)
        found = ((path, _stamp(path)) for path in {*code, *map(str, files)})
        return {path: stamp for path, stamp in found if stamp is not None}


def _set_caches(prefix: str | None, *, unwritten: bool) -> None:
    sys.pycache_prefix, sys.dont_write_bytecode = prefix, unwritten


def _walked(places: Sequence[Path], suffixes: tuple[str, ...], away: Path) -> Iterator[Path]:
    """Yield files of these suffixes in the folders *places*, and single files among them, except below *away*."""
    for place in places:
        if place.is_file():
            yield place
        for folder, below, names in os.walk(place):
            # os.walk reads this list to know which folders to enter
            below[:] = [
                name for name in below if name[0] != "." and name != "__pycache__" and Path(folder, name) != away
            ]
            yield from (Path(folder, name) for name in names if name.endswith(suffixes))


def _below(folder: Path, suffix: str | tuple[str, ...]) -> list[str]:
    """Return the files below a folder whose names end in *suffix*."""
    return [f"{place}{os.sep}{name}" for place, _, names in os.walk(folder) for name in names if name.endswith(suffix)]


def _modules() -> set[str]:
    """Return the files of the modules that this process has imported."""
    files = (getattr(module, "__file__", None) for module in [*sys.modules.values()])
    return {file for file in files if isinstance(file, str) and os.path.isabs(file)}  # noqa: PTH117 - see above


def _listed(folders: Iterable[str], problems: list[str]) -> list[str]:
    """Return the compiled files in *folders*; a folder that cannot be looked at is one of *problems*."""
    found = []
    for folder in folders:
        try:
            found += [f"{folder}{os.sep}{name}" for name in os.listdir(folder) if name.endswith(".pyc")]  # noqa: PTH208
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as err:
            problems.append(_left(folder, err))
    return found


def _left(path: str, err: OSError) -> str:
    """Return a sentence about a compiled file, or a folder of them, that a plugin or an engine may have written."""
    reason = (err.strerror or str(err)).lower()
    return f"{path}: the next process may run what a plugin or an engine wrote there; it cannot be removed: {reason}."


def _compiled(source: str) -> tuple[str, ...]:
    """Return the paths of the compiled forms of a source file, Python's and pytest's; none for a native module."""
    if not source.endswith(".py"):
        return ()
    plain = cache_from_source(source)
    return plain, f"{Path(plain).parent}{os.sep}{Path(source).stem}{PYTEST_TAIL}"


def _is_current(path: str) -> bool:
    """Return whether Python would run a compiled file.

    An outdated one is written again by the next process that imports its source.
    """
    try:
        source = source_from_cache(path.replace(PYTEST_TAIL, PLAIN_TAIL))
        with COMPILED.opened(Path(path)) as file:
            magic, flags, made_from = file.read(4), file.read(4), file.read(8)
        found = os.stat(source)  # noqa: PTH116 - see above
    except (OSError, ValueError, FormatError):
        return False
    # PEP 552: magic number, flags, then time and size of the source, each as 32 bits, least significant byte first
    time_and_size = b"".join(
        (number & 0xFFFFFFFF).to_bytes(4, "little") for number in (int(found.st_mtime), found.st_size)
    )
    return magic == MAGIC_NUMBER and (flags[:1] in HASHED or made_from == time_and_size)


def _is_written_since(path: str, since: int) -> bool:
    """Return whether a file was written, or got its name, after *since*."""
    found = _stamp(path)
    return found is not None and found[-1] >= since


def _is_settled(path: str) -> bool:
    """Return whether a compiled file is older than any process that may still compile the same source."""
    found = _stamp(path)
    return found is not None and time.time() - found[2] / 1e9 > SETTLED


def _stamp(path: str) -> Stamp | None:
    try:
        found = os.stat(path)  # noqa: PTH116 - see above
    except OSError:
        return None
    return found.st_size, found.st_ino, found.st_mtime_ns, found.st_ctime_ns
