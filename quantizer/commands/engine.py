"""`quantizer engine`: lists, installs, measures and probes real engines, and writes their defects."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from tabulate import tabulate

from quantizer.commands import probe
from quantizer.core.errors import CaseError, UnsupportedError
from quantizer.core.files import replace_files
from quantizer.core.reading import Readable
from quantizer.core.wording import suggestion

if TYPE_CHECKING:
    from quantizer.conformance.agreement.table import Pairing
    from quantizer.conformance.setup.session import Session

AGREE, DIFFER = 0, 1
AGREEMENT = Readable("a table of agreement", 1 << 24, CaseError)
"""The document that an earlier `agreement -o` wrote, from which parts of other engines are kept."""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `engine` and its verbs to the command line."""
    engine = subparsers.add_parser(
        "engine",
        help="list and measure real engines",
        description="Real engines: which are installed, how far they agree with our functions for their platforms, and "
        "their known defects.",
    )
    verbs = engine.add_subparsers(title="verbs", metavar="VERB", dest="verb", required=True)
    verbs.add_parser("list", help="engines, their versions and the platforms that they compute")
    _add_new(verbs)
    install = verbs.add_parser("install", help="make the environment of an engine, under the user's cache")
    install.add_argument(
        "name", metavar="NAME[@VERSION]", help="name of a shipped engine; each version has its own environment"
    )
    probe.add_parser(verbs)
    _add_agreement(verbs)
    _add_defects(verbs)


