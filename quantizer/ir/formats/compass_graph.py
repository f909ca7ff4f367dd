"""From sections of Compass IR to a graph in Compass vocabulary; each problem has its line and key."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import BinaryIO

import numpy as np
import torch

from quantizer.core.dtypes import DType
from quantizer.ir.formats.compass_params import TOP_SCALE, TOP_ZP, quantized_constant, quantized_tops
from quantizer.ir.formats.compass_text import Section, format_value
from quantizer.ir.graph import AttrValue, Graph, Node, Tensor, container, nearest

STRUCTURE = (
    "layer_id",
    "layer_name",
    "layer_type",
    "layer_bottom",
    "layer_bottom_shape",
    "layer_bottom_type",
    "layer_top",
    "layer_top_shape",
    "layer_top_type",
    "layer_top_range",
    "layer_top_scale",
    "layer_top_zp",
)
HEADER = ("model_name", "layer_number", "input_tensors", "output_tensors")
SUBGRAPH = ("subgraph_name", "layer_number", "input_tensors", "output_tensors")
QUAD = ("type", "offset", "size", "shape")
CONSTANTS = "compass.constants"
"""Key of Node.extra: Compass's names of the last inputs, which are constants. It marks a node in Compass vocabulary."""
LISTS = "compass.lists"
"""Key of Node.extra: constant that the file stores as a list per key -> the number of entries."""
MAX_LAYERS = 100_000


@dataclass
class Blob:
    """The .bin file: bytes of constants. Two constants share either all of their bytes or none."""

    path: str
    file: BinaryIO
    claims: dict[tuple[int, int], tuple[Section, str]] = field(default_factory=dict)
    total: int = 0

    def __post_init__(self) -> None:
        self.size = self.file.seek(0, os.SEEK_END)

    def take(self, section: Section, key: str, offset: int, size: int) -> bytes:
        """Return *size* bytes at *offset*; FormatError if the file is too short, also for all claims together."""
        if offset < 0 or offset + size > self.size:
            what = f"{size} bytes at offset {offset} do not lie in {self.path}, which has {self.size} bytes"
            raise section.error(key, f"{what}: correct the offset, or use the .bin file that belongs to this text")
        if (offset, size) not in self.claims:
            self.claims[offset, size] = (section, key)
            self.total += size
            # more bytes are claimed than there are, so some are claimed twice; found before the memory is filled
            if self.total > self.size:
                self.check_overlaps()
        self.file.seek(offset)
        return self.file.read(size)

    def check_overlaps(self) -> None:
        """Raise FormatError if two constants share some bytes but not all."""
        end, owner = 0, ""
        for (offset, size), (section, key) in sorted(self.claims.items(), key=lambda claim: claim[0]):
            if offset < end:
                what = f"bytes {offset} to {offset + size} overlap {owner}"
                raise section.error(key, f"{what}: every constant has its own bytes")
            end, owner = offset + size, f"{key} on line {section.entries[key].line}"


def parse_graph(sections: Sequence[Section], blob: Blob) -> Graph:
    """Return the graph of all sections; it holds subgraphs by name."""
    starts = [i for i, item in enumerate(sections) if i and "subgraph_name" in item and "layer_type" not in item]
    ends = [*starts, len(sections)]
    if len(sections) > MAX_LAYERS:
        raise sections[MAX_LAYERS].error("layer_name", f"more than {MAX_LAYERS} layers: split the model")
    graph = _graph(sections[0], HEADER, sections[1 : ends[0]], blob, {})
    bodies: dict[str, Graph] = {}
    for start, end in zip(starts, ends[1:], strict=True):
        body = _graph(sections[start], SUBGRAPH, sections[start + 1 : end], blob, graph.tensors)
        if body.name in bodies:
            raise sections[start].error("subgraph_name", f"{body.name!r} occurs twice: rename one")
        bodies[body.name] = body
    blob.check_overlaps()
    return replace(graph, subgraphs=bodies)


def _graph(
    header: Section, keys: tuple[str, ...], layers: Sequence[Section], blob: Blob, outer: Mapping[str, Tensor]
) -> Graph:
    name = header.text(keys[0])
    for key in header.entries:
        if key in STRUCTURE:
            raise header.error(key, "belongs to a layer: end the header with a blank line")
    if "layer_number" in header and (number := header.integer("layer_number")) != len(layers):
        raise header.error("layer_number", f"says {number}, but {len(layers)} layers follow: write {len(layers)}")
    _check_unique(layers)
    # all outputs first, because a layer may stand before one that it reads
    tensors = _all_tops(layers)
    wanted = [name for section in layers for name in section.names("layer_bottom")]
    wanted += [name for key in keys[2:] if key in header for name in header.names(key)]
    # a body may read tensors of the graph around it
    tensors |= {name: outer[name] for name in wanted if name in outer and name not in tensors}
    for section in layers:
        _check_bottoms(section, tensors)
    nodes = []
    for section in layers:
        node, made = _layer(section, blob, tensors)
        tensors |= {tensor.name: tensor for tensor in made}
        nodes.append(node)
    inputs, outputs = _interface(header, nodes, outer)
    extra: dict[str, object] = {key: header.value(key) for key in header.entries if key not in keys}
    return Graph(name, tuple(nodes), tensors, inputs, outputs, extra)


