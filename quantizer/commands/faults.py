"""`quantizer faults`: plant every fault of the catalogue and show what finds it."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tabulate import tabulate

if TYPE_CHECKING:
    from quantizer.conformance.faults import Fault
    from quantizer.conformance.session import Session

KILLED, SURVIVORS = 0, 1
SURVIVES, NOT_APPLICABLE = "survives", "not applicable"


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `faults` to the command line."""
    faults = subparsers.add_parser(
        "faults",
        help="measure which seeded faults the checks find",
        description="Plant every fault of the catalogue and show which check finds it first, after how many cases.",
    )
    faults.add_argument("--op", action="append", default=[], help="only this operator (repeatable)")
    faults.add_argument("--fault", action="append", default=[], help="only this fault (repeatable)")
    faults.add_argument("--op-specs", action="append", type=Path, default=[], help="specs beside the shipped ones")
    faults.add_argument("--op-plugins", action="append", type=Path, default=[], help="operator plugins")
    faults.add_argument("--json", action="store_true", help="one JSON object instead of a table")


def run(args: argparse.Namespace) -> int:
    """Run the matrix; 0 where every fault is found, 1 where one survives."""
    from quantizer.conformance.faults import CATALOGUE, pairs
    from quantizer.conformance.options import Options
    from quantizer.conformance.session import open_session
    from quantizer.core.errors import UnsupportedError
    from quantizer.core.model_errors import suggestion
    from quantizer.plugins.discovery import load_plugins

    plugins = load_plugins(args.op_plugins, dict(os.environ))
    options = Options(root=Path.cwd(), specs=tuple(args.op_specs), plugins=tuple(args.op_plugins))
    session = open_session(options, tuple(folder for plugin in plugins for folder in plugin.specs))
    known = {fault.id for fault in CATALOGUE}
    for option, names, legal in (("--op", args.op, set(session.library.specs)), ("--fault", args.fault, known)):
        for name in names:
            if name not in legal:
                raise UnsupportedError(f"{option}={name}: no such name.{suggestion(name, sorted(legal), 'Known')}")
    planted = [
        (fault, op)
        for fault, op in pairs(session.library.specs.values())
        if (not args.op or op in args.op) and (not args.fault or fault.id in args.fault)
    ]
    if not planted:
        raise UnsupportedError(
            f"{', '.join(args.fault) or 'the catalogue'} concerns none of {', '.join(args.op) or 'the operators'}. "
            "Name another fault, or add one in quantizer/conformance/faults/catalogue.py."
        )
    rows = _rows(session, planted)
    survivors = [row for row in rows if row["outcome"] == SURVIVES]
    if args.json:
        text = json.dumps({"pairs": rows, "survivors": len(survivors)}, indent=1)
    else:
        absent = [row for row in rows if row["outcome"] == NOT_APPLICABLE]
        shown = [{**row, "check": row["check"] or row["outcome"].upper()} for row in rows if row not in absent]
        lines = [tabulate([{k: v for k, v in row.items() if k != "outcome"} for row in shown], headers="keys"), ""]
        lines += [
            f"changes nothing in {op}: {', '.join(row['fault'] for row in absent if row['op'] == op)}"
            for op in dict.fromkeys(row["op"] for row in absent)
        ]
        text = "\n".join([*lines, f"{len(shown)} pairs, {len(survivors)} survivors"])
    sys.stdout.write(text + os.linesep)
    return SURVIVORS if survivors else KILLED


def _rows(session: Session, planted: list[tuple[Fault, str]]) -> list[dict[str, Any]]:
    """Return what became of every pair: killed, survives or not applicable."""
    from tqdm import tqdm

    from quantizer.conformance.faults import gate_cases, has_effect, kill

    cases = {op: list(gate_cases(session, op)) for op in sorted({op for _, op in planted})}
    rows: list[dict[str, Any]] = []
    for fault, op in tqdm(planted, unit="fault", disable=None, file=sys.stderr):
        row = {
            "fault": fault.id,
            "place": fault.place,
            "op": op,
            "check": None,
            "target": None,
            "cases": len(cases[op]),
        }
        found = kill(session, fault, op, cases[op]) if has_effect(session, fault, op, cases[op]) else NOT_APPLICABLE
        if isinstance(found, str) or found is None:
            rows.append({**row, "outcome": found or SURVIVES})
        else:
            rows.append(
                {**row, "check": found.check, "target": found.target, "cases": found.cases, "outcome": "killed"}
            )
    return rows
