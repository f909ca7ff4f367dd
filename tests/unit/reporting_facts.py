"""What a run says of itself, for tests of reports."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from quantizer.core.facts import ExceptionFacts, Facts, PluginFacts, SpecFacts, TreeFacts
from quantizer.core.record import Record
from quantizer.reporting.store import write_run

LINES = {"op": 2, "quantization": 30, "error_model": 28, "tiling": 40, "constraints": 20}


def facts(**changes: object) -> Facts:
    """Return the facts of a run of conv2d and relu."""
    whole = Facts(
        quantizer="1.0",
        python="3.11.2",
        packages={"numpy": "2.0", "torch": "2.13.0"},
        engine="builtin",
        profile="gate",
        checks=["arithmetic", "accuracy"],
        files={"op_specs/schemes.yaml": "0" * 64},
        specs={
            op: SpecFacts(version="1.0", path=f"my_specs/{op}.yaml", sha256=str(n) * 64, lines=LINES)
            for n, op in enumerate(("conv2d", "relu"))
        },
        plugins=[PluginFacts(name="vendor", origin="vendor-ops", version="0.3", operators=["relu"])],
        exceptions=[
            ExceptionFacts(id="old", kind="defect", platforms=["ort"], reason="wraps", since="2026-01-31"),
            ExceptionFacts(
                id="stuck",
                kind="xfail",
                platforms=["ideal"],
                ops=["relu"],
                reason="a stuck carry",
                since="2026-10-01",
                owner="a.vendor",
                expires="2026-12-31",
            ),
            ExceptionFacts(
                id="gone", kind="xfail", platforms=["ideal"], reason="forgotten", owner="b", expires="2026-11-01"
            ),
        ],
        tree=TreeFacts(commit="c" * 40, tree="d" * 40, date="2026-11-20", clean=True),
    )
    return whole.model_copy(update=changes)


def written(folder: Path, records: Iterable[Record], **changes: object) -> Path:
    """Write a run that is whole, and return its folder."""
    everything = list(records)
    write_run(folder, everything, {}, facts(**{"items": sorted(record.id for record in everything)} | changes))
    return folder