def _check_unique(layers: Iterable[Section]) -> None:
    for key in ("layer_id", "layer_name"):
        lines: dict[str, int] = {}
        for section in layers:
            text = section.text(key)
            if text in lines:
                raise section.error(key, f"{text!r} is used on line {lines[text]} already: every layer has its own")
            lines[text] = section.entries[key].line
            if key == "layer_id":
                section.integer(key)


def _all_tops(layers: Iterable[Section]) -> dict[str, Tensor]:
    """Return the tensors that the layers produce; each has one producer."""
    tensors: dict[str, Tensor] = {}
    lines: dict[str, int] = {}
    for section in layers:
        names = section.names("layer_top")
        shapes, dtypes = section.items("layer_top_shape"), section.items("layer_top_type")
        for key, values in (("layer_top_shape", shapes), ("layer_top_type", dtypes)):
            if len(values) != len(names):
                what = f"{len(values)} entries for the {len(names)} tensors of layer_top: write one each"
                raise section.error(key, what)
        for name, shape, dtype in zip(names, shapes, dtypes, strict=True):
            if name in lines:
                raise section.error("layer_top", f"tensor {name!r} is made on line {lines[name]} already: rename one")
            lines[name] = section.entries["layer_top"].line
            shaped, typed = section.shape("layer_top_shape", shape), section.dtype("layer_top_type", dtype)
            tensors[name] = Tensor(name, shaped, typed)
    return tensors


def _check_bottoms(section: Section, tensors: Mapping[str, Tensor]) -> None:
    """Raise FormatError if the layer reads a tensor that no layer makes, or one declared with another shape or type."""
    names = section.names("layer_bottom")
    for name in names:
        if name not in tensors:
            raise section.error("layer_bottom", _dangling(name, tensors))
    real: dict[str, tuple[AttrValue, ...]] = {
        "layer_bottom_shape": tuple(tensors[name].shape for name in names),
        "layer_bottom_type": tuple(tensors[name].dtype for name in names),
    }
    for key, wanted in real.items():
        if key in section and section.items(key) != wanted:
            text = format_value(wanted)
            raise section.error(key, f"says {section.text(key)[:200]}, the layers before say {text}: write that")


def _dangling(name: str, known: Iterable[str]) -> str:
    return f"no layer makes the tensor {name!r}.{nearest(name, known)}".rstrip(".")


