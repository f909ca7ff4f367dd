"""`quantizer case from-onnx`: nodes of a quantized ONNX model as cases, with the model's scales, shapes and codes."""

from __future__ import annotations

import argparse
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from quantizer.commands.model import operands
from quantizer.commands.requirements import require_onnx
from quantizer.commands.shared_options import add_plugins
from quantizer.core.errors import CaseError, UnsupportedError
from quantizer.core.files import Content, create_files, is_taken
from quantizer.core.rooms import graph_platform
from quantizer.core.wording import unknown

if TYPE_CHECKING:
    from torch import Tensor

    from quantizer.conformance.fusion.of_model import Joined
    from quantizer.conformance.models.from_onnx import Cut
    from quantizer.conformance.setup.session import Session
    from quantizer.conformance.trials.trial import Trial
    from quantizer.core.verdict import Verdict
    from quantizer.ir.graph import Graph
    from quantizer.runtime.models.engines import Session as Models

PASSED, FAILED = 0, 1
OWN = "builtin"
WRITTEN = 5
"""The most failing nodes that a run shrinks and writes if no node is named."""
LARGEST = 1 << 20
"""The largest stored case, in bytes, that can be read again."""
EPILOG = """\
Without --node every quantized node is judged, one line each, failing ones first. A failure is shrunk. -o writes, for
each failing node or for the named one: part.onnx and operands.npz (the node as the model has it) and case.json, which
`quantizer case replay` runs again.

Two or three nodes without codes between them are judged as one graph, on engines that run ONNX files: the optimized run
is compared with the run without optimizations. -o writes part.onnx and operands.npz of a failure, with halved sizes and
with 0 in place of values that the failure does not need, and prints the command that runs them again.

exit status: 0 no check fails, 1 one does, 2 the input cannot be read, or the named node has no spec or no scheme.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the model and the options."""
    parser.add_argument("model", type=Path, help="a quantized ONNX file, QDQ or QLinear")
    parser.add_argument("--node", default="", metavar="NAME", help="judge only this node")
    parser.add_argument(
        "--data", type=Path, metavar="FILE", help=".npz with one array for each input; otherwise values from seed 0"
    )
    parser.add_argument(
        "--engine",
        action="append",
        default=[],
        metavar="NAME",
        help="engine under test: builtin, onnxruntime, onnx_reference, ... (repeatable; default: builtin)",
    )
    parser.add_argument(
        "--platform",
        default="",
        help=f"platform whose arithmetic is declared (default: the engine's; {graph_platform()} of builtin)",
    )
    add_plugins(parser)
    parser.add_argument("-o", "--output", type=Path, metavar="FOLDER", help="a new folder for the cases")


def run(args: argparse.Namespace) -> int:
    """Judge the nodes on every engine; return 0 if all checks pass, 1 if one fails."""
    from quantizer.runtime.isolation.plugins import judged
    from quantizer.runtime.onnx_model import load_onnx_graph

    require_onnx()
    # before the model runs on every engine
    if args.output is not None and is_taken(args.output):
        raise CaseError(f"{args.output}: exists already and is not written into. Name a new folder.")
    graph = load_onnx_graph(args.model).with_(name=args.model.stem)
    feeds = _values(graph) if args.data is None else operands(args.data, graph)
    plugins = judged(args.op_plugins, python="", in_process=False)
    extra = tuple(folder for plugin in plugins for folder in plugin.specs)
    contents: dict[Path, Content] = {}
    failed, texts = False, []
    for engine in dict.fromkeys(args.engine or [OWN]):
        session, platform = _session(args, engine, extra)
        made = _judged(args, graph, feeds, session, platform, contents)
        failed |= made[0]
        texts += made[1]
    if contents:
        create_files(contents)
    elif args.output is not None:
        texts.append(f"no check fails: {args.output} is not written. --node NAME writes a node that passes.")
    sys.stdout.write("\n".join(texts) + "\n")
    return FAILED if failed else PASSED


def _values(graph: Graph) -> Mapping[str, Tensor]:
    from quantizer.runtime.sample_data import synthetic_batches

    return synthetic_batches(graph, 0, 1, 1)[0]


