"""Samples for a graph's inputs: from .npy and .npz files, or from a seed."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from quantizer.core.errors import FormatError, GraphError
from quantizer.core.reading import Readable
from quantizer.core.wording import shown_path
from quantizer.ir.formats.npz import MAGIC, read_npy, read_npz
from quantizer.ir.graph import FREE, LARGEST, Graph, check_size, container, nearest
from quantizer.ir.graph import Tensor as GraphTensor
from quantizer.numerics.deviates import deviates

ARRAYS = Readable("a file of arrays", 1 << 40, FormatError)
"""Only its first bytes are read here; the arrays are checked against their own bounds."""

WIDEST = 8
"""The largest number of bytes of a number in torch."""
SPREAD = 1 << 20
"""Normal deviates times this, modulo the length of an axis, give its indices, all about equally often."""
Batch = dict[str, Tensor]


def read_batches(path: Path, graph: Graph, size: int) -> list[Batch]:
    """Return the samples in *path*, counted by their first axis, in batches of *size*; the last may be smaller.

    An .npz file holds an array for each input, under its name; an .npy file holds the array of the only input. If the
    graph fixes its batch size, that size is used. FormatError if the file is not an array file, GraphError for arrays
    that do not fit the inputs.
    """
    where = shown_path(path)
    arrays = _arrays(path, where, graph)
    if missing := [name for name in graph.inputs if name not in arrays]:
        raise GraphError(f"{where}: no array for input {missing[0]!r}.{nearest(missing[0], arrays)}")
    if unknown := [name for name in arrays if name not in graph.inputs]:
        raise GraphError(
            f"{where}: array {unknown[0]!r} is not an input of the graph.{nearest(unknown[0], graph.inputs)}"
        )
    tensors = {name: _checked(where, graph, name, arrays[name]) for name in graph.inputs}
    counts = {len(values) for values in tensors.values()}
    if len(counts) != 1 or 0 in counts:
        raise GraphError(
            f"{where}: {', '.join(map(str, sorted(counts)))} samples: every input needs the same number, at least one."
        )
    (count,), own = counts, _own_batch(graph)
    step = size if own is None else own
    if own is not None and count % own:
        raise GraphError(f"{where}: {count} samples: the graph takes {own} at a time, so that they must be a multiple.")
    return [{name: values[i : i + step] for name, values in tensors.items()} for i in range(0, count, step)]


def synthetic_batches(graph: Graph, seed: int, count: int, size: int) -> list[Batch]:
    """Return normally distributed values for float inputs, and indices for integer inputs that only Gathers read.

    The same seed gives the same values on every processor. A free first axis has *size* samples. GraphError for other
    free sizes, for other inputs, and for more than LARGEST bytes of values in all.
    """
    tensors = [graph.tensor(name) for name in graph.inputs]
    places = {tensor.name: _places(graph, tensor.name) for tensor in tensors if tensor.dtype.is_integer}
    for tensor in tensors:
        unknown = tensor.dtype.kind != "float" and places.get(tensor.name) is None
        if unknown or not tensor.ranked or FREE in tensor.shape[1:]:
            raise GraphError(
                f"input {tensor.name!r}: values can be made for floats of known sizes, and for integers that a "
                "Gather reads: give data."
            )
    shapes = {tensor.name: [size if n == FREE else n for n in tensor.shape] for tensor in tensors}
    # deviates are made as float32, whatever the type of the input
    total = count * sum(math.prod(shapes[t.name]) * max(4, container(t.dtype).itemsize) for t in tensors)
    if total > LARGEST:
        raise GraphError(f"{count} batches of {size} samples: {total} bytes of values, at most {LARGEST}: make fewer.")

    def made(tensor: GraphTensor, number: int, place: int) -> Tensor:
        # own deviates for each seed, batch and input: adding an input changes no other
        values = torch.from_numpy(deviates(tuple(shapes[tensor.name]), (seed, number, place)))
        count = places.get(tensor.name)
        return (values if count is None else (values * SPREAD).long() % count).to(container(tensor.dtype))

    return [{t.name: made(t, number, place) for place, t in enumerate(tensors)} for number in range(count)]


def _places(graph: Graph, name: str) -> int | None:
    """Return how many indices an input may name: the shortest axis that a Gather indexes; None with other readers."""
    found = []
    for node in graph.consumers.get(name, ()):
        # it reads sizes, not values
        if node.op == "Shape":
            continue
        table, axis = graph.tensor(str(node.inputs[0])), node.attrs.get("axis", 0)
        if node.op != "Gather" or node.inputs.index(name) != 1 or not isinstance(axis, int):
            return None
        if not table.ranked or table.shape[axis] < 1:
            return None
        found.append(table.shape[axis])
    return min(found, default=None)


def _own_batch(graph: Graph) -> int | None:
    sizes = {t.shape[0] for t in map(graph.tensor, graph.inputs) if t.ranked and t.shape and t.shape[0] != FREE}
    if len(sizes) > 1:
        raise GraphError(f"graph {graph.name!r}: inputs have {sorted(sizes)} samples: their first axes must agree.")
    return next(iter(sizes), None)


def _arrays(path: Path, where: str, graph: Graph) -> dict[str, np.ndarray]:
    with ARRAYS.opened(path, where) as file:
        start = file.read(len(MAGIC))
    # anything else must be an archive, which read_npz checks
    if start != MAGIC:
        return read_npz(path)
    if len(graph.inputs) != 1:
        raise GraphError(f"{where}: one array for inputs {', '.join(graph.inputs)}: save an .npz file.")
    return {graph.inputs[0]: read_npy(path)}


def _checked(where: str, graph: Graph, name: str, values: np.ndarray) -> Tensor:
    tensor = graph.tensor(name)
    wanted = [None if n == FREE else n for n in tensor.shape]
    fits = values.ndim == len(wanted) and all(n in (None, m) for n, m in zip(wanted[1:], values.shape[1:], strict=True))
    if (tensor.ranked and not fits) or not values.ndim:
        shown = ["?" if n is None else n for n in wanted]
        raise GraphError(
            f"{where}: {name!r} has shape {list(values.shape)}, must be {shown}, the first axis for samples."
        )
    kind = container(tensor.dtype)
    if values.dtype.itemsize > WIDEST:
        raise GraphError(f"{where}: {name!r} holds {values.dtype}: must be numbers of at most {8 * WIDEST} bits.")
    # before the copy, so that a small file cannot ask for much memory
    check_size(f"{where}: {name!r}", values.shape, max(kind.itemsize, values.dtype.itemsize))
    # torch takes only arrays in the processor's byte order
    found = torch.from_numpy(values.astype(values.dtype.newbyteorder("="), order="C")).to(kind)
    if found.is_floating_point() and not bool(torch.isfinite(found).all()):
        raise GraphError(f"{where}: {name!r} holds NaN or infinities: leave these samples out.")
    return found