def _interface(
    header: Section, nodes: Sequence[Node], outer: Mapping[str, Tensor]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names of inputs and outputs: by default tops of Input layers, and tensors without a reader."""
    made = {name: node for node in nodes for name in node.outputs}
    read = {name for node in nodes for name in node.inputs}
    found = {
        "input_tensors": tuple(name for name, node in made.items() if node.op == "Input"),
        "output_tensors": tuple(name for name in made if name not in read),
    }
    for key in [key for key in found if key in header]:
        names = found[key] = header.names(key)
        for name in names:
            if name not in made and name not in outer:
                raise header.error(key, _dangling(name, made))
            if key == "input_tensors" and name in made and made[name].inputs:
                what = f"{name!r} is computed by layer {made[name].name!r}: an input comes from an Input layer"
                raise header.error(key, what)
        if len(set(names)) < len(names):
            raise header.error(key, f"{header.text(key)[:200]} names a tensor twice: write it once")
    if not found["output_tensors"]:
        raise header.error("output_tensors", "names no tensor: a graph has at least one output")
    return found["input_tensors"], found["output_tensors"]


def _layer(section: Section, blob: Blob, tensors: Mapping[str, Tensor]) -> tuple[Node, list[Tensor]]:
    """Return the node of *section* and its tensors: its outputs, and its constants, which are its last inputs."""
    stems = _constant_stems(section)
    quads = {f"{stem}_{part}" for stem in stems for part in QUAD}
    attrs = {key: section.value(key) for key in section.entries if key not in STRUCTURE and key not in quads}
    layer, tops = section.text("layer_name"), section.names("layer_top")
    constants: dict[str, Tensor] = {}
    lists: dict[str, int] = {}
    stored: dict[str, list[torch.Tensor]] = {}
    for stem in stems:
        values, listed = _constants(section, stem, blob)
        if stem in (TOP_SCALE, TOP_ZP) and stem not in section:
            stored[stem] = [data for _, data in values]
            continue
        if listed:
            lists[stem] = len(values)
        for i, (dtype, data) in enumerate(values):
            key = f"{stem}_{i}" if listed else stem
            if key in constants or key in section:
                raise section.error(f"{stem}_offset", f"constant {key!r} is in this section already: keep one")
            constants[key] = Tensor(_free(f"{layer}:{key}", tensors), tuple(data.shape), dtype, data)
    numbers = attrs | {key: item.data for key, item in constants.items() if item.data is not None}
    constants = {key: quantized_constant(section, key, item, numbers) for key, item in constants.items()}
    made, rest = quantized_tops(section, [tensors[name] for name in tops], stored, attrs)
    extra: dict[str, object] = {CONSTANTS: tuple(constants), **({LISTS: lists} if lists else {}), **rest}
    inputs = (*section.names("layer_bottom"), *(item.name for item in constants.values()))
    node = Node(layer, section.text("layer_type"), inputs, tops, attrs, "channels_last", extra)
    return node, [*made, *constants.values()]


def _free(name: str, taken: Mapping[str, Tensor]) -> str:
    while name in taken:
        name += "'"
    return name


def _constant_stems(section: Section) -> list[str]:
    """Return the names of the constants, in file order; a constant with a line missing is an error."""
    parts: dict[str, set[str]] = {}
    for key in section.entries:
        stem, _, part = key.rpartition("_")
        if part in QUAD and stem not in ("layer_top", "layer_bottom"):
            parts.setdefault(stem, set()).add(part)
    for stem, found in parts.items():
        missing = [part for part in QUAD if part not in found]
        # parameters may end with _type or _shape by chance: a constant is presumed only with enough of the four lines
        if len(missing) == 1 or (missing and "offset" in found and found & {"size", "shape"}):
            there = ", ".join(f"{stem}_{part}" for part in QUAD if part in found)
            key = f"{stem}_{missing[0]}"
            raise section.error(key, f"missing next to {there}: write {key}=..., or remove the constant")
    return [stem for stem, found in parts.items() if len(found) == len(QUAD)]


def _constants(section: Section, stem: str, blob: Blob) -> tuple[list[tuple[DType, torch.Tensor]], bool]:
    """Return type and values of constant *stem*: a single one, or one for each entry if the lines hold lists."""
    keys = [f"{stem}_{part}" for part in QUAD]
    dtypes, offsets, sizes, shapes = (section.value(key) for key in keys)
    if not isinstance(offsets, tuple):
        return [_constant(section, stem, blob, (dtypes, offsets, sizes, shapes))], False
    columns = []
    for key, column in zip(keys, (dtypes, offsets, sizes, shapes), strict=True):
        if not isinstance(column, tuple) or len(column) != len(offsets):
            got = section.text(key)[:60]
            raise section.error(key, f"must be a list of {len(offsets)} like {stem}_offset, got {got}")
        columns.append(column)
    return [_constant(section, stem, blob, row) for row in zip(*columns, strict=True)], True


def _constant(section: Section, stem: str, blob: Blob, row: Sequence[AttrValue]) -> tuple[DType, torch.Tensor]:
    dtype, shape = section.dtype(f"{stem}_type", row[0]), section.shape(f"{stem}_shape", row[3])
    numbers = []
    for part, value in (("offset", row[1]), ("size", row[2])):
        if isinstance(value, bool) or not isinstance(value, int):
            raise section.error(f"{stem}_{part}", f"must be an integer, got {section.text(f'{stem}_{part}')[:60]!r}")
        numbers.append(value)
    storage = np.dtype(dtype.storage)
    wanted = math.prod(shape) * storage.itemsize
    if numbers[1] != wanted:
        what = f"{numbers[1]} bytes, but shape {list(shape)} of {dtype} takes {wanted}: correct size, shape or type"
        raise section.error(f"{stem}_size", what)
    raw = blob.take(section, f"{stem}_offset", *numbers)
    if dtype.kind == "bool" and raw.strip(b"\x00\x01"):
        raise section.error(f"{stem}_type", "bool, but there are bytes other than 0 and 1: correct type or offset")
    # files are little-endian; astype makes a writable copy in this machine's order
    values = np.frombuffer(raw, dtype=storage.newbyteorder("<")).astype(storage)
    return dtype, torch.from_numpy(values).view(container(dtype)).reshape(shape)