def _session(args: argparse.Namespace, engine: str, extra: tuple[Path, ...]) -> tuple[Session, str]:
    """Return an open session with the engine, and the platform on which it is judged."""
    from quantizer.conformance.setup.options import Options
    from quantizer.conformance.setup.session import open_session
    from quantizer.core.library import load_library

    try:
        real = Options(root=Path.cwd(), engine=engine).real
    except UnsupportedError as err:  # pytest's option has another name
        raise UnsupportedError(str(err).replace("--op-engine=", "--engine=", 1)) from None
    home = list(real.entry.variant_of_platform) if real is not None else [graph_platform()]
    platform = args.platform or home[0]
    known = load_library().platforms
    if platform not in known:
        raise UnsupportedError(f"--platform={platform}: {unknown(platform, known, 'platform')}")
    options = Options(
        root=Path.cwd(),
        engine=engine,
        plugins=tuple(args.op_plugins),
        platforms=(platform,) if real is not None else (),
    )
    options.check_named()
    return open_session(options, extra), platform


def _judged(
    args: argparse.Namespace,
    graph: Graph,
    feeds: Mapping[str, Tensor],
    session: Session,
    platform: str,
    contents: dict[Path, Content],
) -> tuple[bool, list[str]]:
    """Return whether any node fails, and the lines to print; add the files to write to *contents*."""
    from quantizer.conformance.models.from_onnx import cuts_of, judged_cut

    cuts = cuts_of(graph, feeds, session, platform, args.node)
    # a named node without a case may be part of a group, whose other nodes are needed, too
    without = cuts if not args.node or cuts[0].case is not None else cuts_of(graph, feeds, session, platform)
    groups = [one for one in _groups(graph, feeds, without, session, platform) if args.node in ("", *one[0].names)]
    if args.node and cuts[0].case is None and not groups:
        raise UnsupportedError(f"--node={args.node} ({cuts[0].part.op}): {cuts[0].refusal}")
    found = [(cut, *judged_cut(cut, session)) for cut in cuts if cut.case is not None]
    failing = [one for one in found if _fails(one[2])]
    right = [one for one in found if not _fails(one[2])]
    lines = [f"engine {session.engine.name}, platform {platform}"]
    lines += [_line(cut, verdicts) for cut, _, verdicts in (*failing, *right)]
    lines += [_line_of_group(*one) for one in groups]
    judged = {name for joined, _ in groups for name in joined.names}
    lines += [
        f"  {cut.part.name:<20} {cut.part.op:<18} no case: {cut.refusal}"
        for cut in cuts
        if cut.case is None and cut.part.name not in judged
    ]
    wrong = [joined for joined, verdict in groups if verdict.failing]
    for number, joined in enumerate(wrong[:WRITTEN] if args.output is not None else (), len(failing) + 1):
        folder = args.output / _place("-".join(joined.names), number, session)
        lines += _smallest_group(joined, session, platform, folder, contents)
    # a node that the user names is written even if every check passes
    chosen = failing[:WRITTEN] if not args.node else found
    for number, (cut, trial, verdicts) in enumerate(chosen, 1):
        folder = None if args.output is None else args.output / _place(cut.part.name, number, session)
        lines.append(_explained(args, session.options.engine, cut, trial, verdicts, folder, contents))
    return bool(failing or wrong), lines


def _groups(
    graph: Graph, feeds: Mapping[str, Tensor], cuts: Sequence[Cut], session: Session, platform: str
) -> list[tuple[Joined, Verdict]]:
    """Return groups of nodes without codes between them, with the verdicts on the engine's optimized run of each group.

    Empty for an engine that runs no ONNX files.
    """
    from quantizer.conformance.fusion.of_model import joined_of, judge_joined
    from quantizer.runtime.models.engines import real_engines

    name, names = session.options.engine, {cut.part.name for cut in cuts if cut.case is None}
    found = joined_of(graph, feeds, names) if len(names) > 1 and name in real_engines() else []
    engines = _plain_and_optimized(name, platform) if found else None
    return [(joined, judge_joined(joined, engines)) for joined in found] if engines is not None else []


def _smallest_group(
    joined: Joined, session: Session, platform: str, folder: Path, contents: dict[Path, Content]
) -> list[str]:
    """Return the lines about a failing graph, reduced to the fewest values, and add its files to *contents*."""
    from quantizer.conformance.fusion.of_model import judge_joined, smallest

    name = session.options.engine
    engines = _plain_and_optimized(name, platform)
    small = smallest(joined, lambda one: judge_joined(one, engines).failing)
    contents |= _files(small.built.graph, small.built.feeds, folder)
    command = f"quantizer case from-onnx {folder / 'part.onnx'} --data {folder / 'operands.npz'}"
    return [
        f"{'+'.join(joined.names)}: {judge_joined(small, engines).reason}",
        f"wrote part.onnx and operands.npz to {folder}; again: {command} --engine {name} --platform {platform}",
    ]


