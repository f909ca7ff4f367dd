"""`quantizer case`: replays a stored case, keeps it as a regression, exports it, or writes it as a script."""

from __future__ import annotations

import argparse
import io
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from quantizer.commands import case_from_onnx, case_repro
from quantizer.commands.shared_options import add_plugins, add_specs
from quantizer.core.errors import CaseError, UnsupportedError
from quantizer.core.levels import ALL

if TYPE_CHECKING:
    from quantizer.conformance.failures.exported import Content
    from quantizer.conformance.setup.options import Options
    from quantizer.conformance.setup.session import Session
    from quantizer.conformance.stored.files import Replay
    from quantizer.conformance.trials.trial import Trial

PASSED, FAILED = 0, 1


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `case` and its verbs to the command line."""
    case = subparsers.add_parser(
        "case",
        help="replay, keep or export a stored case",
        description="Run a stored case again, keep it as a regression, or export its graph and data.",
    )
    verbs = case.add_subparsers(title="verbs", metavar="VERB", dest="verb", required=True)
    replay = verbs.add_parser("replay", help="run the case through every check and print the verdicts")
    keep = verbs.add_parser("keep", help="copy a failure into the stored regressions, which run first from then on")
    keep.add_argument("--reason", required=True, help="why the case is kept")
    keep.add_argument(
        "-o", "--output", type=Path, default=Path("cases/regressions"), help="folder (default: %(default)s)"
    )
    export = verbs.add_parser(
        "export",
        help="write operands, expected and got as npz and JSON; where Compass IR holds the operator, IR and cfg too",
    )
    export.add_argument("-o", "--output", type=Path, required=True, help="a new folder")
    from_onnx = verbs.add_parser(
        "from-onnx",
        help="judge nodes of a quantized ONNX model, and cut the failing ones out",
        epilog=case_from_onnx.EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    case_from_onnx.add_arguments(from_onnx)
    repro = verbs.add_parser(
        "repro",
        help="write a stand-alone script for a bug report: it needs only the engine and numpy",
    )
    case_repro.add_arguments(repro)
    for verb in (replay, keep, export):
        _add_judging(verb)


def _add_judging(verb: argparse.ArgumentParser) -> None:
    """Add the arguments for the file of a case and for what judges it."""
    verb.add_argument("file", type=Path, help="replay file, as a failing item names it")
    add_specs(verb)
    add_plugins(verb)
    verb.add_argument("--op-plugin-python", default="", metavar="PATH", help="interpreter of the process of plugins")
    verb.add_argument(
        "--op-in-process", action="store_true", help="run functions of plugins in this process, for a debugger"
    )
    verb.add_argument("--op-reading", action="append", default=[], help="OPERATOR/PLATFORM:READING")
    verb.add_argument("--op-engine", default="builtin", help="engine under test (default: %(default)s)")
    verb.add_argument(
        "--op-engine-command",
        default="",
        metavar="COMMAND",
        help="command line of a worker, in place of --op-engine",
    )
    verb.add_argument(
        "--op-isa", default="", metavar="LEVEL", help="instruction-set level to which a real engine is restricted"
    )


def run(args: argparse.Namespace) -> int:
    """Run one verb; return 0 if all checks pass, 1 if one fails."""
    if args.verb == "from-onnx":
        return case_from_onnx.run(args)
    if args.verb == "repro":
        return case_repro.run(args)
    from quantizer.conformance.setup.options import Options
    from quantizer.conformance.setup.session import open_session
    from quantizer.conformance.stored.files import read_replay
    from quantizer.runtime.isolation.plugins import judged

    if args.op_isa == ALL:
        raise UnsupportedError("--op-isa=all: a stored case runs at one level. Name it.")
    options = Options(
        root=Path.cwd(),
        specs=tuple(args.op_specs),
        plugins=tuple(args.op_plugins),
        engine=args.op_engine,
        engine_command=args.op_engine_command,
        readings=tuple(args.op_reading),
        isa=args.op_isa,
        plugin_python=args.op_plugin_python,
        in_process=args.op_in_process,
    )
    replay = read_replay(args.file)
    plugins = judged(options.plugins, python=options.plugin_python, in_process=options.in_process)
    extra = tuple(folder for plugin in plugins for folder in plugin.specs)
    # plugins may have functions for operators whose specs are not named here
    session = open_session(options, extra, only=replay.case.op)
    trial = _trial(session, replay)
    if args.verb == "replay":
        return _replay(trial, replay, options, session.library.paths[trial.spec.op])
    return _keep(replay, args) if args.verb == "keep" else _export(trial, args.output)


def _trial(session: Session, replay: Replay) -> Trial:
    from quantizer.conformance.stored.fitting import target_of
    from quantizer.conformance.trials.trial import Trial

    return Trial(target_of(session.library, replay.case, str(replay.path)), replay.case, session.engine)


def _replay(trial: Trial, replay: Replay, options: Options, spec: Path) -> int:
    from quantizer.conformance.failures.message import describe, graph_line
    from quantizer.conformance.judging.judge import judge
    from quantizer.core.library import shipped_folder
    from quantizer.core.verdict import CHECKS

    verdicts = judge(trial, CHECKS)
    if any(verdict.failing for verdict in verdicts):
        item, shown = trial.target.id, options.shown(replay.path)
        folder = shipped_folder().resolve()
        # a shipped spec of an installed package is requested by its operator's name
        elsewhere = spec.resolve().is_relative_to(folder) and options.root.resolve() != folder.parent
        own = f" --op-shipped={trial.spec.op}" if elsewhere else ""
        rerun = f"pytest -k {item}{own}{options.naming(trial.target.platform.platform)}{options.arguments}"
        again = f"quantizer case replay {shown}{options.arguments}"
        print_lines(describe(item, replay.case, trial, verdicts, rerun=rerun, replay=again))
        return FAILED
    lines = [graph_line(replay.case)]
    for verdict in verdicts:
        reason = f"  {verdict.reason}" if verdict.reason else ""
        lines.append(f"  {verdict.check:<12} {verdict.status:<12} ratio {verdict.ratio:.3g}{reason}")
    print_lines("\n".join(lines))
    return PASSED


def _keep(replay: Replay, args: argparse.Namespace) -> int:
    from quantizer.conformance.stored.files import keep

    if not args.reason.strip():
        raise CaseError("--reason: say why the case is kept, as in --reason 'halo of the last tile'.")
    path = keep(replay, args.output, args.reason)
    print_lines(f"kept as {path}; commit it: {replay.case.op}-regressions runs it from now on")
    return PASSED


def _export(trial: Trial, folder: Path) -> int:
    from quantizer.conformance.failures.exported import exported
    from quantizer.conformance.failures.tensors import ARRAYS, DESCRIPTION, arrays, description
    from quantizer.core.files import create_files, is_taken
    from quantizer.ir.formats.npz import npz_bytes

    if is_taken(folder):
        raise CaseError(f"{folder}: exists already and is not written into. Name a new folder.")
    found = arrays(trial)
    contents: dict[Path, str | list[bytes]] = {
        folder / ARRAYS: [npz_bytes(found)],
        folder / DESCRIPTION: description(trial, found),
    }
    after = []
    for name, made in exported(trial):
        if isinstance(made, str):
            after.append(f"no {name} beside them: {made}")
            continue
        contents |= {folder / file: _stored(content) for file, content in made.files.items()}
        after.append(made.step.format(folder=folder))
    create_files(contents)
    print_lines(f"wrote {', '.join(path.name for path in contents)} to {folder}")
    # last, because they say what to do with the files
    for line in after:
        print_lines(line)
    return PASSED


def _stored(content: Content) -> str | list[bytes]:
    """Return the content of a file: arrays become .npy bytes, dicts of arrays .npz bytes."""
    import numpy as np

    from quantizer.ir.formats.npz import npz_bytes

    if isinstance(content, str):
        return content
    if isinstance(content, bytes):
        return [content]
    if isinstance(content, Mapping):
        return [npz_bytes(content)]
    stream = io.BytesIO()
    np.save(stream, content, allow_pickle=False)
    return [stream.getvalue()]


def print_lines(text: str) -> None:
    """Write *text* and a line feed to standard output."""
    sys.stdout.write(f"{text}\n")