def _add_new(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    new = verbs.add_parser("new", help="write the worker of an engine of your own, about twenty lines")
    new.add_argument("name", metavar="NAME", help="name of the engine")
    new.add_argument(
        "--form",
        default="npz",
        help="form of models that it runs: npz, onnx-qdq, or one of a room, such as tflite, tosa, onnx-qlinear and "
        "compass-ir (default: %(default)s)",
    )
    new.add_argument("-o", "--output", type=Path, help="file to write (default: NAME_worker.py)")


def _add_agreement(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    agreement = verbs.add_parser(
        "agreement",
        help="compare codes element by element on random and tied cases; exit 1 if an engine and its platform differ",
    )
    agreement.add_argument("--engine", action="append", default=[], help="only this engine (repeatable)")
    agreement.add_argument("--op", action="append", default=[], help="only this operator (repeatable)")
    agreement.add_argument(
        "--elements", type=int, default=20_000, help="elements of each population (default: %(default)s)"
    )
    agreement.add_argument("--op-platform", action="append", default=[], help="only this platform (repeatable)")
    agreement.add_argument(
        "--op-isa",
        default="",
        metavar="LEVEL",
        help="instruction-set level to which engines that have such a switch are restricted: avx2, avx512, "
        "avx512_vnni, amx, host, or all (one column each) (default: avx2)",
    )
    agreement.add_argument("-o", "--output", type=Path, help="write markdown to this file")


def _add_defects(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    defects = verbs.add_parser("defects", help="known defects of platforms and engines, with their smallest cases")
    defects.add_argument(
        "--gallery", action="store_true", help="write docs/gallery.md and the stand-alone scripts of examples/gallery"
    )
    defects.add_argument(
        "--record",
        nargs="?",
        const="all",
        choices=("all", "missing"),
        help="with --gallery: run the scripts of installed engines (all, or those without a record) and store what "
        "they print",
    )
    defects.add_argument(
        "--run",
        action="append",
        default=[],
        type=Path,
        metavar="FOLDER",
        help="with --gallery: a gate run of an engine without a baseline; the gallery divides its causes by the "
        "number of cases of this run (repeatable)",
    )
    defects.add_argument("-o", "--output", type=Path, help="write markdown to this file")


def run(args: argparse.Namespace) -> int:
    """Run one verb. `agreement` returns 1 if codes differ and no declared defect explains it."""
    if args.verb == "list":
        return _list()
    if args.verb == "new":
        return _new(args)
    if args.verb == "install":
        return _install(args)
    if args.verb == "probe":
        return probe.run(args)
    if args.verb == "defects":
        return _defects(args)
    return _agreement(args)


def _list() -> int:
    from quantizer.core.rooms import engines
    from quantizer.runtime.engines.catalogue import Chosen
    from quantizer.runtime.engines.environments import releases

    # the empty release is what the current environment has, the others have environments of their own
    rows = [
        {
            "engine": f"{chosen.identity(platform)}{f'@{release}' if release else ''}",
            "version": chosen.version or "not installed",
            "platform": platform,
        }
        for name, entry in engines().items()
        for platform in entry.variant_of_platform
        for release in ("", *releases(name))
        for chosen in (Chosen(name, release=release),)
    ]
    sys.stdout.write(tabulate(rows, headers="keys", disable_numparse=True) + os.linesep)
    return AGREE


def _new(args: argparse.Namespace) -> int:
    from quantizer.runtime.engines.greeting import NAME
    from quantizer.runtime.engines.skeletons import bodies, first_operator, only_platform, skeleton

    if not NAME.fullmatch(args.name):
        raise UnsupportedError(
            f"{args.name!r}: is not a name of an engine. Write small letters, digits and _, a letter first."
        )
    if args.form not in (known := bodies()):
        raise UnsupportedError(f"--form={args.form}: no such form.{suggestion(args.form, known, 'Known')}")
    path = args.output or Path(f"{args.name}_worker.py")
    if path.exists():
        raise UnsupportedError(f"{path}: exists. Name another file with --output.")
    replace_files({path: skeleton(args.name, args.form)})
    platform = only_platform(args.form)
    step = f"pytest --op-shipped={first_operator(args.form)} --op-engine=python:{path}"
    step += f" --op-platform={platform}" if platform else ""
    sys.stdout.write(f"wrote {path}; judge it: {step}{os.linesep}")
    return AGREE


def _install(args: argparse.Namespace) -> int:
    from quantizer.core.rooms import engines
    from quantizer.runtime.engines.environments import install

    name, _, release = args.name.partition("@")
    known = {known: engine for known, engine in engines().items() if engine.distributions}
    if name not in known:
        raise UnsupportedError(f"{name!r}: no such engine.{suggestion(name, known, 'Known')}")
    python = install(name, known[name].distributions, release)
    sys.stdout.write(f"{args.name}: {python}{os.linesep}")
    return AGREE


def _agreement(args: argparse.Namespace) -> int:
    from quantizer.conformance.agreement.table import document, summary

    found = [pairing for session in _sessions(args) for pairing in _pairings(session, args)]
    if not found:
        raise UnsupportedError("no installed engine computes a requested platform. See `quantizer engine list`.")
    if args.output:
        # rows of engines that this call does not measure stay
        before = AGREEMENT.text_of(args.output) if args.output.is_file() else ""
        replace_files({args.output: document(found, before)})
    sys.stdout.write(summary(found) + os.linesep)
    unexplained = [pairing for pairing in found if pairing.differs and not pairing.explained]
    return DIFFER if unexplained else AGREE


def _sessions(args: argparse.Namespace) -> Iterator[Session]:
    """Yield a session for each requested engine and level; report engines that are not installed on stderr."""
    from quantizer.conformance.setup.options import Options
    from quantizer.conformance.setup.session import open_session
    from quantizer.core.rooms import engines
    from quantizer.runtime.engines.catalogue import chosen

    for name in args.engine or engines():
        real = chosen(name, option="--engine")
        if real is None:
            raise UnsupportedError("--engine=builtin: it is what real engines are compared with. Name one of them.")
        platforms = [p for p in args.op_platform if real.computes(p, named=True)] if args.op_platform else []
        if args.op_platform and not platforms:
            continue
        if real.missing:
            # not an error: the engines that are installed are still measured
            sys.stderr.write(f"inconclusive: {real.missing}\n")
            continue
        options = Options(root=Path.cwd(), engine=name, isa=args.op_isa, platforms=tuple(platforms))
        session = open_session(options)
        for op in args.op:
            if op not in session.library.specs:
                raise UnsupportedError(f"--op={op}: no such name.{suggestion(op, session.library.specs, 'Known')}")
        yield from (session.at(level) for level in options.levels)


def _pairings(session: Session, args: argparse.Namespace) -> Iterator[Pairing]:
    from tqdm import tqdm

    from quantizer.conformance.agreement.table import pair

    specs = [spec for name, spec in session.library.specs.items() if not args.op or name in args.op]
    targets = [target for spec in specs for target in session.targets(spec)]
    for target in tqdm(
        targets, unit="target", desc=f"{session.engine.name} {session.engine.isa}", disable=None, file=sys.stderr
    ):
        if session.engine.supports(target.spec, target.scheme, target.platform) is None:
            yield pair(target, session.engine, args.elements)


def _defects(args: argparse.Namespace) -> int:
    from quantizer.conformance.defects.document import defects_document
    from quantizer.core.library import load_library

    if args.gallery or args.record or args.run:
        return _gallery(args)
    text = defects_document(load_library())
    if args.output:
        replace_files({args.output: text})
    else:
        sys.stdout.write(text)
    return AGREE


def _gallery(args: argparse.Namespace) -> int:
    from quantizer.conformance.defects import gallery
    from quantizer.conformance.setup.options import Options
    from quantizer.conformance.setup.session import open_session
    from quantizer.runtime.engines.catalogue import ENCLOSING

    if not args.gallery or args.output:
        raise UnsupportedError(
            "engine defects: --record and --run need --gallery. --gallery writes to fixed places and takes no --output."
        )
    # the enclosing platform is known only on request, and some defects are declared on it
    session = open_session(Options(root=Path.cwd(), platforms=(ENCLOSING,)))
    if args.record:
        before = gallery.read_outcomes(gallery.OUTCOMES)
        found = gallery.recorded(gallery.entries(session), before, missing=args.record == "missing")
        replace_files({gallery.OUTCOMES: json.dumps(found, indent=1) + "\n"})
    if args.run:
        counts = gallery.with_runs(gallery.read_runs(gallery.RUNS), args.run)
        replace_files({gallery.RUNS: json.dumps(counts, indent=1) + "\n"})
    made = gallery.files(session, Path.cwd())
    # scripts of defects that are no longer declared
    for path in set(gallery.SCRIPTS.glob("*.py")) - set(made):
        path.unlink()
    replace_files(made)
    sys.stdout.write(f"wrote {gallery.PAGE} and {len(made) - 1} scripts to {gallery.SCRIPTS}\n")
    return AGREE
