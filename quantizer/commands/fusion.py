"""`quantizer fusion`: judges graphs of a few nodes: node by node, rewritten, and with an engine's optimizations."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from typing import TYPE_CHECKING

from quantizer.commands.requirements import require_onnx
from quantizer.commands.shared_options import LARGEST_SEED, seed_number, whole_number
from quantizer.core.errors import UnsupportedError
from quantizer.core.wording import unknown

if TYPE_CHECKING:
    from quantizer.conformance.fusion.systems import System
    from quantizer.core.graph_spec import GraphSpec

PASSED, FAILED = 0, 1
_EPILOG = f"""\
Each case is a graph of graph_specs/ with its own sizes and data, quantized to 8 bits. Each node is judged from the
codes that it reads. The whole graph must give the same codes as its nodes, and so must each of our rewrites of it.

With --engine, the optimized run of a real system is compared with its run without optimizations, on its own platform.
A system without such a switch runs first with every tensor as an output of the graph, then with the graph's own
outputs. For litert and tosa, one model of the whole graph is compared with a model for each node, on each of their
platforms (litert:xnnpack has a delegate, litert:builtin has none). For torch, torch:x86, torch:fbgemm and
torch:qnnpack, a function with a relu is compared with the function and the relu one by one.

A failure is shrunk to fewer nodes and smaller sizes.

exit status: 0 nothing failed, 1 something did, 2 the input cannot be read. Seeds: 0 to {LARGEST_SEED}.
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command and its arguments."""
    parser = subparsers.add_parser(
        "fusion",
        help="judge graphs of a few nodes that engines fuse",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("graph", nargs="*", help="names of graphs (default: all)")
    parser.add_argument(
        "--platform", action="append", default=[], help="platform whose integers compute (repeatable; default: ort)"
    )
    parser.add_argument(
        "--cases",
        type=whole_number,
        default=4,
        metavar="N",
        help="cases of each form of a graph (default: %(default)s)",
    )
    parser.add_argument("--seed", type=seed_number, default=0, help="seed of sizes and data (default: %(default)s)")
    parser.add_argument(
        "--engine",
        metavar="NAME",
        help="a real system with and without fusions: onnxruntime, litert, torch, tosa, ...",
    )


def run(args: argparse.Namespace) -> int:
    """Judge the cases; UnsupportedError for an unknown name, or if onnx is not installed."""
    # first, because the modules below import onnx
    require_onnx()
    from quantizer.conformance.fusion.systems import built_in, system
    from quantizer.core.graph_spec import shipped_graphs
    from quantizer.core.library import load_library
    from quantizer.core.rooms import graph_platform

    known, platforms = shipped_graphs(), load_library().platforms
    for name in args.graph:
        if name not in known:
            raise UnsupportedError(unknown(name, known, "graph"))
    for name in args.platform:
        if name not in platforms:
            raise UnsupportedError(f"--platform={name}: {unknown(name, platforms, 'platform')}")
    found = system(args.engine) if args.engine else built_in((graph_platform(),))
    if found.alone and (other := [name for name in args.platform if name not in found.platforms]):
        raise UnsupportedError(
            f"--platform={other[0]}: {args.engine} does not compute it. It computes {', '.join(found.platforms)}."
        )
    failed = [
        _judged(known[name], platform, args, found)
        for name in args.graph or known
        for platform in args.platform or found.platforms
    ]
    return FAILED if any(failed) else PASSED


def _judged(spec: GraphSpec, platform: str, args: argparse.Namespace, system: System) -> bool:
    """Judge the cases of one graph on one platform, write a line about them, and return whether one failed."""
    from quantizer.conformance.fusion.cases import cases
    from quantizer.conformance.fusion.judging import explained

    counts: Counter[str] = Counter()
    for case in cases(spec, args.cases, args.seed):
        found = system.judge(spec, case, platform)
        counts.update(item.verdict.status for item in found)
        if wrong := next((item for item in found if item.verdict.failing), None):
            sys.stdout.write(explained(spec, case, platform, wrong, system.judge) + "\n")
    said = ", ".join(f"{count} {status}" for status, count in sorted(counts.items()))
    sys.stdout.write(f"{spec.graph} on {platform}: {said}\n")
    return counts["fail"] > 0
