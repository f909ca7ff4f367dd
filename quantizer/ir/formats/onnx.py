"""ONNX models in the one IR: opsets 7 to 28, nodes under ONNX's names with every default filled in.

A `Constant` becomes a constant, a function of the model is inlined, bodies of control flow become subgraphs. Source of
the rules: onnx/onnx.proto and docs/IR.md of the ONNX project. Nothing is run here:
`quantizer.runtime.onnx_model.load_onnx_graph` also names unsupported operators and folds constants.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import onnx
import torch
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from onnx import defs

from quantizer.core.errors import FormatError, UnsupportedError
from quantizer.core.reading import Readable
from quantizer.core.wording import shown_path
from quantizer.ir.formats.onnx_contrib import without_contrib
from quantizer.ir.formats.onnx_fatal import refuse_fatal, say_defaults
from quantizer.ir.formats.onnx_graph import DOMAINS, NEWEST, OLDEST, File, read_graph
from quantizer.ir.graph import LARGEST, Graph, Node, Tensor
from quantizer.ir.verify import verify
from quantizer.numerics.qparams import QParams

Runs = Callable[[str], bool]
MODEL = Readable("an ONNX model", LARGEST, FormatError, "Name a .onnx file.")


def load(path: Path | str, runs: Runs | None = None) -> Graph:
    """Return the model in *path* as a graph; FormatError, GraphError or UnsupportedError name the problem.

    runs: whether an operator runs where the graph will run; one UnsupportedError names all operators that do not.
    """
    path = Path(path)
    where = shown_path(path)
    return from_bytes(MODEL.bytes_of(path, where), where, path.parent, runs)


def source_files(path: Path) -> list[Path]:
    """Return the files of the model in *path*: the file itself and its external data."""
    model = onnx.ModelProto()
    try:
        model.ParseFromString(MODEL.bytes_of(path))
    except (FormatError, DecodeError, RuntimeError):
        return [path]
    return [path, *(path.parent / name for name in dict.fromkeys(_locations(model.graph)))]


def _locations(graph: onnx.GraphProto) -> Iterator[str]:
    """Yield the location of every constant, also in bodies, that lies outside the model's own file."""
    values = [attribute for node in graph.node for attribute in node.attribute]
    for tensor in (*graph.initializer, *(item for value in values for item in (value.t, *value.tensors))):
        yield from (item.value for item in tensor.external_data if item.key == "location")
    for value in values:
        for body in (value.g, *value.graphs):
            yield from _locations(body)


def from_bytes(data: bytes, where: str = "model", folder: Path | None = None, runs: Runs | None = None) -> Graph:
    """Return the serialised model *data* as a graph; external data is read from within *folder* only."""
    model = onnx.ModelProto()
    try:
        model.ParseFromString(data)
    except (DecodeError, RuntimeError):
        raise FormatError(f"{where}: not an ONNX model, or a truncated one: its bytes do not decode.") from None
    return from_model(model, where, folder, runs)


def from_model(
    model: onnx.ModelProto, where: str = "model", folder: Path | None = None, runs: Runs | None = None
) -> Graph:
    """Return *model* as a graph; the model itself is not changed."""
    if not model.HasField("graph") or not (model.graph.output or model.graph.node):
        raise FormatError(f"{where}: holds no graph: write an ONNX model, such as torch.onnx.export makes.")
    file = File(where, folder, _opsets(model, where))
    own = onnx.ModelProto()
    own.CopyFrom(model)
    own = _inlined(own, where)
    # our checks come first: they name the place, and the library's code crashes on some models that they refuse
    structure = read_graph(file, own.graph, {}, "graph")
    plain = without_contrib(own, where)
    if plain is not own:
        own, structure = plain, read_graph(replace(file, constants={}), plain.graph, {}, "graph")
    verify(structure)
    _refuse_unknown(file, structure, runs)
    _check(own, where)
    say_defaults(own.graph, file.opsets.get("", 0))
    typed = _typed(own, where, follow=refuse_fatal(own, where))
    # read again, now with the inferred types and shapes; `file` kept the constants from the first time
    graph = with_parameters(read_graph(file, typed.graph, {}, "graph"))
    verify(graph)
    return graph


LONGEST = 300
"""The number of characters of ONNX's own messages that are shown."""
QLINEAR = {"QLinearConv": ((0, 1, 2), (3, 4, 5), (6, 7)), "QLinearMatMul": ((0, 1, 2), (3, 4, 5), (6, 7))}
"""Operator on codes -> the indices of (codes, scale, zero point) among its inputs, for each operand and for the
result."""


def with_parameters(graph: Graph) -> Graph:
    """Return *graph* with the parameters of every tensor of codes, if operators around it give them as constants."""
    found: dict[str, Tensor] = {}
    for node in graph.nodes:
        for codes, scale, zero, axis in _said(node):
            tensor = graph.tensor(codes)
            known = [graph.tensor(name).data if name else None for name in (scale, zero)]
            if known[0] is None or (zero and known[1] is None) or not tensor.dtype.is_integer:
                continue
            params = _parameters(tensor, known[0], known[1], axis)
            if params is not None:
                found[codes] = replace(tensor, qparams=params)
    return graph.with_tensors(*found.values())