def _plain_and_optimized(name: str, platform: str) -> tuple[Models, Models]:
    """Return sessions of a real engine without and with its optimizations."""
    from quantizer.runtime.models.engines import OPTIMIZED, model_engine
    from quantizer.runtime.models.engines import Session as Models

    plain, optimized = (model_engine(one, platform) for one in (name, f"{name}:{OPTIMIZED}"))
    assert isinstance(plain, Models)
    assert isinstance(optimized, Models)
    return plain, optimized


def _line_of_group(joined: Joined, verdict: Verdict) -> str:
    """Return the line of nodes that are judged as one graph."""
    status = "FAIL" if verdict.failing else verdict.status
    text = f"  {'+'.join(joined.names):<20} {'+'.join(joined.ops):<18} {status} optimized"
    return f"{text}: {verdict.reason}" if verdict.reason else text


def _fails(verdicts: Sequence[Verdict]) -> bool:
    return any(verdict.failing for verdict in verdicts)


def _line(cut: Cut, verdicts: Sequence[Verdict]) -> str:
    """Return the line of a node: its failure, or the number of passing checks and the reasons of inconclusive ones.

    Checks of a quantize rule are left out, because no rule chose the scales of a model.
    """
    from quantizer.conformance.failures.message import headline
    from quantizer.conformance.model_cases import OF_RULES

    assert cut.case is not None
    start = f"  {cut.part.name:<20} {cut.case.op:<18}"
    if wrong := next((headline(verdict) for verdict in verdicts if verdict.failing), ""):
        return f"{start} FAIL {wrong}"
    passed = sum(verdict.status == "pass" for verdict in verdicts)
    others = [
        f"{verdict.check} {verdict.status}: {verdict.reason}"
        for verdict in verdicts
        if verdict.status != "pass" and verdict.check not in OF_RULES
    ]
    return "; ".join([f"{start} {passed} pass", *others])


def _place(name: str, number: int, session: Session) -> str:
    # names of nodes come from the model: they may have slashes, and be too long for a file name; their ends differ
    plain = re.sub(r"[^A-Za-z0-9._-]+", "_", name).strip("_")[-60:]
    return f"{re.sub(r'[^A-Za-z0-9._-]+', '_', session.engine.name)}-{number}-{plain}"


def _explained(
    args: argparse.Namespace,
    engine: str,
    cut: Cut,
    trial: Trial,
    verdicts: list[Verdict],
    folder: Path | None,
    contents: dict[Path, Content],
) -> str:
    """Return the text to print for one node; for a failing node it describes the smallest case.

    *engine*: as the user named it, which may be a command or a worker's file.
    """
    from quantizer.conformance.failures.message import describe, replay_content
    from quantizer.conformance.models.from_onnx import smallest

    text, lines = "", []
    if _fails(verdicts):
        trial, verdicts = smallest(trial, verdicts)
        name = shlex.quote(engine)
        plugins = "".join(f" --op-plugins={shlex.quote(str(path))}" for path in args.op_plugins)
        again = (f" --op-engine={name}" if engine != OWN else "") + plugins
        replay = f"quantizer case replay {folder / 'case.json'}{again}" if folder else "-o FOLDER writes the case"
        data = f" --data {args.data}" if args.data else ""
        own = f" --engine {name}" if engine != OWN else ""
        node = f"--node {cut.part.name}{own} --platform {trial.case.platform}"
        rerun = f"quantizer case from-onnx {args.model} {node}{data}{plugins}"
        text = describe(f"{cut.part.name} ({trial.target.id})", trial.case, trial, verdicts, rerun=rerun, replay=replay)
        lines.append(text)
    if folder is not None:
        stored = replay_content(trial.target.id, trial, verdicts, text)
        contents |= _files(cut.graph, cut.operands, folder)
        if len(stored) > LARGEST:
            lines.append(f"{folder}: part.onnx and operands.npz; the case has too many codes for case.json")
        else:
            contents[folder / "case.json"] = stored
            lines.append(f"wrote part.onnx, operands.npz and case.json to {folder}")
    return "\n".join(lines) if lines else f"{cut.part.name}: every check passes"


def _files(graph: Graph, operands: Mapping[str, Tensor], folder: Path) -> dict[Path, Content]:
    """Return the files to write for a node, or for nodes that are one graph."""
    from quantizer.ir.formats.npz import npz_bytes
    from quantizer.ir.formats.onnx_values import to_numpy
    from quantizer.ir.formats.onnx_write import to_model

    fed = {name: to_numpy(values, graph.tensor(name).dtype) for name, values in operands.items()}
    return {
        folder / "part.onnx": [to_model(graph).SerializeToString()],
        folder / "operands.npz": [npz_bytes(fed)],
    }
