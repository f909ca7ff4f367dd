"""From a graph in Compass vocabulary to the lines and bytes of Compass IR, always the same for the same graph."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

import numpy as np
import torch

from quantizer.core.errors import FormatError
from quantizer.ir.formats.compass_graph import CONSTANTS, HEADER, LISTS, STRUCTURE, SUBGRAPH
from quantizer.ir.formats.compass_params import TOP_RANGE, TOP_SCALE, TOP_ZP, scale_of
from quantizer.ir.formats.compass_text import check_text, format_dtype, format_names, format_value
from quantizer.ir.graph import AttrValue, Graph, Node, Tensor


@dataclass
class Layout:
    """Where each constant goes in the .bin file: back to back, in the order of the text."""

    parts: list[torch.Tensor] = field(default_factory=list)
    size: int = 0

    def place(self, data: torch.Tensor) -> tuple[int, int]:
        """Append *data*; return its offset and its size in bytes."""
        offset, size = self.size, data.numel() * data.element_size()
        self.parts.append(data)
        self.size += size
        return offset, size

    def chunks(self) -> Iterator[bytes]:
        """Yield the bytes of each constant, little endian."""
        for data in self.parts:
            flat = data.detach().cpu().contiguous().reshape(-1)
            # as unsigned integers: numpy has no bfloat16 and no narrow floats, and only bits are written
            raw = flat.view(torch.uint8).numpy().view(f"u{flat.element_size()}")
            yield raw.astype(np.dtype(f"<u{flat.element_size()}"), copy=False).tobytes()


def format_graph(graph: Graph) -> tuple[str, Layout]:
    """Return the text of *graph* and the layout of its constants; FormatError if the format cannot hold it."""
    layout = Layout()
    lines = list(_graph_lines(graph, HEADER, layout, set()))
    for name, body in graph.subgraphs.items():
        if name != body.name:
            raise FormatError(f"subgraph {name!r}: its graph is called {body.name!r}: use one name.")
        lines += _graph_lines(body, SUBGRAPH, layout, graph.tensors)
    return "".join(f"{line}\n" for line in lines), layout


def _graph_lines(graph: Graph, keys: Sequence[str], layout: Layout, outer: Container[str]) -> Iterator[str]:
    where = f"graph {graph.name!r}"
    made = {name for node in graph.nodes for name in node.outputs}
    for name in graph.inputs:
        if name not in made and name not in outer:
            raise FormatError(f"{where}: input {name!r} has no Input layer: pass the graph through foreign() first.")
    header = {
        keys[0]: _text(f"{where}: {keys[0]}", graph.name),
        "layer_number": str(len(graph.nodes)),
        "input_tensors": _names(where, graph.inputs),
        "output_tensors": _names(where, graph.outputs),
    }
    for key, value in graph.extra.items():
        if not key.startswith("compass."):
            header[_key(where, key, header)] = _value(f"{where}: {key}", value)
    yield from _section(header)
    for index, node in enumerate(graph.nodes):
        yield from _section(_layer(graph, node, index, layout))


def _section(entries: Mapping[str, str]) -> Iterator[str]:
    yield from (f"{key}={text}" for key, text in entries.items())
    yield ""


def _layer(graph: Graph, node: Node, index: int, layout: Layout) -> dict[str, str]:
    where = f"layer {node.name!r}"
    keys = _constant_keys(graph, node)
    bottoms = [graph.tensor(str(name)) for name in node.inputs[: len(node.inputs) - len(keys)]]
    constants = {key: graph.tensor(str(name)) for key, name in zip(keys, node.inputs[len(bottoms) :], strict=True)}
    tops = [graph.tensor(name) for name in node.outputs]
    entries = {
        "layer_id": str(index),
        "layer_name": _text(f"{where}: layer_name", node.name),
        "layer_type": _text(f"{where}: layer_type", node.op),
    }
    for key, tensors in (("layer_bottom", bottoms), ("layer_top", tops)):
        entries[key] = _names(where, [tensor.name for tensor in tensors])
        entries[f"{key}_shape"] = format_value(tuple(tensor.shape for tensor in tensors))
        entries[f"{key}_type"] = _value(where, tuple(tensor.dtype for tensor in tensors))
    entries |= _top_lines(where, node, tops, layout)
    lists = cast("Mapping[str, int]", node.extra.get(LISTS, {}))
    members = {f"{stem}_{i}": stem for stem, count in lists.items() for i in range(count)}
    for key, tensor in constants.items():
        stem = members.get(key)
        if stem is None:
            entries |= _quad(where, key, [tensor], layout, listed=False)
        elif key == f"{stem}_0":
            entries |= _quad(where, stem, [constants[f"{stem}_{i}"] for i in range(lists[stem])], layout, listed=True)
    for key, value in node.attrs.items():
        entries[_key(where, key, entries)] = _value(f"{where}: {key}", value)
    return entries


def _constant_keys(graph: Graph, node: Node) -> tuple[str, ...]:
    """Return Compass's names of the last inputs of *node*; FormatError for a node in our vocabulary."""
    where = f"layer {node.name!r}"
    keys = cast("tuple[str, ...] | None", node.extra.get(CONSTANTS))
    # operators have names in lower case, types of Compass layers do not
    if keys is None and node.op == node.op.lower():
        raise FormatError(f"{where}: {node.op!r} is not a Compass layer: pass the graph through foreign() first.")
    keys = keys or ()
    count = len(node.inputs) - len(keys)
    for name in node.inputs:
        if name is None:
            raise FormatError(f"{where}: an input is absent: Compass layers have no empty places.")
    for name in node.inputs[:count]:
        if graph.tensor(str(name)).is_constant:
            raise FormatError(f"{where}: input {name!r} is a constant without a Compass name: use foreign() first.")
    for key, name in zip(keys, node.inputs[count:], strict=True):
        if not graph.tensor(str(name)).is_constant:
            raise FormatError(f"{where}: {key}: {name!r} has no data: a Compass constant is known when it is written.")
    return keys


