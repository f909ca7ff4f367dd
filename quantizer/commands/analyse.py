"""`quantizer analyse`: quantizes an ONNX model and shows the error that each operation causes."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tabulate import tabulate

from quantizer.commands.json_output import json_text
from quantizer.commands.requirements import require_onnx
from quantizer.commands.shared_options import seed_number, whole_number
from quantizer.core.errors import UnsupportedError
from quantizer.core.rooms import graph_platform

if TYPE_CHECKING:
    from quantizer.conformance.models.graph_nodes import NodeRatio
    from quantizer.ir.graph import Graph
    from quantizer.runtime.sample_data import Batch

DONE = 0
VIEWS = ("graph", "layer", "enclosure", "statistics", "parameters")
TITLES = {
    "graph": "graph-wise: everything quantized, the result of each operation",
    "layer": "layer-wise: one operation quantized at a time, the outputs of the graph",
    "enclosure": "on integers: error divided by what the operator's enclosure allows; 1 at its edge",
    "statistics": "tensors: float values, and the noise of quantized values",
    "parameters": "constants",
}


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `analyse` to the command line."""
    parser = subparsers.add_parser(
        "analyse",
        help="quantize an ONNX model and measure what each operation costs",
        description="Quantize a float ONNX model on data and measure the error of each operation.",
    )
    parser.add_argument("model", type=Path, help="a float ONNX file")
    parser.add_argument(
        "--data",
        type=Path,
        metavar="FILE",
        help="samples: .npz with an array for each input, .npy for one input; samples lie along the first axis. "
        "Default: normally distributed values",
    )
    parser.add_argument(
        "--view", action="append", choices=VIEWS, default=[], help="what to show; default: graph and layer"
    )
    parser.add_argument(
        "--platform", default=graph_platform(), help="the platform whose INT8 rules are used (default: %(default)s)"
    )
    parser.add_argument("--observer", default="minmax", help="minmax, percentile, kl, mse, isotone or a strategy")
    parser.add_argument("--symmetric", action="store_true", help="activations with zero point 0")
    parser.add_argument("--bias", action="store_true", help="quantize constant biases to 32 bits")
    parser.add_argument(
        "--batch-size", type=whole_number, default=16, metavar="N", help="samples in a batch, if the model permits it"
    )
    parser.add_argument(
        "--batches", type=whole_number, default=4, metavar="N", help="without --data: number of random batches"
    )
    parser.add_argument("--seed", type=seed_number, default=0, help="without --data: seed of the random values")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of tables")


def run(args: argparse.Namespace) -> int:
    """Quantize, measure, and write tables or one JSON object; UnsupportedError if onnx is not installed."""
    require_onnx()
    found = analysed(args)
    if args.json:
        sys.stdout.write(json_text(found, sort_keys=True) + "\n")
    else:
        sys.stdout.write(
            (os.linesep * 2).join(f"{TITLES[view]}\n{_table(view, rows)}" for view, rows in found.items()) + "\n"
        )
    return DONE


def analysed(args: argparse.Namespace) -> dict[str, list[Any]]:
    """Return the records of each requested view."""
    from quantizer.runtime.analysis import graphwise_error_analyse, layerwise_error_analyse
    from quantizer.runtime.graph_statistics import parameter_analyse, statistical_analyse
    from quantizer.runtime.onnx_model import load_onnx_graph
    from quantizer.runtime.quantization import dispatch_graph, quantize_graph
    from quantizer.runtime.sample_data import read_batches, synthetic_batches
    from quantizer.runtime.setting import Setting
    from quantizer.runtime.tensor_config import QuantizationProperty as P

    graph = load_onnx_graph(args.model)
    if {"QuantizeLinear", "DequantizeLinear"} & graph.operators:
        raise UnsupportedError(f"{args.model}: is quantized already: analyse the float model from which it was made.")
    if args.data is None:
        batches = synthetic_batches(graph, args.seed, args.batches, args.batch_size)
    else:
        batches = read_batches(args.data, graph, args.batch_size)
    policy = P.PER_TENSOR | P.LINEAR | (P.SYMMETRICAL if args.symmetric else P.ASYMMETRICAL)
    setting = Setting(activations=policy, observer=args.observer, bias=args.bias)
    try:
        quantized = quantize_graph(dispatch_graph(graph, args.platform), batches, setting)
    except ValueError as err:
        raise UnsupportedError(str(err)) from None
    made: Mapping[str, Callable[[], list[Any]]] = {
        "graph": lambda: graphwise_error_analyse(quantized, batches),
        "layer": lambda: layerwise_error_analyse(quantized, batches),
        "enclosure": lambda: _ratios(quantized, args.platform, batches),
        "statistics": lambda: statistical_analyse(quantized, batches),
        "parameters": lambda: parameter_analyse(quantized),
    }
    # each view once, in the order in which it is named
    views = dict.fromkeys(args.view or ["graph", "layer"])
    return {view: made[view]() for view in views}


def _ratios(quantized: Graph, platform: str, batches: list[Batch]) -> list[NodeRatio]:
    from quantizer.conformance.models.graph_nodes import enclosure_ratios
    from quantizer.runtime.integer import integer_graph

    # integer graphs have fixed shapes: a last batch that is smaller is left out
    alike = [batch for batch in batches if all(len(batch[name]) == len(batches[0][name]) for name in batch)]
    return enclosure_ratios(integer_graph(quantized, platform, batches[0]), alike)


def _table(view: str, rows: list[Any]) -> str:
    from quantizer.runtime.analysis import error_table
    from quantizer.runtime.graph_statistics import parameters_table, statistics_table

    if view == "enclosure":
        # failures first, then the nodes nearest to the edge of their enclosures
        ordered = sorted(rows, key=lambda row: (row.status != "fail", -row.ratio))
        cells = [[r.name, r.op, r.status, f"{r.ratio:.3f}", r.reason] for r in ordered]
        headers = ["node", "operator", "verdict", "ratio", "reason"]
        return tabulate(cells, headers=headers, disable_numparse=True)
    if view == "statistics":
        return statistics_table(rows)
    return parameters_table(rows) if view == "parameters" else error_table(rows)
