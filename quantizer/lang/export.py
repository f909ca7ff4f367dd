"""Uses of a graph built with `quantizer.lang`: run it, or write it as ONNX, registry operators or Compass IR."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from quantizer.ir.channels_last import channels_last
from quantizer.ir.formats import compass
from quantizer.ir.graph import Graph as IrGraph
from quantizer.lang.graph import Graph
from quantizer.lang.lowering.lower import lower
from quantizer.lang.tensor import Tensor
from quantizer.runtime.dispatch import FP32
from quantizer.runtime.onnx.kernels import specs
from quantizer.runtime.onnx.registry_form import registry_form
from quantizer.runtime.torch_executor import TorchExecutor

Array = np.ndarray[Any, Any]


def top_graph(graph: Graph | IrGraph, outputs: Sequence[Tensor] | None = None) -> IrGraph:
    """Return the graph of Top operators; *outputs* as in Graph.to_ir."""
    return graph.to_ir(outputs=outputs) if isinstance(graph, Graph) else graph


def lowered(graph: Graph | IrGraph, outputs: Sequence[Tensor] | None = None) -> IrGraph:
    """Return the graph in ONNX's operators, which define every Top operator here."""
    return lower(top_graph(graph, outputs))


def run(graph: Graph | IrGraph, feeds: Mapping[str, Any], outputs: Sequence[Tensor] | None = None) -> dict[str, Array]:
    """Return outputs by name for inputs by name, which must have the graph's types and shapes."""
    # on FP32 the executor quantizes nothing: the lowered graph has every rounding as an operator
    ready = lowered(graph, outputs)
    values = TorchExecutor(ready, platform=FP32).forward(
        {name: torch.as_tensor(value) for name, value in feeds.items()}
    )
    return {name: value.numpy() for name, value in zip(ready.outputs, values, strict=True)}


def to_onnx(graph: Graph | IrGraph, path: str | os.PathLike[str], outputs: Sequence[Tensor] | None = None) -> None:
    """Write the graph as an ONNX model, whole or not at all; the extra `onnx` must be installed."""
    from quantizer.ir.formats.onnx_write import save

    save(lowered(graph, outputs), os.fspath(path))


def to_registry(graph: Graph | IrGraph, outputs: Sequence[Tensor] | None = None) -> IrGraph:
    """Return the graph in the registry's operators; UnsupportedError names every operator that has no spec."""
    return registry_form(lowered(graph, outputs))


def to_compass(
    graph: Graph | IrGraph, folder: str | os.PathLike[str], outputs: Sequence[Tensor] | None = None
) -> tuple[Path, Path]:
    """Write the graph of floats as Compass IR, `<name>.txt` and `<name>.bin` in *folder*, and return both paths.

    Its layers are channels_last, with transposes around them; inputs and outputs keep their order. UnsupportedError for
    an operator that the registry or Compass does not have.
    """
    known = specs()
    # registry operators first: only these have a Compass form; then their axis order, then Compass's names
    layers = compass.foreign(channels_last(to_registry(graph, outputs), known), known)
    text, blob = (Path(folder) / f"{graph.name}{ending}" for ending in (".txt", ".bin"))
    compass.write(layers, text, blob)
    return text, blob
