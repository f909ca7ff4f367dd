"""Reads and writes machine.json: figures of the records that depend on the machine, and facts about it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from quantizer.core.errors import CaseError
from quantizer.core.files import is_file, is_folder, replace_files
from quantizer.core.reading import Readable
from quantizer.core.record import Record

if TYPE_CHECKING:
    from quantizer.core.machine import Machine

MACHINE = "machine.json"
WRITTEN = Readable("the machine file of a run", 1 << 26, CaseError, "Run again; pytest writes it.")
SUFFIX = ".machine.json"
"""The suffix of a machine file next to a records file outside of a run's folder, such as a baseline."""
FIGURES = frozenset({"float", "tiled"})
"""Checks whose ratios measure float kernels, which depend on the processor; `tiled` only on enclosing platforms."""


def split(records: Iterable[Record]) -> tuple[list[Record], dict[str, dict[str, float]]]:
    """Return the records without machine-dependent figures, and item -> check -> ratio of float kernels.

    A ratio above 1 stays in its record, because it belongs to a failure.
    """
    kept, figures = [], {}
    for record in records:
        own = {name: record.checks[name].ratio for name in sorted(FIGURES & record.checks.keys())}
        own = {name: ratio for name, ratio in own.items() if 0.0 < ratio <= 1.0}
        if own:
            figures[record.id] = own
        checks = {name: replace(check, ratio=0.0) if name in own else check for name, check in record.checks.items()}
        kept.append(replace(record, checks=checks, processor=""))
    return kept, figures


def write_machine(directory: Path, machine: Machine) -> None:
    """Write the machine file of a run."""
    replace_files({directory / MACHINE: machine.to_json()}, CaseError)


def machine_of(run: Path) -> Machine | None:
    """Return the machine of a run's folder, or of a records file (from the file of the same stem next to it).

    None if unknown.
    """
    places = [run / MACHINE] if is_folder(run) else [run.with_name(run.stem + SUFFIX), run.with_name(MACHINE)]
    # a records file in a run's folder has the folder's machine file
    for place in places if is_folder(run) or run.name == "records.jsonl" else places[:1]:
        if is_file(place):
            from quantizer.core.machine import read_machine

            return read_machine(WRITTEN.text_of(place, str(place)), str(place))
    return None


@dataclass(frozen=True)
class Pair:
    """Two runs to compare, with figures of float kernels only if both ran on one processor."""

    base: list[Record]
    run: list[Record]
    elsewhere: bool
    """Whether they may be of different processors."""


def paired(base: Path, before: Iterable[Record], run: Path | Machine, after: Iterable[Record]) -> Pair:
    """Return the records of a baseline and of a run, and whether their machines differ."""
    there, here = machine_of(base), machine_of(run) if isinstance(run, Path) else run
    # an unknown machine may be another one
    if there is None or here is None or there.processor != here.processor:
        return Pair(list(before), list(after), elsewhere=True)
    return Pair(list(_joined(before, there)), list(_joined(after, here)), elsewhere=False)


def _joined(records: Iterable[Record], machine: Machine) -> Iterator[Record]:
    """Yield records with the figures that `split` moved out of them."""
    for record in records:
        own = machine.figures.get(record.id, {})
        checks = {n: replace(check, ratio=own[n]) if n in own else check for n, check in record.checks.items()}
        yield replace(record, checks=checks) if own else record


def merged(folders: Sequence[Path]) -> Machine | None:
    """Return the machine of a run whose shards lie in *folders*; None if a shard does not record it."""
    from quantizer.core.machine import Machine

    found = [machine_of(folder) for folder in folders]
    known = [machine for machine in found if machine is not None]
    if not known or len(known) < len(found):
        return None
    names = sorted({machine.processor for machine in known})
    # several processors have no kernels in common
    kernels = {key: value for machine in known for key, value in machine.kernels.items()} if len(names) == 1 else {}
    figures = {item: figure for machine in known for item, figure in machine.figures.items()}
    return Machine(processor="; ".join(names), kernels=kernels, figures=dict(sorted(figures.items())))
