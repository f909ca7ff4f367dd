"""`quantizer mlir`: verifies modules of Top MLIR with our reader and with a second parser."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from quantizer.core.errors import UnsupportedError
from quantizer.core.wording import to_install

PASSED = 0


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `mlir` and its verb to the command line."""
    mlir = subparsers.add_parser("mlir", help="modules of Top MLIR", description="Modules of Top MLIR.")
    verbs = mlir.add_subparsers(title="verbs", metavar="VERB", dest="verb", required=True)
    verify = verbs.add_parser(
        "verify",
        help="check operators, attributes, shapes, weights and quantized types of modules; exit 2 at the first error",
    )
    verify.add_argument("files", metavar="FILE", type=Path, nargs="+", help="a text such as Conv_origin.mlir")


def run(args: argparse.Namespace) -> int:
    """Verify each file; FormatError for the first error, UnsupportedError if xdsl is not installed."""
    # before any file is read, so that a missing package is the error, not a file
    try:
        import xdsl
    except ImportError:
        raise UnsupportedError(f"xdsl is not installed: {to_install('mlir')}.") from None
    from quantizer.ir.formats.mlir_text import read_text
    from quantizer.ir.formats.top_dialect import verify_text
    from quantizer.ir.formats.top_mlir import read
    from quantizer.ir.formats.top_shapes import check_graph

    for path in args.files:
        graph = read(path)
        check_graph(graph)
        count = verify_text(read_text(path), str(path))
        weights = sum(tensor.is_constant for tensor in graph.tensors.values())
        told = f"{count} operations of Top, {weights} weights"
        sys.stdout.write(f"{path}: {told}: sound for the reader and for xdsl {xdsl.__version__}\n")
    return PASSED
