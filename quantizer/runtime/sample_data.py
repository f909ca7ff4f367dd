"""Samples for a graph's inputs: from .npy and .npz files, or from a seed."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from quantizer.core.errors import FormatError, GraphError
from quantizer.core.wording import shown_path
from quantizer.ir.graph import FREE, LARGEST, Graph, container, nearest

MAGIC = b"\x93NUMPY"
Batch = dict[str, Tensor]


def read_batches(path: Path, graph: Graph, size: int) -> list[Batch]:
    """Return the samples in *path*, whose first axis counts them, in batches of *size*; the rest of a file is a smaller batch.

    An .npz file holds an array for each input, under its name; an .npy file the one of the only input. Where the graph fixes
    its batch, that is the size. FormatError for what is no such file, GraphError for arrays that do not fit the inputs.
    """
    where = shown_path(path)
    arrays = _arrays(path, where, graph)
    if missing := [name for name in graph.inputs if name not in arrays]:
        raise GraphError(f"{where}: no array for input {missing[0]!r}.{nearest(missing[0], arrays)}")
    if unknown := [name for name in arrays if name not in graph.inputs]:
        raise GraphError(f"{where}: array {unknown[0]!r} is no input of the graph.{nearest(unknown[0], graph.inputs)}")
    tensors = {name: _checked(where, graph, name, arrays[name]) for name in graph.inputs}
    counts = {len(values) for values in tensors.values()}
    if len(counts) != 1 or 0 in counts:
        raise GraphError(
            f"{where}: {', '.join(map(str, sorted(counts)))} samples: every input needs as many, at least one."
        )
    (count,), own = counts, _own_batch(graph)
    step = size if own is None else own
    if own is not None and count % own:
        raise GraphError(f"{where}: {count} samples: the graph takes {own} at a time, so that they must be a multiple.")
    return [{name: values[i : i + step] for name, values in tensors.items()} for i in range(0, count, step)]


def synthetic_batches(graph: Graph, seed: int, count: int, size: int) -> list[Batch]:
    """Return normally distributed values for float inputs; the same for the same seed.

    A free first axis has *size* samples. GraphError for other free sizes, and for inputs that are not float.
    """
    source = torch.Generator().manual_seed(seed)
    batches = []
    for _ in range(count):
        batch = {}
        for name in graph.inputs:
            tensor = graph.tensor(name)
            if tensor.dtype.kind != "float" or not tensor.ranked or FREE in tensor.shape[1:]:
                raise GraphError(f"input {name!r}: values can be made for floats of known sizes alone: give data.")
            shape = [size if n == FREE else n for n in tensor.shape]
            batch[name] = torch.randn(shape, generator=source).to(container(tensor.dtype))
        batches.append(batch)
    return batches


def _own_batch(graph: Graph) -> int | None:
    sizes = {t.shape[0] for t in map(graph.tensor, graph.inputs) if t.ranked and t.shape and t.shape[0] != FREE}
    if len(sizes) > 1:
        raise GraphError(f"graph {graph.name!r}: inputs have {sorted(sizes)} samples: their first axes must agree.")
    return next(iter(sizes), None)


def _arrays(path: Path, where: str, graph: Graph) -> dict[str, np.ndarray]:
    try:
        with path.open("rb") as file:
            start = file.read(len(MAGIC))
        if start == MAGIC:
            if len(graph.inputs) != 1:
                raise GraphError(f"{where}: one array for inputs {', '.join(graph.inputs)}: save an .npz file.")
            return {graph.inputs[0]: np.load(path, mmap_mode="r", allow_pickle=False)}
        with zipfile.ZipFile(path) as archive:
            if sum(item.file_size for item in archive.infolist()) > LARGEST:
                raise FormatError(f"{where}: unpacks to more than {LARGEST} bytes. Give fewer samples.")
        with np.load(path, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except OSError as err:
        raise FormatError(f"{where}: cannot be read: {(err.strerror or str(err)).lower()}.") from None
    except (ValueError, EOFError, KeyError, zipfile.BadZipFile, NotImplementedError, RuntimeError) as err:
        hint = "pickled objects are refused" if "pickle" in str(err) or "Python objects" in str(err) else str(err)
        raise FormatError(f"{where}: is no .npy or .npz file of numeric arrays: {hint}.") from None


def _checked(where: str, graph: Graph, name: str, values: np.ndarray) -> Tensor:
    tensor = graph.tensor(name)
    wanted = [None if n == FREE else n for n in tensor.shape]
    fits = values.ndim == len(wanted) and all(n in (None, m) for n, m in zip(wanted[1:], values.shape[1:], strict=True))
    if (tensor.ranked and not fits) or not values.ndim:
        shown = ["?" if n is None else n for n in wanted]
        raise GraphError(
            f"{where}: {name!r} has shape {list(values.shape)}, must be {shown}, the first axis for samples."
        )
    if values.dtype.kind not in "fiub":
        raise GraphError(f"{where}: {name!r} holds {values.dtype}: must be numbers.")
    found = torch.from_numpy(np.array(values, order="C")).to(container(tensor.dtype))
    if found.is_floating_point() and not bool(torch.isfinite(found).all()):
        raise GraphError(f"{where}: {name!r} holds NaN or infinities: leave these samples out.")
    return found
