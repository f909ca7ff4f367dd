"""`quantizer onnx`: tabulates ONNX's node tests by operator, shows a model's nodes, and writes Compass IR."""

from __future__ import annotations

import argparse
import os
import sys
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from tabulate import tabulate

from quantizer.commands.requirements import require_onnx
from quantizer.core.errors import UnsupportedError
from quantizer.core.files import check_apart, exists, replace_files
from quantizer.core.wording import unknown

if TYPE_CHECKING:
    from torch import Tensor

    from quantizer.ir.graph import Graph
    from quantizer.runtime.onnx_node_tests import Finding

PASSED, MISSED = 0, 1
SHARE = 0.97
"""The share of the tests in the frozen list that must pass."""
OUTCOMES = ("passed", "refused", "wrong", "crashed")


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `onnx` and its verbs to the command line."""
    onnx = subparsers.add_parser(
        "onnx", help="ONNX models and ONNX's own tests", description="ONNX models and ONNX's own tests."
    )
    verbs = onnx.add_subparsers(title="verbs", metavar="VERB", dest="verb", required=True)
    table = verbs.add_parser(
        "backend-table",
        help=f"run the official node tests; exit 1 if one fails or fewer than {SHARE:.0%}% of the frozen list pass",
    )
    table.add_argument("--op", action="append", default=[], help="only tests of this operator (repeatable)")
    table.add_argument("-o", "--output", type=Path, help="write markdown to this file")
    show = verbs.add_parser("show", help="the nodes of a loaded model, with shapes and attributes")
    show.add_argument("model", type=Path, help="an ONNX file")
    compass = verbs.add_parser(
        "compass", help="write a model as Compass float IR, which `quantizer optimize` takes; every size is then fixed"
    )
    compass.add_argument("model", type=Path, help="an ONNX file")
    compass.add_argument("--text", type=Path, required=True, metavar="FILE", help="the layers")
    compass.add_argument("--bin", type=Path, required=True, metavar="FILE", help="the constants")
    compass.add_argument(
        "--shape",
        action="append",
        default=[],
        metavar="INPUT=SIZES",
        help="the shape of an input whose sizes are free, such as image=1,3,8,8 (repeatable)",
    )


def run(args: argparse.Namespace) -> int:
    """Run one verb; UnsupportedError if onnx is not installed."""
    require_onnx()
    verbs = {"backend-table": _table, "show": _show, "compass": _compass}
    return verbs[args.verb](args)


def _table(args: argparse.Namespace) -> int:
    from tqdm import tqdm

    from quantizer.runtime.onnx_node_tests import STANDARD, node_tests
    from quantizer.runtime.onnx_node_tests import run as run_test

    chosen = [test for test in node_tests() if not args.op or test.operator in args.op]
    if not chosen:
        raise UnsupportedError(f"--op={', '.join(args.op)}: no node test concerns it.")
    findings = [run_test(test) for test in tqdm(chosen, unit="test", disable=None, file=sys.stderr)]
    frozen = [finding for finding in findings if finding.test.operator in STANDARD]
    if args.output:
        replace_files({args.output: document(findings)})
    sys.stdout.write(f"{_summary('all', findings)}\n{_summary('frozen list', frozen)}\n")
    passed = sum(finding.outcome == "passed" for finding in frozen)
    wrong = [finding for finding in findings if finding.outcome in ("wrong", "crashed")]
    sys.stdout.writelines(f"{finding.test.name}: {finding.outcome}: {finding.reason}\n" for finding in wrong)
    return MISSED if wrong or passed < SHARE * len(frozen) else PASSED


def _summary(what: str, findings: list[Finding]) -> str:
    counts = {outcome: sum(f.outcome == outcome for f in findings) for outcome in OUTCOMES}
    share = f" ({counts['passed'] / len(findings):.1%})" if findings else ""
    others = ", ".join(f"{counts[outcome]} {outcome}" for outcome in OUTCOMES[1:])
    return f"{what}: {len(findings)} tests, {counts['passed']} passed{share}, {others}"


def document(findings: list[Finding]) -> str:
    """Return the page: the frozen list by operator, other operators, and the reasons of tests that did not pass."""
    import onnx

    from quantizer.runtime.onnx_node_tests import PPQ_ONLY, STANDARD

    frozen = [finding for finding in findings if finding.test.operator in STANDARD]
    others = [finding for finding in findings if finding.test.operator not in STANDARD]
    not_passed = [finding for finding in frozen if finding.outcome != "passed"]
    parts = [
        "# ONNX node tests",
        f"The node tests of onnx {onnx.__version__} through `quantizer.runtime.onnx_backend`, written by "
        "`quantizer onnx backend-table -o docs/onnx.md`. The tests' own tolerances apply. A refused test counts as not "
        f"passed. Tests whose answers a later release corrected are left out: {_corrected()}.",
        f"- {_summary('all', findings)}\n- {_summary('the frozen list', frozen)}\n"
        f"- {_summary('other operators', others)}",
        "## The frozen list",
        _by_operator(frozen),
        f"`runtime/onnx/ppq_only.py` runs operators that no opset and no test of ONNX has: {', '.join(PPQ_ONLY)}.",
        "## Not passed, of the frozen list",
        tabulate(
            [[f.test.name, f.outcome, f.reason.replace("|", "\\|")] for f in not_passed],
            headers=["test", "outcome", "reason"],
            tablefmt="github",
            disable_numparse=True,
        ),
        "## Other operators",
        _by_operator(others),
    ]
    return "\n\n".join(parts) + "\n"


def _corrected() -> str:
    from quantizer.runtime.onnx_node_tests import CORRECTED

    return ", ".join(
        f"{len(names)} with onnx before {'.'.join(map(str, release))}" for release, names in CORRECTED.items()
    )


def _by_operator(findings: list[Finding]) -> str:
    counts: dict[str, dict[str, int]] = defaultdict(lambda: dict.fromkeys(OUTCOMES, 0))
    for finding in findings:
        counts[finding.test.operator][finding.outcome] += 1
    rows = [{"operator": name, "tests": sum(row.values()), **row} for name, row in sorted(counts.items())]
    return tabulate(rows, headers="keys", tablefmt="github")


def _show(args: argparse.Namespace) -> int:
    from quantizer.runtime.onnx_model import load_onnx_graph

    graph = load_onnx_graph(args.model)
    rows = [
        [
            node.name,
            node.op,
            ", ".join(f"{name} {_size(graph.tensor(name).shape)}" for name in node.outputs),
            ", ".join(f"{key}={value}" for key, value in node.attrs.items()),
        ]
        for node in graph.order
    ]
    sys.stdout.write(
        tabulate(rows, headers=["node", "operator", "makes", "attributes"], disable_numparse=True) + os.linesep
    )
    return PASSED


def _compass(args: argparse.Namespace) -> int:
    from quantizer.ir.channels_last import channels_last
    from quantizer.ir.formats import compass
    from quantizer.ir.formats.onnx import source_files
    from quantizer.runtime.onnx.kernels import specs
    from quantizer.runtime.onnx.registry_form import registry_form
    from quantizer.runtime.onnx_model import load_onnx_graph

    outputs = [args.text, args.bin]
    # a new file cannot be an input; the model's external data are read only for this check
    if any(map(exists, outputs)):
        check_apart(source_files(args.model), outputs)
    graph = load_onnx_graph(args.model)
    shapes = dict(_shape(text) for text in args.shape)
    made = channels_last(registry_form(graph, _zeros(graph, shapes)), specs())
    compass.write(compass.foreign(made, specs()), args.text, args.bin)
    return PASSED


def _zeros(graph: Graph, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Tensor]:
    """Return zeros of the given *shapes*; UnsupportedError for an unknown input, GraphError if one is too large."""
    import torch

    from quantizer.ir.graph import check_size, container

    found = {}
    for name, shape in shapes.items():
        if name not in graph.inputs:
            raise UnsupportedError(f"--shape={name}=...: {unknown(name, graph.inputs, 'input')}")
        dtype = container(graph.tensor(name).dtype)
        check_size(f"--shape={name}=...", shape, dtype.itemsize)
        found[name] = torch.zeros(shape, dtype=dtype)
    return found


def _shape(text: str) -> tuple[str, tuple[int, ...]]:
    name, _, sizes = text.rpartition("=")
    parts = sizes.split(",")
    # fewer than eight digits, so that no size overflows
    if not name or not all(part.isdecimal() and 0 < len(part) < 8 for part in parts):
        raise UnsupportedError(f"--shape={text}: write an input and its sizes, such as image=1,3,8,8.")
    return name, tuple(int(part) for part in parts)


def _size(shape: tuple[int, ...]) -> str:
    return f"[{', '.join('?' if size < 0 else str(size) for size in shape)}]"
