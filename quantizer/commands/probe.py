"""`quantizer engine probe`: infers the arithmetic of an engine from solved inputs, and writes a platform file."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Container, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from quantizer.core.errors import UnsupportedError
from quantizer.core.files import replace_files
from quantizer.core.model_errors import IDENTIFIER
from quantizer.core.wording import counted, shown_path, suggestion

if TYPE_CHECKING:
    from quantizer.conformance.probe.elimination import Found
    from quantizer.conformance.probe.probe import Probe
    from quantizer.core.library import Library
    from quantizer.core.platforms import Platform
    from quantizer.core.spec import Spec

EXPLAINED, UNEXPLAINED = 0, 1
NO_OPERATOR = "it has none of the operators that the probe can test"
_EPILOG = """\
examples:
  quantizer engine probe litert:xnnpack
  quantizer engine probe python:my_sim_worker.py -o platforms/my_sim.yaml
  quantizer engine probe builtin --op-platform=tosa --op=conv2d
"""


def add_parser(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `probe` to the verbs of `engine`."""
    probe = verbs.add_parser(
        "probe",
        help="infer the arithmetic of an engine, and write a platform file; exit 1 if an operator remains unexplained",
        description="Infer what an engine does: rounding, place of the zero point, multiplier, accumulator, order of "
        "float sums.\nInputs are solved so that the arithmetics that a platform can declare give different outputs.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    probe.add_argument(
        "name",
        metavar="NAME",
        nargs="?",
        default="",
        help="an engine as --op-engine takes it: builtin, litert:xnnpack, openvino@2026.4.1, PYTHON:WORKER",
    )
    probe.add_argument(
        "--op-engine-command", default="", metavar="COMMAND", help="command line of a worker, in place of NAME"
    )
    probe.add_argument(
        "--op-platform",
        default="",
        metavar="NAME",
        help="the platform whose scales, zero points and lowering the questions use (default: its own)",
    )
    probe.add_argument("--op", action="append", default=[], metavar="NAME", help="only this operator (repeatable)")
    probe.add_argument(
        "--op-isa",
        default="",
        metavar="LEVEL",
        help="instruction-set level of the engine (default: host)",
    )
    probe.add_argument(
        "-o", "--output", type=Path, metavar="FILE", help="write a platform file; its name is the platform's"
    )


def run(args: argparse.Namespace) -> int:
    """Run the engine on the inputs, print the remaining arithmetics, and write the platform file."""
    from tqdm import tqdm

    from quantizer.conformance.probe.float_order import order_of
    from quantizer.conformance.probe.platform_file import assembled, document
    from quantizer.conformance.probe.probe import evidence, table

    probe = _probe(args)
    engine, platform, library = probe.session.engine, probe.platform, probe.session.library
    _check_name(args.output, library.platforms)
    label = f"{engine.name} {engine.version}".rstrip()
    bar = tqdm(_specs(probe, args.op), unit="operator", desc=engine.name, disable=None, file=sys.stderr)
    found = list(probe.found(bar))
    if not any(one.questions for one in found):
        raise UnsupportedError(f"engine {engine.name}: answered no question: {_reasons(found, platform, library)}")
    order = order_of(engine, library.spec("fully_connected"), platform)
    out = [f"{label}, asked as {platform.platform}", "", table(found, platform.platform), ""]
    if order is not None:
        out += [f"float32 models: {order}", ""]
    out += ["evidence", evidence(found, platform.platform), ""]
    nothing = [one.target.spec.op for one in found if not one.explained]
    written = True
    if args.output:
        made = assembled(args.output.stem, label, found, platform, library)
        written = bool(made.raw["ops"])
        if written:
            replace_files({args.output: document(made, found, platform.platform)})
            count = counted(len(made.raw["ops"]), "operator")
            out.append(f"wrote {shown_path(args.output)}: {count}. {made.kind}")
        else:
            out.append(f"{shown_path(args.output)} is not written: no platform file can declare what was found")
            out += [f"  {op}: {why}" for op, why in made.left.items()]
    if nothing:
        out.append(f"nothing explains {', '.join(nothing)}")
    sys.stdout.write(os.linesep.join(out) + os.linesep)
    return UNEXPLAINED if nothing or not written else EXPLAINED


def _specs(probe: Probe, ops: Sequence[str]) -> list[Spec]:
    """Return the specs that the probe asks about; UnsupportedError if it cannot ask about one of *ops*."""
    specs = list(probe.operators())
    known = [spec.op for spec in specs]
    for op in ops:
        if op not in known:
            engine, platform = probe.session.engine.name, probe.platform.platform
            others = suggestion(op, known, "It can be asked about")
            raise UnsupportedError(f"--op={op}: engine {engine} cannot be asked about it on {platform}.{others}")
    return [spec for spec in specs if not ops or spec.op in ops]


def _reasons(found: Sequence[Found], platform: Platform, library: Library) -> str:
    """Return why no question was answered, and another platform whose questions have codes of the other sign."""
    first, *others = sorted({one.refused for one in found}) or [NO_OPERATOR]
    more = f" (and {counted(len(others), 'reason')} more)" if others else ""
    sign = platform.parameters.activation_sign
    wanted = "signed" if sign == "unsigned" else "unsigned"
    names = (name for name, other in library.platforms.items() if other.parameters.activation_sign == wanted)
    if not found or (other := next(names, None)) is None:
        return f"{first}{more}."
    said = f"The questions have the codes of {platform.platform} ({sign}); --op-platform names another platform"
    return f"{first}{more}. {said}, such as {other} ({wanted})."


def _probe(args: argparse.Namespace) -> Probe:
    from quantizer.conformance.probe.probe import Probe
    from quantizer.conformance.setup.options import Options
    from quantizer.conformance.setup.session import open_session
    from quantizer.core.levels import HOST
    from quantizer.runtime.engines.catalogue import chosen

    if bool(args.name) == bool(args.op_engine_command):
        raise UnsupportedError("name one engine: NAME or --op-engine-command.")
    real = chosen(args.name, args.op_engine_command, option="engine")
    platform = args.op_platform
    if real is not None and real.missing:
        raise UnsupportedError(f"{real.missing}.")
    if real is None and not platform:
        raise UnsupportedError("builtin: it computes every platform. Name one with --op-platform.")
    if real is not None and not platform:
        # without --op-platform, the engine's own platform, if it has only one
        homes = [name for name, variant in real.entry.variant_of_platform.items() if real.variant in (None, variant)]
        if len(homes) != 1:
            names = [f"{real.backend}:{variant}" for variant in real.entry.variant_of_platform.values()]
            raise UnsupportedError(f"{args.name}: has several variants. Name one of {', '.join(names)}.")
        platform = homes[0]
    options = Options(
        root=Path.cwd(),
        engine=args.name or "builtin",
        engine_command=args.op_engine_command,
        platforms=(platform,),
        # the processor's own level: the probe asks about the kernels that run here
        isa=args.op_isa or ("" if real is None else HOST),
    )
    session = open_session(options)
    return Probe(session, session.library.platform(platform))


def _check_name(path: Path | None, platforms: Container[str]) -> None:
    """Raise UnsupportedError if the file's name cannot be the name of a new platform."""
    if path is None:
        return
    if path.suffix != ".yaml" or not re.fullmatch(IDENTIFIER, path.stem):
        raise UnsupportedError(f"{shown_path(path)}: write NAME.yaml, NAME in small letters, digits and _.")
    if path.stem in platforms:
        raise UnsupportedError(f"{shown_path(path)}: {path.stem} is a platform already. Choose another name.")
