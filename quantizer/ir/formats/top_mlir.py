"""Top MLIR as TpuLang writes it: the text of a module and an archive of its weights.

A file that is read and written again is the same.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from quantizer.core.errors import FormatError, GraphError
from quantizer.core.files import replace_files
from quantizer.ir.formats.mlir_module import Module, parse_module
from quantizer.ir.formats.mlir_text import read_text
from quantizer.ir.formats.mlir_types import TensorType
from quantizer.ir.formats.npz import Array, npz_bytes, read_npz
from quantizer.ir.formats.top_read import graph_of
from quantizer.ir.formats.top_write import HALVES, State, module_text, weight_file
from quantizer.ir.graph import Graph, Tensor, container
from quantizer.ir.verify import verify

PathLike = str | os.PathLike[str]


@dataclass(frozen=True)
class Files:
    """The two files of a module."""

    text: Path
    weights: Path


def to_bytes(graph: Graph, name: str, state: State) -> tuple[str, bytes]:
    """Return the contents of the two files that `write` writes."""
    verify(graph)
    text, weights = module_text(graph, name, state)
    return text, npz_bytes(weights)


def write(graph: Graph, folder: PathLike, name: str, state: State) -> Files:
    """Write a graph in Top's vocabulary as `<name>_origin.mlir` and the archive that its `module.weight_file` names.

    Both files are written or neither; the same graph gives the same bytes. When it is read back, the graph is called
    *name*, its nodes are in execution order, and tensors without a reader are gone. UnsupportedError if the text cannot
    express it.
    """
    text, weights = to_bytes(graph, name, state)
    files = Files(Path(folder) / f"{name}_origin.mlir", Path(folder) / weight_file(name, state))
    replace_files({files.weights: [weights], files.text: text}, FormatError)
    return files


def read(path: PathLike) -> Graph:
    """Return the verified graph of the module at *path*, with the weights from the archive next to it.

    A node's `op` is the operator (`top.Conv`), its name that of its first output; its attributes are those in the text.
    An input has a node `top.Input` only if it has more attributes than `do_preprocess = false`. FormatError names path,
    line and column.
    """
    where = os.fspath(path)
    module = parse_module(read_text(where), where)
    return _verified(module, _archive(module, Path(where).parent))


def from_bytes(text: str, weights: Mapping[str, Array], path: str = "module") -> Graph:
    """Return the verified graph of *text* and the arrays of its weights; errors as in `read`, under *path*."""
    return _verified(parse_module(text, path), weights)


def header(path: PathLike) -> dict[str, str]:
    """Return the attributes of the module at *path*: chip, platform, state, top_run_mode, weight_file."""
    where = os.fspath(path)
    return parse_module(read_text(where), where).strings()


def _verified(module: Module, weights: Mapping[str, Array]) -> Graph:
    graph = graph_of(module, lambda place, name, type_: _weight(place, name, type_, weights))
    try:
        verify(graph)
    except GraphError as err:
        raise FormatError(f"{module.cursor.name}: {err}") from None
    return graph


def _archive(module: Module, folder: Path) -> dict[str, Array]:
    """Return the arrays of the archive that the module names. A module without weights needs no archive."""
    if not any(operation.op == "top.Weight" for operation in module.operations):
        return {}
    literal = module.header.get("module.weight_file")
    if literal is None or literal.type != "string":
        module.cursor.fail("module.weight_file is missing: it names the archive of the weights", 0)
    name = str(literal.value)
    # a name without a folder, so that a module cannot have other files read
    if name != Path(name).name or name in ("", ".", ".."):
        module.cursor.fail(f"module.weight_file {name[:60]!r}: must be the name of a file beside this one", literal.at)
    return read_npz(folder / name)


def _weight(place: str, name: str, type_: TensorType, weights: Mapping[str, Array]) -> Tensor:
    if name not in weights:
        raise FormatError(f"{place}: the archive has no array of that name.")
    values, dtype = weights[name], type_.dtype
    kept = "uint16" if dtype.name in HALVES else dtype.storage
    if values.dtype.name not in (kept, dtype.name):
        raise FormatError(f"{place}: {values.dtype} in the archive: {dtype} is kept as {kept}.")
    if tuple(values.shape) != type_.shape or not type_.ranked:
        raise FormatError(f"{place}: shape {list(values.shape)} in the archive, {type_.text} in the text.")
    kind = container(dtype)
    if dtype.name in HALVES:
        codes = np.ascontiguousarray(values).view(np.int16).reshape(values.shape)
        return type_.tensor(name, torch.from_numpy(codes).view(kind))
    return type_.tensor(name, torch.from_numpy(np.array(values, dtype=dtype.storage)))
