"""`quantizer case from-onnx`: nodes of a quantized ONNX model as cases, with the model's scales, shapes and codes."""

from __future__ import annotations

import argparse
import re
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quantizer.commands.model import operands
from quantizer.commands.requirements import require_onnx
from quantizer.core.errors import CaseError, UnsupportedError
from quantizer.core.files import create_files, is_taken
from quantizer.core.wording import unknown

if TYPE_CHECKING:
    from quantizer.conformance.models.from_onnx import Cut
    from quantizer.conformance.setup.session import Session
    from quantizer.conformance.trials.trial import Trial
    from quantizer.core.verdict import Verdict

PASSED, FAILED = 0, 1
OWN = "builtin"
WRITTEN = 5
"""The number of failing nodes that one run shrinks and writes, if no node is named."""
LARGEST = 1 << 20
"""The largest number of bytes of a stored case that can be read again."""
EPILOG = """\
Without --node every quantized node is judged, one line each, failing ones first. A failure is shrunk. -o writes, for
each failing node or for the named one: part.onnx and operands.npz (the node as the model has it) and case.json, which
`quantizer case replay` runs again.

exit status: 0 no check fails, 1 one does, 2 the input cannot be read, or the named node has no spec or no scheme.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the model and the options."""
    parser.add_argument("model", type=Path, help="a quantized ONNX file, QDQ or QLinear")
    parser.add_argument("--node", default="", metavar="NAME", help="this node alone")
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
        "--platform", default="", help="platform whose arithmetic is declared (default: the engine's; ort of builtin)"
    )
    parser.add_argument(
        "--op-plugins", action="append", type=Path, default=[], help="files or folders of operator plugins (repeatable)"
    )
    parser.add_argument("-o", "--output", type=Path, metavar="FOLDER", help="a new folder for the cases")


def run(args: argparse.Namespace) -> int:
    """Judge the nodes on every engine; 0 where all checks pass, 1 where one fails."""
    from quantizer.runtime.isolation.plugins import judged
    from quantizer.runtime.onnx_model import load_onnx_graph

    require_onnx()
    if args.output is not None and is_taken(args.output):
        raise CaseError(f"{args.output}: exists already and is not written into. Name a new folder.")
    graph = load_onnx_graph(args.model).with_(name=args.model.stem)
    feeds = _values(graph) if args.data is None else operands(args.data, graph)
    plugins = judged(args.op_plugins, python="", in_process=False)
    extra = tuple(folder for plugin in plugins for folder in plugin.specs)
    contents: dict[Path, Any] = {}
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


def _values(graph: Any) -> Any:
    from quantizer.runtime.sample_data import synthetic_batches

    return synthetic_batches(graph, 0, 1, 1)[0]


def _session(args: argparse.Namespace, engine: str, extra: tuple[Path, ...]) -> tuple[Session, str]:
    """Return the engine ready to run, and the platform that it is judged on."""
    from quantizer.conformance.setup.options import Options
    from quantizer.conformance.setup.session import open_session
    from quantizer.core.library import load_library

    try:
        real = Options(root=Path.cwd(), engine=engine).real
    except UnsupportedError as err:  # pytest's option has another name
        raise UnsupportedError(str(err).replace("--op-engine=", "--engine=", 1)) from None
    home = list(real.entry.variant_of_platform) if real is not None else ["ort"]
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
    args: argparse.Namespace, graph: Any, feeds: Any, session: Session, platform: str, contents: dict[Path, Any]
) -> tuple[bool, list[str]]:
    """Return whether any node fails, and the lines to print; files to write are added to *contents*."""
    from quantizer.conformance.models.from_onnx import cuts_of, judged_cut

    cuts = cuts_of(graph, feeds, session, platform, args.node)
    if args.node and cuts[0].case is None:
        raise UnsupportedError(f"--node={args.node} ({cuts[0].part.op}): {cuts[0].refusal}")
    found = [(cut, *judged_cut(cut, session)) for cut in cuts if cut.case is not None]
    failing = [one for one in found if _fails(one[2])]
    right = [one for one in found if not _fails(one[2])]
    lines = [f"engine {session.engine.name}, platform {platform}"]
    lines += [_line(cut, verdicts) for cut, _, verdicts in (*failing, *right)]
    lines += [f"  {cut.part.name:<20} {cut.part.op:<18} no case: {cut.refusal}" for cut in cuts if cut.case is None]
    chosen = failing[:WRITTEN] if not args.node else found
    for number, (cut, trial, verdicts) in enumerate(chosen, 1):
        folder = None if args.output is None else args.output / _place(cut, number, session)
        lines.append(_explained(args, session.options.engine, cut, trial, verdicts, folder, contents))
    return bool(failing), lines


def _fails(verdicts: Sequence[Verdict]) -> bool:
    return any(verdict.failing for verdict in verdicts)


def _line(cut: Cut, verdicts: Sequence[Verdict]) -> str:
    """Return the line of a node: its failure, or how many checks pass and why others could not be made.

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


def _place(cut: Cut, number: int, session: Session) -> str:
    plain = re.sub(r"[^A-Za-z0-9._-]+", "_", cut.part.name).strip("_")[-60:]
    return f"{re.sub(r'[^A-Za-z0-9._-]+', '_', session.engine.name)}-{number}-{plain}"


def _explained(
    args: argparse.Namespace,
    engine: str,
    cut: Cut,
    trial: Trial,
    verdicts: list[Verdict],
    folder: Path | None,
    contents: dict[Path, Any],
) -> str:
    """Return the text to print for one node; for a failing node it describes the smallest case.

    engine: as the user named it, a command and a worker's file included.
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
        contents |= _files(cut, folder)
        if len(stored) > LARGEST:
            lines.append(f"{folder}: part.onnx and operands.npz; the case has too many codes for case.json")
        else:
            contents[folder / "case.json"] = stored
            lines.append(f"wrote part.onnx, operands.npz and case.json to {folder}")
    return "\n".join(lines) if lines else f"{cut.part.name}: every check passes"


def _files(cut: Cut, folder: Path) -> dict[Path, Any]:
    """Return the files to write for the node."""
    from quantizer.ir.formats.npz import npz_bytes
    from quantizer.ir.formats.onnx_values import to_numpy
    from quantizer.ir.formats.onnx_write import to_model

    fed = {name: to_numpy(values, cut.graph.tensor(name).dtype) for name, values in cut.operands.items()}
    return {
        folder / "part.onnx": [to_model(cut.graph).SerializeToString()],
        folder / "operands.npz": [npz_bytes(fed)],
    }