def _said(node: Node) -> list[tuple[str, str | None, str | None, object]]:
    """Return (codes, scale, zero point, axis of several scales) of each tensor of codes that a node describes."""
    if node.op in ("DequantizeLinear", "QuantizeLinear") and not node.attrs.get("block_size"):
        codes = node.inputs[0] if node.op == "DequantizeLinear" else node.outputs[0]
        zero = node.inputs[2] if len(node.inputs) > 2 else None
        return [] if codes is None else [(codes, node.inputs[1], zero, node.attrs.get("axis", 1))]
    if node.op not in QLINEAR:
        return []
    x, w, (scale, zero_at) = QLINEAR[node.op]
    # the axis of several scales: filters of a convolution; rows of the first matrix, columns of the second
    along = {"QLinearConv": (0, 0), "QLinearMatMul": (-2, -1)}[node.op]
    operands = [
        (node.inputs[i], node.inputs[j], node.inputs[k], axis) for (i, j, k), axis in zip((x, w), along, strict=True)
    ]
    result = (node.outputs[0], node.inputs[scale], node.inputs[zero_at], 0)
    return [(str(codes), *rest) for codes, *rest in (*operands, result)]  # type: ignore[misc]


def _parameters(codes: Tensor, scale: torch.Tensor, zero: torch.Tensor | None, axis: object) -> QParams | None:
    """Return scale and zero point per tensor or per slice; None if they do not fit the codes' shape."""
    values = scale.double().reshape(()) if scale.numel() == 1 else scale.double()
    rank = len(codes.shape) if codes.ranked else 0
    along = axis % rank if values.dim() and isinstance(axis, int) and -rank <= axis < rank else None
    if zero is not None and zero.numel() != values.numel():
        return None
    fits = values.dim() == 0 or (along is not None and values.dim() == 1 and values.shape[0] == codes.shape[along])
    if not fits or not bool((values > 0).all()) or not bool(torch.isfinite(values).all()):
        return None
    # in ONNX, an absent zero point is 0
    offset = torch.zeros_like(values, dtype=torch.int64) if zero is None else zero.long().reshape(values.shape)
    return QParams(codes.dtype, values, offset, codes.dtype.min, codes.dtype.max, along)


def _refuse_unknown(file: File, graph: Graph, runs: Runs | None) -> None:
    """Name every operator that the opset does not have, or that does not run, in one error."""
    opset = file.opsets[""]
    unknown = {op for op in graph.operators if "::" not in op and not defs.has(op, opset)}
    refused = {op for op in graph.operators if runs is not None and not runs(op)} - unknown
    parts = [f"opset {opset} has no {', '.join(sorted(unknown))}"] if unknown else []
    parts += [f"nothing runs {', '.join(sorted(refused))}: register_operation_handler adds one"] if refused else []
    if parts:
        raise UnsupportedError(f"{file.where}: {'; '.join(parts)}.")


def _opsets(model: onnx.ModelProto, where: str) -> dict[str, int]:
    found = {"" if item.domain in DOMAINS else item.domain: int(item.version) for item in model.opset_import}
    newest = min(NEWEST, defs.onnx_opset_version())
    if any(not isinstance(domain, str) for domain in found):
        raise FormatError(f"{where}: the domain of an opset: must be text in UTF-8.")
    if "" not in found:
        raise FormatError(f"{where}: imports no opset of ONNX itself: name a version from {OLDEST} to {newest}.")
    # our kernels know this opset, and the installed onnx does not
    if newest < found[""] <= NEWEST:
        raise UnsupportedError(
            f"{where}: opset {found['']}: the installed onnx {onnx.__version__} knows opsets up to {newest}. "
            "Install a later one."
        )
    if not 1 <= found[""] <= newest:
        raise UnsupportedError(f"{where}: opset {found['']}: must be from {OLDEST} to {newest}.")
    return found


def _inlined(model: onnx.ModelProto, where: str) -> onnx.ModelProto:
    """Inline the functions of *model*."""
    if not model.functions:
        return model
    from onnx import inliner

    try:
        return inliner.inline_local_functions(model)
    except Exception as err:  # noqa: BLE001 - the library raises what its C++ code does
        raise FormatError(f"{where}: its functions cannot be inlined: {_line(err)}") from None


def _typed(model: onnx.ModelProto, where: str, *, follow: bool) -> onnx.ModelProto:
    """Return *model* with the types and shapes of all its values, as ONNX infers them; a wrong type is an error.

    The checker and `refuse_fatal` must have accepted the model: the library's inference crashes on others.
    *follow*: whether the inference also follows the values of shapes.
    """
    try:
        return onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True, data_prop=follow)
    except Exception as err:  # noqa: BLE001 - the library raises what its C++ code does
        raise FormatError(f"{where}: types or shapes contradict each other: {_line(err)}") from None


def _check(model: onnx.ModelProto, where: str) -> None:
    """Refuse what ONNX's checker refuses: unknown or missing attributes and inputs.

    It requires the rank of every input and output, which runtimes do not need. A missing rank is filled in.
    """
    for item in (*model.graph.input, *model.graph.output):
        if not item.type.WhichOneof("value"):
            kind = "output" if item in model.graph.output else "input"
            raise FormatError(f"{where}: {kind} {item.name!r} has no type: name the format of its elements.")
    shown = [
        item.type.tensor_type
        for item in (*model.graph.input, *model.graph.output)
        if item.type.HasField("tensor_type") and not item.type.tensor_type.HasField("shape")
    ]
    for kind in shown:
        kind.shape.SetInParent()
    try:
        onnx.checker.check_model(model)
    except Exception as err:  # noqa: BLE001 - the library raises what its C++ code does
        raise FormatError(f"{where}: {_line(err)}") from None
    for kind in shown:
        kind.ClearField("shape")


def _line(err: Exception) -> str:
    """Return ONNX's message in one line, with the node that it names further down."""
    said, _, below = str(err).partition("==> Context:")
    node = re.search(r"Name: (.*?) ?OpType: (\S+)", below)
    place = "" if node is None else f" (node {node[1]!r}, {node[2]})"
    return f"{textwrap.shorten(said, LONGEST) or type(err).__name__}{place}"