def _top_lines(where: str, node: Node, tops: Sequence[Tensor], layout: Layout) -> dict[str, str]:
    """Return layer_top_range, _scale and _zp from the parameters; without parameters, those of the file."""
    params = [top.qparams if top.dtype.is_integer else None for top in tops]
    found: dict[str, str] = {}
    bounds = [(p.qmin, p.qmax) for p in params if p is not None]
    if TOP_RANGE in node.extra:
        found[TOP_RANGE] = _value(where, node.extra[TOP_RANGE])
    elif bounds and len(bounds) == len(tops) and node.attrs.get("unquantifiable") is not True:
        found[TOP_RANGE] = format_value(tuple(bounds))
    if not bounds and TOP_SCALE not in node.extra:
        return found
    if any(p is not None and p.scale.dim() for p in params):
        if len(bounds) < len(tops):
            raise FormatError(f"{where}: scales per channel with an output without codes: quantize all outputs.")
        steps = [scale_of(p).reshape(-1) for p in params if p is not None]
        zeros = [(-p.zero_point).to(torch.int32).reshape(-1) for p in params if p is not None]
        for key, name, columns in ((TOP_SCALE, "float32", steps), (TOP_ZP, "int32", zeros)):
            lines = _quad_lines(key, [(name, data) for data in columns], layout, listed=True)
            # unlike a layer's constants, these have the shape before the size (Compass)
            found |= {f"{key}_{part}": lines[f"{key}_{part}"] for part in ("type", "offset", "shape", "size")}
        return found
    for key, default in ((TOP_SCALE, 1.0), (TOP_ZP, 0)):
        stored = cast("tuple[AttrValue, ...]", node.extra.get(key, ()))
        values: list[AttrValue] = []
        for i, p in enumerate(params):
            if p is None:
                values.append(stored[i] if i < len(stored) else default)
            else:
                values.append(float(scale_of(p)) if key == TOP_SCALE else -int(p.zero_point))
        if key == TOP_SCALE or stored or bounds:
            found[key] = format_value(tuple(values))
    return found


def _quad(where: str, stem: str, tensors: Sequence[Tensor], layout: Layout, *, listed: bool) -> dict[str, str]:
    try:
        rows = [(format_dtype(item.dtype), cast("torch.Tensor", item.data)) for item in tensors]
    except ValueError as err:
        raise FormatError(f"{where}: {stem}: {err}.") from None
    _text(f"{where}: constant", stem)
    return _quad_lines(stem, rows, layout, listed=listed)


def _quad_lines(stem: str, rows: Sequence[tuple[str, torch.Tensor]], layout: Layout, *, listed: bool) -> dict[str, str]:
    places = [layout.place(data) for _, data in rows]
    columns: dict[str, list[str]] = {
        "type": [name for name, _ in rows],
        "offset": [str(offset) for offset, _ in places],
        "size": [str(size) for _, size in places],
        "shape": [format_value(tuple(data.shape)) for _, data in rows],
    }
    return {f"{stem}_{part}": f"[{','.join(texts)}]" if listed else texts[0] for part, texts in columns.items()}


def _value(where: str, value: object) -> str:
    try:
        return format_value(cast("AttrValue", value))
    except ValueError as err:
        raise FormatError(f"{where}: {err}.") from None


def _text(where: str, text: str) -> str:
    """Return *text* for a line that is read unchanged."""
    try:
        check_text(text)
    except ValueError as err:
        raise FormatError(f"{where}: {err}.") from None
    if not text:
        raise FormatError(f"{where}: empty: give it a name.")
    return text


def _names(where: str, names: Sequence[str]) -> str:
    try:
        return format_names(names)
    except ValueError as err:
        raise FormatError(f"{where}: {err}.") from None


def _key(where: str, key: str, entries: Mapping[str, str]) -> str:
    if key in entries or key in STRUCTURE:
        raise FormatError(f"{where}: parameter {key!r}: the layer's own lines or constants use that key: rename it.")
    return _text(f"{where}: parameter", key)
