"""`quantizer case repro`: writes a stored case or a declared defect as a script of the engine's own API."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from quantizer.commands.shared_options import add_specs
from quantizer.core.errors import CaseError
from quantizer.core.files import create_files

WROTE = 0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `case repro`."""
    parser.add_argument("file", type=Path, nargs="?", help="replay file, as a failing item names it")
    parser.add_argument(
        "--defect", default="", metavar="ID", help="a declared defect, ID or PLATFORM/ID, in place of a file"
    )
    parser.add_argument(
        "--form", default="", help="onnx, tflite, torch or tosa (default: that of the platform's engine)"
    )
    parser.add_argument("--op-engine", default="", help="engine that the script runs (default: that of the platform)")
    add_specs(parser)
    parser.add_argument("-o", "--output", type=Path, help="a new file (default: standard output)")


def run(args: argparse.Namespace) -> int:
    """Write the script; CaseError if neither or both of a file and a defect are named."""
    from quantizer.conformance.defects.script_choice import find_defect, script_of_case, script_of_defect
    from quantizer.conformance.setup.options import Options
    from quantizer.conformance.setup.session import open_session
    from quantizer.conformance.stored.files import read_replay
    from quantizer.runtime.engines.catalogue import ENCLOSING

    if (args.file is None) == (not args.defect):
        raise CaseError("case repro: name either a replay file or a defect (--defect).")
    if args.output and args.output.exists():
        raise CaseError(f"{args.output}: exists already and is not written over. Name a new file.")
    # the enclosing platform is known only on request, and some defects are declared on it
    session = open_session(Options(root=Path.cwd(), specs=tuple(args.op_specs), platforms=(ENCLOSING,)))
    if args.defect:
        text = script_of_defect(session, *find_defect(session.library, args.defect))
    else:
        text = script_of_case(session, read_replay(args.file), args.form, args.op_engine)
    if args.output is None:
        sys.stdout.write(text)
        return WROTE
    create_files({args.output: text})
    sys.stdout.write(f"wrote {args.output}; it needs only the engine and numpy\n")
    return WROTE
