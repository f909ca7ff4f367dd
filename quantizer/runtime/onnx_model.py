"""ONNX files ready to run: every operator is known, and results that depend only on constants are computed once."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import torch

from quantizer.ir.graph import FREE, Graph, Node, Tensor, container
from quantizer.runtime.dispatch import FP32, find_handler, runs_on
from quantizer.runtime.onnx.kernels import Context

SMALL = 1 << 16
"""The largest number of elements of a folded constant: enough for shapes and indices, not for weights."""


def load_onnx_graph(path: Path | str, platform: str = FP32) -> Graph:
    """Return the model in *path* with its constants folded.

    Raises FormatError or GraphError for errors in the file, and one UnsupportedError that names every operator
    without a kernel on *platform*.
    """
    from quantizer.ir.formats.onnx import load  # onnx is an extra; `folded` needs none

    return folded(load(path, runs_on(platform)), platform)


def folded(graph: Graph, platform: str = FP32) -> Graph:
    """Fold nodes of *graph* that read only constants and have small results.

    A dequantization stays: without it a constant has no scale, and the operator that reads it is no longer
    quantized.
    """
    known = {name: t.data for name, t in graph.tensors.items() if t.data is not None}
    made: dict[str, Tensor] = {}
    kept: list[Node] = []
    context = Context(graph, torch.device("cpu"))
    for node in graph.order:
        handler = find_handler(node.op, platform)
        small = all(_is_small(graph.tensor(name)) for name in node.outputs)
        if (
            node.op == "DequantizeLinear"
            or handler is None
            or not small
            or not node.inputs
            or not all(name in known for name in node.reads)
        ):
            kept.append(node)
            continue
        try:
            outcome = handler(node, [None if name is None else known[name] for name in node.inputs], context)
        except Exception:  # noqa: BLE001 - it fails again, with its place, when the graph runs
            kept.append(node)
            continue
        values = outcome if isinstance(outcome, list | tuple) else [outcome]
        for name, value in zip(node.outputs, values, strict=False):
            # a handler may answer in a wider type than the graph declares
            data = value.to(container(graph.tensor(name).dtype))
            known[name] = data
            made[name] = replace(graph.tensor(name), shape=tuple(data.shape), data=data)
    return graph.with_(nodes=tuple(kept)).with_tensors(*made.values())


def _is_small(tensor: Tensor) -> bool:
    return tensor.ranked and FREE not in tensor.shape and math.prod(tensor.shape) <= SMALL


def load_caffe_graph(prototxt: Path | str, caffemodel: Path | str, platform: str = FP32) -> Graph:
    """Return a Caffe network with ONNX's operators and folded constants; errors as in `ir.formats.caffe.load`."""
    from quantizer.ir.formats import caffe

    return folded(caffe.load(prototxt, caffemodel, runs_on(platform)), platform)
