"""Writes a case as input files of the Compass flow: IR text, constants, arrays, and a cfg with the same parameters."""

from __future__ import annotations

from dataclasses import replace
from typing import TypedDict

import numpy as np
import torch
from torch import Tensor

from quantizer.conformance.checks.round_trip import float_graph
from quantizer.conformance.failures.exported import Content, Exported
from quantizer.conformance.trials.trial import Trial
from quantizer.core.case import AttrValue
from quantizer.core.errors import UnsupportedError
from quantizer.core.schemes import Scheme
from quantizer.ir.formats import compass
from quantizer.ir.formats.compass_graph import CONSTANTS
from quantizer.ir.formats.compass_mapping import FORMAT
from quantizer.ir.formats.compass_native import SOURCES
from quantizer.ir.formats.compass_params import TOP_RANGE
from quantizer.ir.graph import Graph, Node
from quantizer.platforms.compass.names import BLOB, CFG, DATA, GRAPH
from quantizer.runtime.executor import to_node_order


class Written(TypedDict):
    """The flow's input: the float IR, samples for its inputs in its axis order, and the cfg; also the case itself."""

    text: str
    blob: Tensor
    """The content of the file."""
    feeds: dict[str, Tensor]
    cfg: str
    shapes: dict[str, tuple[int, ...]]
    attrs: dict[str, AttrValue]


def written_case(trial: Trial) -> Written:
    """Return the files of a case that the flow reads; UnsupportedError if Compass IR or a cfg cannot hold it.

    Calibrated ranges are in the IR (layer_top_range), and the cfg takes them from there (in_ir).
    """
    if FORMAT not in trial.spec.formats:
        raise UnsupportedError("no file format holds this operator")
    graph = _with_ranges(trial, float_graph(trial, compass.ORDER))
    text, blob = compass.to_bytes(compass.foreign(graph, {trial.spec.op: trial.spec}))
    feeds = {
        name: to_node_order(trial.tensors[name], "channels_last", spatial=trial.spec.inputs[name].spatial).contiguous()
        for name in graph.inputs
    }
    return Written(
        text=text,
        # as a tensor, because only plain data and tensors cross to the plugin process; frombuffer takes no empty buffer
        blob=torch.frombuffer(bytearray(blob), dtype=torch.uint8) if blob else torch.empty(0, dtype=torch.uint8),
        feeds=feeds,
        cfg=cfg_of(trial.spec.op, trial.target.scheme, batched(feeds)),
        shapes=dict(trial.case.shapes),
        attrs=dict(trial.case.attrs),
    )


def files(trial: Trial) -> Exported:
    """Return the files that the flow reads, with the case's own operands and codes; UnsupportedError as above."""
    written = written_case(trial)
    contents: dict[str, Content] = {
        GRAPH: written["text"],
        BLOB: written["blob"].numpy().tobytes(),
        CFG: written["cfg"],
        "codes.npy": trial.got,
    }
    contents |= {f"{name}.npy": values.numpy() for name, values in trial.tensors.items()}
    if batched(written["feeds"]):
        contents[DATA] = {name: values.numpy() for name, values in written["feeds"].items()}
    return Exported(contents, f"quantize it with: quantizer optimize --cfg {{folder}}/{CFG}")


def batched(feeds: dict[str, Tensor]) -> bool:
    """Return whether all inputs have the same first size, so that a data set can hold them sample by sample."""
    # with 0 added, exactly two members mean one common size, which is not 0
    return len({values.shape[0] if values.dim() else 0 for values in feeds.values()} | {0}) == 2


def _with_ranges(trial: Trial, graph: Graph) -> Graph:
    (node,) = graph.nodes
    sources = []
    for position, name in enumerate(graph.inputs):
        extra: dict[str, object] = {CONSTANTS: (), TOP_RANGE: (_range(trial, name),)}
        sources.append((position, Node(name, "Input", (), (name,), order="channels_last", extra=extra), None))
    if "y" in trial.case.ranges:
        node = replace(node, extra={**node.extra, TOP_RANGE: (_range(trial, "y"),)})
    return graph.with_(nodes=(node,), extra={**graph.extra, SOURCES: tuple(sources)})


def _range(trial: Trial, name: str) -> tuple[float, float]:
    low, high = trial.case.ranges[name]
    # the flow reads ranges as float32: both sides must quantize with the same numbers
    return float(np.float32(low)), float(np.float32(high))


def cfg_of(name: str, scheme: Scheme, calibrated: bool) -> str:  # noqa: FBT001
    """Return a cfg that quantizes as *scheme* says."""
    if scheme.grid != "uniform":
        raise UnsupportedError(f"scheme {scheme.name} has {scheme.grid_words}, which a cfg cannot express")
    activation, weight = scheme.activation, scheme.weight
    fields = {
        "graph": GRAPH,
        "bin": BLOB,
        "model_name": name,
        "output_dir": ".",
        "out_ir_name": "quant",
        "calibration_strategy_for_activation": "in_ir",
        "quantize_method_for_activation": _method("tensor", activation.symmetry, activation.range),
        "activation_bits": str(activation.bits),
        "lut_items_in_bits": str(activation.lut_bits),
        "trigger_float_op": "disable",
    }
    if activation.fast:
        fields |= {"enable_pass_tune_op_softmax": "[1,1][0]"}
    if calibrated:
        fields |= {"dataset": "NumpyMultiInputDataset", "calibration_data": DATA}
    if weight is not None:
        fields |= {
            "quantize_method_for_weight": _method(weight.granularity, weight.symmetry, weight.range),
            "weight_bits": str(weight.bits),
            "bias_bits": str(weight.bias_bits),
        }
    return "".join(("[Common]\n", *(f"{key} = {value}\n" for key, value in fields.items())))


def _method(granularity: str, symmetry: str, code_range: str) -> str:
    return f"per_{granularity}_{symmetry}" + (f"_{code_range}_range" if symmetry == "symmetric" else "")
