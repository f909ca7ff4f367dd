"""Starts quantizer, but refuses to do so if another package shares its folder.

The distribution is `quantizer-conformance`; the folder and the import name are `quantizer`. A package on the index is
called `quantizer` and has the same import name. An installer writes both into one folder: the later one overwrites
files of the earlier one, and uninstalling one deletes files of the other. The command and the pytest plugin start
here, outside that folder, because `quantizer/__init__.py` may be the other's.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

DISTRIBUTION = "quantizer-conformance"
OTHER = "quantizer"
"""The name of the distribution that has our import name."""
PACKAGE = "quantizer"
REMEDY = (
    f"Write: pip uninstall {OTHER} && pip install --force-reinstall --no-deps WHEEL, "
    "where WHEEL is the file quantizer_conformance-*.whl that `pip wheel --no-deps -w dist .` builds in its repository."
)
USAGE = 2


def clash(folder: Path) -> str | None:
    """Return why the package in *folder* cannot be used as ours, or None if it can.

    It cannot be used if its `__init__.py` is missing or is not ours, or if a distribution called `quantizer` in the
    same site folder owns that file too. Reads the names in one folder, and metadata only if that distribution is there.
    """
    start = folder / "__init__.py"
    owner = _other(folder)
    if owner is not None:
        return (
            f"{folder}: two packages have this folder: {DISTRIBUTION} and {owner}, which is another project. "
            f"Each overwrites files of the other, so that only one can be installed. {REMEDY}"
        )
    if not start.is_file():
        return (
            f"{start}: no such file, though {DISTRIBUTION} is installed; "
            f"uninstalling {OTHER}, another project, deletes it. {REMEDY}"
        )
    # our own __init__.py imports this module by its name
    if __name__.encode() not in start.read_bytes()[:100_000]:
        return (
            f"{start}: is not a file of {DISTRIBUTION}; "
            f"another package of the same import name, as {OTHER} has, overwrote it or comes first in sys.path. "
            f"{REMEDY}"
        )
    return None


def refuse_clash(folder: Path) -> None:
    """Raise ImportError if *folder*, which is being imported, cannot be used as our package."""
    reason = clash(folder)
    if reason is not None:
        raise ImportError(reason, name=PACKAGE, path=str(folder))


def main() -> int:
    """Run the command `quantizer` and return its exit status: 2 if another package shares its folder."""
    reason = _clash_of_import()
    if reason is not None:
        sys.stderr.write(f"error: {reason}\n")
        return USAGE
    # only now: a clash must be reported before anything of the folder runs
    from quantizer.cli import main as run

    return run()


def __getattr__(name: str) -> Any:
    """Return the pytest plugin as `plugin`; raise pytest's UsageError if another package shares its folder."""
    if name != "plugin":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    reason = _clash_of_import()
    if reason is not None:
        import pytest

        raise pytest.UsageError(reason)
    from quantizer.conformance.run import plugin

    return plugin


def _clash_of_import() -> str | None:
    """Return why `import quantizer` would not give our package, or None. Nothing is imported."""
    loaded = sys.modules.get(PACKAGE)
    spec = loaded.__spec__ if loaded is not None else find_spec(PACKAGE)
    # find_spec reads sys.path as an import would, so a package that comes first there is found
    places = list(spec.submodule_search_locations or ()) if spec is not None else []
    return clash(Path(places[0]) if places else Path(__file__).parent / PACKAGE)


def _other(folder: Path) -> str | None:
    """Return name and version of the other distribution if it owns the `__init__.py` of *folder*, else None."""
    found = sorted(p for end in ("dist", "egg") for p in folder.parent.glob(f"{OTHER}-*.{end}-info"))
    if not found:
        return None
    # imported late: it takes longer than everything else here, and hardly ever is there such a folder
    from importlib.metadata import Distribution

    start = (folder / "__init__.py").resolve()
    for place in found:
        distribution = Distribution.at(place)
        if any(Path(str(distribution.locate_file(file))).resolve() == start for file in _named(distribution)):
            return f"{distribution.metadata['Name']} {distribution.version}"
    return None


def _named(distribution: Any) -> list[Any]:
    return [file for file in distribution.files or () if file.name == "__init__.py"]
