"""`quantizer model check`: finds the operator in which two engines differ on a network, and which engine is wrong."""

from __future__ import annotations

import argparse
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from quantizer.commands.json_output import json_text
from quantizer.commands.requirements import require_onnx
from quantizer.commands.shared_options import LARGEST_SEED, seed_number, whole_number
from quantizer.core.errors import FormatError, GraphError, UnsupportedError
from quantizer.core.files import Content, replace_files
from quantizer.core.rooms import graph_platform

if TYPE_CHECKING:
    from torch import Tensor

    from quantizer.conformance.models.check import Ran
    from quantizer.core.model_findings import ModelFindings
    from quantizer.ir.graph import Graph

INSIDE, OUTSIDE = 0, 1
QUANTIZED = {"QuantizeLinear", "DequantizeLinear", "QLinearConv", "QLinearMatMul", "ConvInteger", "MatMulInteger"}
CUTS = 5
"""The most operators that are cut out and written."""
_EPILOG = f"""\
Both engines run the whole model, with every edge between operators as an output. Then every operator runs separately,
with the quantizations around it, on the same operands on both engines. Each result is compared with its enclosure: the
exact result in float64, what float32 arithmetic may lose (gamma_n of the sum), and half a step of a quantized result.
The integers of `builtin` are compared with what --platform declares, by the checks arithmetic and accuracy.
This separates an operator with a wrong result from one with a right result on wrong operands.

--output writes findings.json, model.html and cuts/: the operators to look at, each with its real scales, shapes and
operands. `quantizer model check cuts/1/part.onnx --operands cuts/1/operands.npz` runs one again.

exit status: 0 no engine lies outside an enclosure, 1 one does, 2 the input cannot be read. Seeds: 0 to {LARGEST_SEED}.
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `model` and its verbs to the command line."""
    model = subparsers.add_parser(
        "model", help="compare engines on a whole ONNX model", description="Whole ONNX models on several engines."
    )
    verbs = model.add_subparsers(title="verbs", metavar="VERB", dest="verb", required=True)
    check = verbs.add_parser(
        "check",
        help="find the operator where two engines differ, and which of the two is wrong",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    check.add_argument("model", type=Path, help="an ONNX file, quantized (QDQ, QLinear) or in float")
    check.add_argument(
        "--engine",
        action="append",
        default=[],
        metavar="NAME",
        help="given twice: the two engines to compare. One of float, qdq (our float32 with the quantizations), builtin"
        " (our integers), onnxruntime, onnxruntime:optimized, reference, or an engine that reads ONNX files, such as"
        " openvino (default: builtin and onnxruntime)",
    )
    check.add_argument(
        "--platform",
        default=graph_platform(),
        help="platform whose integers `builtin` computes and whose INT8 rules quantize a float model "
        "(default: %(default)s)",
    )
    data = check.add_mutually_exclusive_group()
    data.add_argument("--data", type=Path, metavar="FILE", help="samples, as `quantizer analyse` takes them")
    data.add_argument(
        "--operands",
        type=Path,
        metavar="FILE",
        help=".npz with one array for each input; the model then runs unchanged",
    )
    check.add_argument(
        "--float", action="store_true", help="leave a float model in float; otherwise it is quantized on the data"
    )
    check.add_argument(
        "--batches",
        type=whole_number,
        default=2,
        metavar="N",
        help="without --data: number of random batches (default: %(default)s)",
    )
    check.add_argument(
        "--batch-size", type=whole_number, default=1, metavar="N", help="samples per batch (default: %(default)s)"
    )
    check.add_argument(
        "--seed", type=seed_number, default=0, help="without --data: seed of the random values (default: %(default)s)"
    )
    check.add_argument(
        "--bias", action=argparse.BooleanOptionalAction, default=True, help="quantize constant biases to 32 bits"
    )
    check.add_argument("-o", "--output", type=Path, metavar="FOLDER", help="write page, findings and cut-out parts")
    check.add_argument("--json", action="store_true", help="one JSON object instead of the table")


def run(args: argparse.Namespace) -> int:
    """Check one model; UnsupportedError if onnx is not installed."""
    require_onnx()
    from quantizer.reporting.model_page import model_lines

    names = args.engine or ["builtin", "onnxruntime"]
    if len(names) != 2 or names[0] == names[1]:
        raise UnsupportedError(
            f"--engine={', '.join(names)}: name two engines, such as --engine builtin --engine onnxruntime."
        )
    findings, ran = _checked(args, names)
    if args.output is not None:
        findings = _written(args.output, findings, ran)
    text = json_text(findings.plain()) if args.json else "\n".join(model_lines(findings))
    sys.stdout.write(f"{text}\n")
    return OUTSIDE if findings.outside else INSIDE


def _checked(args: argparse.Namespace, names: list[str]) -> tuple[ModelFindings, Ran]:
    from quantizer.conformance.models.check import model_findings
    from quantizer.core.library import load_library
    from quantizer.core.wording import unknown
    from quantizer.runtime.models.engines import model_engine
    from quantizer.runtime.onnx_model import load_onnx_graph

    platforms = load_library().platforms
    if args.platform not in platforms:
        raise UnsupportedError(f"--platform={args.platform}: {unknown(args.platform, platforms, 'platform')}")
    engines = (model_engine(names[0], args.platform), model_engine(names[1], args.platform))
    graph = load_onnx_graph(args.model)
    ready, feeds = _ready(args, graph)
    return model_findings(ready.with_(name=args.model.stem), feeds, engines, args.platform)


def _ready(args: argparse.Namespace, graph: Graph) -> tuple[Graph, dict[str, Tensor]]:
    """Return the model and its inputs. A float model is quantized unless `--float` or `--operands` is given."""
    from quantizer.runtime.qdq import with_qdq
    from quantizer.runtime.quantization import dispatch_graph, quantize_graph
    from quantizer.runtime.sample_data import read_batches, synthetic_batches
    from quantizer.runtime.setting import Setting

    if args.operands is not None:
        return graph, operands(args.operands, graph)
    if args.data is None:
        batches = synthetic_batches(graph, args.seed, args.batches, args.batch_size)
    else:
        batches = read_batches(args.data, graph, args.batch_size)
    if args.float or graph.operators & QUANTIZED:
        return graph, batches[0]
    # all batches calibrate; the engines are compared on the first
    return with_qdq(quantize_graph(dispatch_graph(graph, args.platform), batches, Setting(bias=args.bias))), batches[0]


def operands(path: Path, graph: Graph) -> dict[str, Tensor]:
    """Return an array for each input, as a cut stores them; FormatError or GraphError if they do not fit."""
    from quantizer.ir.formats.npz import read_npz
    from quantizer.ir.formats.onnx_values import to_torch
    from quantizer.ir.graph import container

    arrays = read_npz(path)
    if set(arrays) != set(graph.inputs):
        raise FormatError(f"{path}: holds {', '.join(arrays) or 'nothing'}: must be {', '.join(graph.inputs)}.")
    found = {}
    for name in graph.inputs:
        tensor = graph.tensor(name)
        values = to_torch(arrays[name], tensor.dtype)
        if values.dtype != container(tensor.dtype) or (tensor.ranked and values.dim() != len(tensor.shape)):
            raise GraphError(
                f"{path}: {name!r} is {arrays[name].dtype} of {list(values.shape)}: "
                f"must be {tensor.dtype} of {len(tensor.shape)} axes."
            )
        found[name] = values
    return found


def _written(folder: Path, findings: ModelFindings, ran: Ran) -> ModelFindings:
    """Write cuts, page and findings, all or none; return the findings with the folders of the cuts."""
    from quantizer.conformance.models.check import cut_out, worth_cutting
    from quantizer.ir.formats.npz import npz_bytes
    from quantizer.ir.formats.onnx_values import to_numpy
    from quantizer.ir.formats.onnx_write import to_model
    from quantizer.reporting.model_page import model_page

    contents: dict[Path, Content] = {}
    cuts = []
    for number, name in enumerate(worth_cutting(findings, CUTS), 1):
        graph, operands = cut_out(name, ran)
        place = folder / "cuts" / f"{number}-{re.sub(r'[^A-Za-z0-9._-]+', '_', name).strip('_')[-60:]}"
        fed = {key: to_numpy(values, graph.tensor(key).dtype) for key, values in operands.items()}
        contents[place / "part.onnx"] = [to_model(graph).SerializeToString()]
        contents[place / "operands.npz"] = [npz_bytes(fed)]
        cuts.append(place)
    findings = replace(findings, cuts=tuple(place.relative_to(folder).as_posix() for place in cuts))
    contents[folder / "model.html"] = model_page(findings)
    contents[folder / "findings.json"] = json_text(findings.plain()) + "\n"
    for path in contents:
        path.parent.mkdir(parents=True, exist_ok=True)
    replace_files(contents)
    return findings
