"""Dump of a run for inspection: every tensor of both graphs, and statistics."""

from __future__ import annotations

import io
import re
from collections.abc import Container, Mapping
from itertools import chain, count
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from quantizer.core.errors import FormatError
from quantizer.core.files import replace_files
from quantizer.ir.graph import Graph
from quantizer.optimize.cfg import Options
from quantizer.optimize.gathering import Gathered
from quantizer.optimize.running import Runner

# file systems take 255 bytes, and the suffix needs some
LONGEST_NAME = 200
OF_NUMPY = (torch.float16, torch.float32, torch.float64)
"""Floating-point types that .npy files have. Values of other types are written as float32, which holds them exactly."""


def dump_tensors(options: Options, runner: Runner, graph: Graph, quantized: Graph, feeds: Mapping[str, Tensor]) -> None:
    """Write inputs, outputs and constants of every layer as <dump_dir>/float32/*.npy and <dump_dir>/quant/*.npy."""
    contents: dict[Path, list[bytes]] = {}
    for folder, which in zip(dump_folders(options), (graph, quantized), strict=True):
        for name, node, values in runner.forward(which, feeds):
            label = node.op if node is not None else "Input"
            owner = node.name if node is not None else name
            contents[_file(options, folder, (label, owner, "o0", name), contents)] = [_npy(values)]
        for node in which.nodes:
            for place, read in enumerate(node.inputs):
                if read is not None and (data := which.tensor(read).data) is not None:
                    own = (node.op, node.name, f"c{place}", read)
                    contents[_file(options, folder, own, contents)] = [_npy(data)]
    replace_files(contents, FormatError)


def dump_folders(options: Options) -> tuple[Path, Path]:
    """Return the folders of the tensors of the float graph and of the quantized one."""
    folder = options.base / options.text("dump_dir")
    return folder / "float32", folder / "quant"


def _file(options: Options, folder: Path, parts: tuple[str, ...], taken: Container[Path]) -> Path:
    """Return <model_name>_<layer type>_<layer>_<what>_<tensor>.npy; a number is appended if that name is taken."""
    stem = re.sub(r"[^0-9A-Za-z_.-]", "_", "_".join((options.text("model_name"), *parts)))
    ends = chain([""], (f"_{number}" for number in count(2)))
    paths = (folder / f"{stem[: LONGEST_NAME - len(end)]}{end}.npy" for end in ends)
    return next(path for path in paths if path not in taken)


def _npy(values: Tensor) -> bytes:
    stream = io.BytesIO()
    known = values.float() if values.is_floating_point() and values.dtype not in OF_NUMPY else values
    np.save(stream, known.numpy(), allow_pickle=False)
    return stream.getvalue()


def statistics_archive(gathered: Gathered) -> bytes:
    """Return an .npz of all stored statistics, as `<tensor>/<what>`."""
    arrays = {}
    for name, found in gathered.tensors.items():
        for what in (
            "low",
            "high",
            "running_low",
            "running_high",
            "mean",
            "deviation",
            "absolute_deviation",
            "histogram",
        ):
            values = getattr(found, what)
            if values is not None:
                arrays[f"{name}/{what}"] = values.numpy()
    stream = io.BytesIO()
    np.savez(stream, **arrays)
    return stream.getvalue()
