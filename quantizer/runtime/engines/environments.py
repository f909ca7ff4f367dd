"""Environments of engines: one virtual environment for each engine and version, under the user's cache."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from collections.abc import Sequence
from pathlib import Path

from quantizer.core.errors import UnsupportedError

VARIABLE = "QUANTIZER_ENGINES"
"""Environment variable that names another folder for the environments."""
PATIENCE = 1800.0
"""The time limit of a download, in seconds."""


def folder() -> Path:
    """Return the folder that holds the environments."""
    if given := os.environ.get(VARIABLE):
        return Path(given)
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(cache).expanduser() / "quantizer" / "engines"


def interpreter(engine: str, release: str = "") -> str:
    """Return the interpreter of the environment of *engine* in *release* (empty: without a version); "" if missing."""
    place = folder() / (f"{engine}@{release}" if release else engine)
    python = place / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    # `complete` is written last: an interrupted installation does not count
    return str(python) if python.is_file() and (place / "complete").is_file() else ""


def releases(engine: str) -> list[str]:
    """Return the versions of *engine* that have an environment of their own."""
    found = [place.parent.name.partition("@")[2] for place in folder().glob(f"{engine}@*/complete")]
    return sorted(release for release in found if interpreter(engine, release))


def install(engine: str, requirements: Sequence[str], release: str = "") -> str:
    """Create the environment of *engine* and return its interpreter; UnsupportedError if pip finds no such version.

    requirements: installed together with numpy; *release* is the version of the first of them.
    """
    place = folder() / (f"{engine}@{release}" if release else engine)
    wanted = [f"{requirements[0]}=={release}" if release else requirements[0], *requirements[1:]]
    venv.create(place, clear=True, with_pip=True)
    python = place / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    done = subprocess.run(  # noqa: S603 - the interpreter that was just made
        [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "numpy", *wanted],
        stdout=sys.stderr.fileno() if hasattr(sys.stderr, "fileno") else None,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        timeout=PATIENCE,
    )
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or ["pip failed"]
        raise UnsupportedError(f"engine {engine}: {' '.join(wanted)} not installed: {lines[-1]}")
    (place / "complete").touch()
    return interpreter(engine, release)
