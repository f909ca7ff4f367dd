"""Caffe networks as ONNX graphs: the layers of a prototxt in their test-time form, with the blobs of a caffemodel."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from google.protobuf import text_format  # type: ignore[import-untyped]
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from onnx import TensorProto, helper, numpy_helper

from quantizer.core.errors import FormatError, QuantizerError, UnsupportedError
from quantizer.core.reading import Readable
from quantizer.core.wording import shown_path
from quantizer.ir.formats import caffe_layers, caffe_more
from quantizer.ir.formats import onnx as onnx_format
from quantizer.ir.formats.caffe_proto import OLD_TYPES, net_parameter
from quantizer.ir.formats.caffe_writer import IR_VERSION, LAYERS, OPSET, Writer
from quantizer.ir.graph import LARGEST, Graph

FAMILIES = (caffe_layers, caffe_more)
"""The modules with layers."""
LONGEST_TEXT = 1 << 24
"""The largest size of a prototxt, in bytes."""
PROTOTXT = Readable("a prototxt", LONGEST_TEXT, FormatError, "Give the prototxt first.")
CAFFEMODEL = Readable("a caffemodel", LARGEST, FormatError)
TEST = 1


def load(prototxt: Path | str, caffemodel: Path | str, runs: onnx_format.Runs | None = None) -> Graph:
    """Return the network with ONNX's operators; its input has the shape that the prototxt gives.

    Layers of training (a rule for phase TRAIN) are left out; one UnsupportedError names all that are not supported.
    FormatError or GraphError for any other problem, with the layer.
    """
    text, weights = Path(prototxt), Path(caffemodel)
    where = shown_path(text)
    net = _text(text, where)
    blobs = _blobs(weights, shown_path(weights))
    writer = Writer()
    _inputs(net, where, writer)
    for layer in net.layer:
        if not _is_tested(layer):
            continue
        place = f"{where}: layer {layer.name!r}"
        try:
            LAYERS[layer.type](writer, layer, blobs.get(layer.name, []))
        except QuantizerError as err:
            raise type(err)(f"{place} ({layer.type}): {err}") from None
    return onnx_format.from_model(_model(net.name or "net", writer, where), where, runs=runs)


def _model(name: str, writer: Writer, where: str) -> Any:
    outputs = writer.outputs()
    if not writer.nodes:
        raise FormatError(f"{where}: has no layer that computes: write one.")
    given = [helper.make_tensor_value_info(n, TensorProto.FLOAT, shape) for n, shape in writer.inputs.items()]
    made = [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in outputs]
    constants = [numpy_helper.from_array(values, key) for key, values in writer.constants.items()]
    graph = helper.make_graph(writer.nodes, name, given, made, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)


def _inputs(net: Any, where: str, writer: Writer) -> None:
    """Declare the inputs that older files list at the top level."""
    shapes = [tuple(shape.dim) for shape in net.input_shape]
    sizes = tuple(net.input_dim)
    shapes = shapes or [sizes[i : i + 4] for i in range(0, len(sizes), 4)]
    if len(shapes) != len(net.input):
        raise FormatError(f"{where}: {len(net.input)} inputs with {len(shapes)} shapes: every input needs one.")
    for name, shape in zip(net.input, shapes, strict=True):
        writer.add_input(name, shape)


def _is_tested(layer: Any) -> bool:
    """Return whether a layer exists at test time; rules on levels and stages are never met."""
    if layer.include:
        return any(not rule.HasField("phase") or rule.phase == TEST for rule in layer.include)
    return not any(rule.HasField("phase") and rule.phase == TEST for rule in layer.exclude)


def _text(path: Path, where: str) -> Any:
    source = PROTOTXT.text_of(path, where)
    try:
        net = text_format.Parse(source, net_parameter()())
    except text_format.ParseError as err:
        # an unknown field is most often one of an unsupported layer: its type says more than the parser's message
        readable = _leniently(source)
        _upgrade(readable, where)
        _refuse_unsupported(readable, where)
        raise FormatError(f"{where}: {str(err).replace('quantizer_caffe.', '')}") from None
    except RecursionError:
        raise FormatError(f"{where}: nested too deeply: this is not a prototxt.") from None
    _upgrade(net, where)
    _refuse_unsupported(net, where)
    return net


def _upgrade(net: Any, where: str) -> None:
    """Rewrite the `layers` of Caffe's format V1 as `layer`: types get their new names, other fields keep theirs."""
    if not net.layers:
        return
    if net.layer:
        raise FormatError(f"{where}: has both 'layer' and 'layers', which is the old format: write all as 'layer'.")
    for old in net.layers:
        if old.HasField("layer"):
            raise UnsupportedError(
                f"{where}: layer {old.layer.name!r} has Caffe's format V0: upgrade it by upgrade_net_proto_text."
            )
        label = old.DESCRIPTOR.fields_by_name["type"].enum_type.values_by_number[old.type].name
        new = net.layer.add(name=old.name, type=OLD_TYPES[label][1], bottom=old.bottom, top=old.top)
        new.include.extend(old.include)
        new.exclude.extend(old.exclude)
        for field, value in old.ListFields():
            if field.name.endswith("_param"):
                getattr(new, field.name).CopyFrom(value)
    del net.layers[:]


def _leniently(source: str) -> Any:
    """Return the readable part of a text, skipping unknown fields; empty if even that fails."""
    try:
        return text_format.Parse(source, net_parameter()(), allow_unknown_field=True)
    except (text_format.ParseError, RecursionError):
        return net_parameter()()


def _refuse_unsupported(net: Any, where: str) -> None:
    found = sorted({layer.type or "(no type)" for layer in net.layer if _is_tested(layer)} - set(LAYERS))
    if found:
        raise UnsupportedError(
            f"{where}: layers of type {', '.join(found)}: supported are {', '.join(sorted(LAYERS))}."
        )


def _blobs(path: Path, where: str) -> dict[str, list[np.ndarray[Any, Any]]]:
    """Return the constants of each layer by its name."""
    data = CAFFEMODEL.bytes_of(path, where)
    net = net_parameter()()
    try:
        net.ParseFromString(data)
    except (DecodeError, RuntimeError):
        raise FormatError(f"{where}: not a caffemodel, or a truncated one: its bytes do not decode.") from None
    found: dict[str, list[np.ndarray[Any, Any]]] = {}
    # an old caffemodel has its layers in the old field
    for layer in (*net.layers, *net.layer):
        if layer.blobs and layer.name in found:
            raise FormatError(f"{where}: two layers are called {layer.name!r}: every layer needs a name of its own.")
        if layer.blobs:
            found[layer.name] = [
                _blob(f"{where}: layer {layer.name!r}: blob {i}", b) for i, b in enumerate(layer.blobs)
            ]
    return found


def _blob(place: str, blob: Any) -> np.ndarray[Any, Any]:
    old = tuple(getattr(blob, key) for key in ("num", "channels", "height", "width"))
    shape = tuple(blob.shape.dim) if blob.HasField("shape") else old
    values = np.array(blob.data or blob.double_data, dtype=np.float32)
    count = 1
    for size in shape:
        count *= max(int(size), -1)
    if min(shape, default=1) < 1 or count != values.size:
        raise FormatError(f"{place}: shape {list(shape)}, {values.size} numbers: both counts must be equal.")
    return values.reshape(shape)
