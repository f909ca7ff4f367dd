"""`quantizer faults`: plant every fault of the catalogue and show what finds it."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

from tabulate import tabulate

KILLED, SURVIVORS = 0, 1


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `faults` to the command line."""
    faults = subparsers.add_parser(
        "faults",
        help="measure which seeded faults the checks find",
        description="Plant every fault of the catalogue and show which check finds it first, after how many cases.",
    )
    faults.add_argument("--op", action="append", default=[], help="only this operator (repeatable)")
    faults.add_argument("--fault", action="append", default=[], help="only this fault (repeatable)")
    faults.add_argument("--json", action="store_true", help="one JSON object instead of a table")


def run(args: argparse.Namespace) -> int:
    """Run the matrix; 0 where every fault is found, 1 where one survives."""
    from tqdm import tqdm

    from quantizer.conformance.faults import CATALOGUE, gate_cases, kill
    from quantizer.conformance.options import Options
    from quantizer.conformance.session import open_session
    from quantizer.core.errors import UnsupportedError
    from quantizer.core.model_errors import suggestion

    session = open_session(Options(root=Path.cwd()))
    known = {fault.id for fault in CATALOGUE}
    for option, names, legal in (("--op", args.op, set(session.library.specs)), ("--fault", args.fault, known)):
        for name in names:
            if name not in legal:
                raise UnsupportedError(f"{option}={name}: no such name.{suggestion(name, sorted(legal), 'Known')}")
    pairs = [
        (fault, op)
        for fault in CATALOGUE
        for op in fault.ops
        if (not args.op or op in args.op) and (not args.fault or fault.id in args.fault)
    ]
    if not pairs:
        raise UnsupportedError(
            f"no fault of the catalogue applies to {', '.join(args.op) or 'any operator'}. "
            "Add one in quantizer/conformance/faults/catalogue.py."
        )
    cases = {op: list(gate_cases(session, op)) for op in sorted({op for _, op in pairs})}
    rows = []
    for fault, op in tqdm(pairs, unit="fault", disable=None, file=sys.stderr):
        found = kill(session, fault, op, cases[op])
        rows.append(
            {
                "fault": fault.id, "place": fault.place, "op": op, "check": found.check if found else None,
                "target": found.target if found else None, "cases": found.cases if found else len(cases[op]),
            }
        )  # fmt: skip
    survivors = [row for row in rows if row["check"] is None]
    if args.json:
        text = json.dumps({"pairs": rows, "survivors": len(survivors)}, indent=1)
    else:
        shown = [{**row, "check": row["check"] or "SURVIVES"} for row in rows]
        text = tabulate(shown, headers="keys") + f"\n\n{len(rows)} pairs, {len(survivors)} survivors"
    sys.stdout.write(text + os.linesep)
    return SURVIVORS if survivors else KILLED
