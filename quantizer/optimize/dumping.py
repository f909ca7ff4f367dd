"""What a run writes for people who look inside: every tensor of both graphs, and statistics."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from quantizer.core.errors import FormatError
from quantizer.core.files import replace_files
from quantizer.ir.graph import Graph
from quantizer.optimize.cfg import Options
from quantizer.optimize.gathering import Gathered
from quantizer.optimize.running import Runner

LONGEST_NAME = 200


def dump_tensors(options: Options, runner: Runner, graph: Graph, quantized: Graph, feeds: Mapping[str, Tensor]) -> None:
    """Write inputs, outputs and constants of every layer as <dump_dir>/float32/*.npy and <dump_dir>/quant/*.npy."""
    folder = options.base / options.text("dump_dir")
    contents: dict[Path, Any] = {}
    for kind, which in (("float32", graph), ("quant", quantized)):
        for name, node, values in runner.forward(which, feeds):
            label = node.op if node is not None else "Input"
            owner = node.name if node is not None else name
            contents[folder / kind / _file(options, label, owner, "o0", name)] = [_npy(values)]
        for node in which.nodes:
            for place, read in enumerate(node.inputs):
                if read is not None and (data := which.tensor(read).data) is not None:
                    contents[folder / kind / _file(options, node.op, node.name, f"c{place}", read)] = [_npy(data)]
    replace_files(contents, FormatError)


def _file(options: Options, op: str, owner: str, what: str, name: str) -> str:
    text = "_".join((options.text("model_name"), op, owner, what, name))
    return f"{re.sub(r'[^0-9A-Za-z_.-]', '_', text)[:LONGEST_NAME]}.npy"


def _npy(values: Tensor) -> bytes:
    stream = io.BytesIO()
    np.save(stream, values.numpy(), allow_pickle=False)
    return stream.getvalue()


def statistics_archive(gathered: Gathered) -> bytes:
    """Return an .npz of every number that was kept, as `<tensor>/<what>`."""
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
