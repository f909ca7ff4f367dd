"""`quantizer fusion`: judges graphs of a few nodes: node by node, rewritten, and with an engine's optimizations."""

from __future__ import annotations

import argparse
import functools
import sys
from collections import Counter
from typing import TYPE_CHECKING

from quantizer.commands.requirements import require_onnx
from quantizer.commands.shared_options import LARGEST_SEED, seed_number, whole_number
from quantizer.core.errors import UnsupportedError
from quantizer.core.wording import unknown

if TYPE_CHECKING:
    from collections.abc import Callable

    from quantizer.conformance.fusion.cases import GraphCase
    from quantizer.conformance.fusion.judging import Judged
    from quantizer.core.graph_spec import GraphSpec
    from quantizer.runtime.engines.external import ExternalEngine
    from quantizer.runtime.models.engines import Session

    Judge = Callable[[GraphSpec, GraphCase, str], list[Judged]]
    Engines = tuple[Session | None, Session | None]

PASSED, FAILED = 0, 1
_EPILOG = f"""\
Each case is a graph of graph_specs/ with sizes and data of its own, quantized by 8 bits. Its nodes are judged one by
one from the codes before them, then the graph as a whole is compared with them, then each of our rewrites of it. With
--engine the optimized run of a real system is compared with its run without optimizations, on its own platform. A
system without such a switch is run with every tensor as an output of the graph, then with the graph's own outputs.
Of a system whose models are written operator by operator, such as litert or tosa, one model of the graph is compared
with a model for each node, on each of its platforms: litert:xnnpack has a delegate, litert:builtin has none. Functions
of torch with a relu are compared with those without, one by one: torch, or torch:x86, torch:fbgemm, torch:qnnpack.
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
    require_onnx()
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
    if args.engine and (joining := _joining(args.engine)) is not None:
        engine, homes = joining
        return _all_joined([known[name] for name in args.graph or known], args, engine, homes)
    engines, at_home = _sessions(args.engine) if args.engine else ((None, None), None)
    failed = [
        # on other platforms than its own, only our functions are compared
        _judged(known[name], platform, args, engines if platform == at_home else (None, None))
        for name in args.graph or known
        for platform in args.platform or [at_home or graph_platform()]
    ]
    return FAILED if any(failed) else PASSED


def _judged(spec: GraphSpec, platform: str, args: argparse.Namespace, engines: Engines) -> bool:
    """Judge the cases of one graph on one platform, write a line about them, and return whether one failed."""
    from quantizer.conformance.fusion.judging import judge_graph

    def judge(spec: GraphSpec, case: GraphCase, platform: str) -> list[Judged]:
        return judge_graph(spec, case, platform, *engines)

    return _counted(spec, platform, args, judge)


def _counted(spec: GraphSpec, platform: str, args: argparse.Namespace, judge: Judge) -> bool:
    from quantizer.conformance.fusion.cases import cases
    from quantizer.conformance.fusion.judging import smallest

    counts: Counter[str] = Counter()
    for case in cases(spec, args.cases, args.seed):
        found = judge(spec, case, platform)
        counts.update(item.verdict.status for item in found)
        if wrong := next((item for item in found if item.verdict.failing), None):
            fails = functools.partial(_fails_as, wrong.what, judge, spec, platform)
            sys.stdout.write(
                f"{spec.graph} on {platform}: {wrong}\n  case: {case}\n  smallest: {smallest(spec, case, fails)}\n"
            )
    said = ", ".join(f"{count} {status}" for status, count in sorted(counts.items()))
    sys.stdout.write(f"{spec.graph} on {platform}: {said}\n")
    return counts["fail"] > 0


def _fails_as(what: str, judge: Judge, spec: GraphSpec, platform: str, case: GraphCase) -> bool:
    """Return whether a case fails in the comparison *what*."""
    return any(item.what == what and item.verdict.failing for item in judge(spec, case, platform))


def _joining(name: str) -> tuple[ExternalEngine, tuple[str, ...]] | None:
    """Return the engine and its platforms if it runs several operators as one model; otherwise None."""
    from quantizer.runtime.engines.catalogue import chosen
    from quantizer.runtime.engines.external import ExternalEngine
    from quantizer.runtime.models.engines import real_engines

    system = None if name in real_engines() else chosen(name, option="--engine")
    if system is None or not (engine := ExternalEngine(system)).joins:
        return None
    homes = system.entry.variant_of_platform
    return engine, tuple(p for p, variant in homes.items() if system.variant in (None, variant))


def _all_joined(
    specs: list[GraphSpec], args: argparse.Namespace, engine: ExternalEngine, homes: tuple[str, ...]
) -> int:
    """Judge each graph as one model on the platforms that the engine computes; return the exit status."""
    from quantizer.conformance.fusion.joined import judge_joined_graph

    def judge(spec: GraphSpec, case: GraphCase, platform: str) -> list[Judged]:
        return judge_joined_graph(spec, case, platform, engine)

    platforms = [name for name in args.platform or homes if name in homes]
    failed = [_counted(spec, platform, args, judge) for spec in specs for platform in platforms]
    return FAILED if any(failed) else PASSED


def _sessions(name: str) -> tuple[tuple[Session, Session], str]:
    """Return sessions without and with optimizations, and the platform that the system computes."""
    from quantizer.conformance.fusion.judging import home
    from quantizer.runtime.models.engines import OPTIMIZED, Session, model_engine, real_engines

    known = real_engines()
    if name not in known:
        raise UnsupportedError(f"--engine={name}: {unknown(name, known, 'engine of models')}")
    platform = home(known[name])
    plain, optimized = (model_engine(one, platform) for one in (name, f"{name}:{OPTIMIZED}"))
    assert isinstance(plain, Session)
    assert isinstance(optimized, Session)
    return (plain, optimized), platform
