"""Writes a quantized graph as plain ONNX: a QuantizeLinear and a DequantizeLinear for every configuration."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch

from quantizer.core.dtypes import DTYPES, DType, integer
from quantizer.core.errors import UnsupportedError
from quantizer.ir.graph import Graph, Node, Tensor
from quantizer.numerics.quantize import quantize
from quantizer.runtime.hooks import is_quantable
from quantizer.runtime.setting import BIAS_BITS
from quantizer.runtime.tensor_config import OperationQuantizationConfig, QuantizationProperty, TensorQuantizationConfig

P = QuantizationProperty
BITS = (8, 16, BIAS_BITS)
PER_TENSOR, PER_CHANNEL, WIDE = 10, 13, 21
"""The first opsets whose QuantizeLinear has 8 bits and one scale, scales along an axis, and 16 bits."""


def export_qdq(graph: Graph, path: Path | str) -> None:
    """Write *graph* as a QDQ model with the same codes; the codes of a tensor `t` are the tensor `t#codes`.

    One exception: a computed tensor with symmetric codes from -127 on gets -128 below its calibrated range, because
    QuantizeLinear saturates at the ends of int8.
    """
    from quantizer.ir.formats.onnx_write import save  # onnx is an extra; `with_qdq` needs none

    save(with_qdq(graph), path)


def with_qdq(graph: Graph) -> Graph:
    """Return *graph* with a QuantizeLinear and a DequantizeLinear in place of each active configuration.

    A result `t` is computed as `t#float`, its codes are `t#codes`, and their values `t`. Raises UnsupportedError for
    what the two operators cannot express: floating and dynamic policies, other roundings than half to even, and
    anything that needs a later opset.
    """
    added: dict[str, Tensor] = {}
    nodes: list[Node] = []
    read_as: dict[str, str] = {}
    for node in graph.order:
        if not is_quantable(node):
            nodes.append(node)
            continue
        configs = node.parameters
        assert isinstance(configs, OperationQuantizationConfig)
        inputs: list[str | None] = []
        for name, config in zip(node.inputs, configs.input_quantization_config, strict=True):
            # one pair serves all readers: an operand has one configuration
            if name is not None and config.is_active and name not in read_as:
                read_as[name] = f"{name}#quantized"
                nodes += _pair(graph, name, name, read_as[name], config, added)
                added[read_as[name]] = replace(graph.tensor(name), name=read_as[name], data=None)
            inputs.append(read_as[name] if name is not None and config.is_active else name)
        made = []
        after: list[Node] = []
        for name, config in zip(node.outputs, configs.output_quantization_config, strict=True):
            # the old name goes to the quantized values, so that readers and outputs need no change
            raw = f"{name}#float" if config.is_active else name
            made.append(raw)
            if config.is_active:
                added[raw] = replace(graph.tensor(name), name=raw)
                after += _pair(graph, name, raw, name, config, added)
        nodes += [replace(node, inputs=tuple(inputs), outputs=tuple(made), parameters=None), *after]
    tensors = {**graph.tensors, **added}
    kept = {name for node in nodes for name in (*node.reads, *node.outputs)} | {*graph.inputs, *graph.outputs}
    return graph.with_(nodes=tuple(nodes), tensors={name: t for name, t in tensors.items() if name in kept})


def _pair(
    graph: Graph, name: str, source: str, target: str, config: TensorQuantizationConfig, added: dict[str, Tensor]
) -> list[Node]:
    """Return the nodes that quantize *source* into *target*; a bias becomes a constant of codes."""
    if config.rounding != "half_even" or config.policy & (P.FLOATING | P.DYNAMIC) or config.num_of_bits not in BITS:
        raise UnsupportedError(f"{name!r}: QDQ holds 8 or 16 bits, rounded half to even, with scales of their own.")
    params, dtype = config.params, integer(config.num_of_bits, signed=config.quant_min < 0)
    opset = _checked_opset(graph, name, config)
    if not _saturates_alike(graph.tensor(name), config, dtype):
        bounds = f"[{config.quant_min}, {config.quant_max}]"
        raise UnsupportedError(f"{name!r}: codes {bounds}: QDQ saturates at [{dtype.min}, {dtype.max}] alone.")
    scale, zero = f"{name}#scale", f"{name}#zero"
    added[scale] = Tensor(scale, tuple(params.scale.shape), DTYPES["float32"], params.scale.float())
    added[zero] = Tensor(zero, tuple(params.scale.shape), dtype, params.zero_point.to(getattr(torch, dtype.name)))
    codes = f"{name}#codes"
    if config.num_of_bits == BIAS_BITS:
        data = graph.tensor(source).data
        if data is None:
            raise UnsupportedError(f"{name!r}: 32 bits are for a constant bias.")
        added[codes] = Tensor(codes, tuple(data.shape), dtype, config.codes(data).to(torch.int32))
        # opset 10 has no attribute axis
        along = {"axis": 0} if opset >= PER_CHANNEL else {}
        return [Node(f"{name}#dequantize", "DequantizeLinear", (codes, scale, zero), (target,), along)]
    added[codes] = Tensor(codes, (), dtype, ranked=False)
    attrs = {"axis": params.axis if params.axis is not None else 1} if opset >= PER_CHANNEL else {}
    return [
        Node(f"{name}#quantize", "QuantizeLinear", (source, scale, zero), (codes,), attrs),
        Node(f"{name}#dequantize", "DequantizeLinear", (codes, scale, zero), (target,), attrs),
    ]


def _checked_opset(graph: Graph, name: str, config: TensorQuantizationConfig) -> int:
    """Return the graph's opset; UnsupportedError if its QuantizeLinear cannot express *config*."""
    opset = graph.extra.get("opset", PER_CHANNEL)
    if config.num_of_bits == 16:
        what, first = "16 bits", WIDE
    elif P.PER_CHANNEL in config.policy or config.params.scale.dim():
        what, first = "scales per channel", PER_CHANNEL
    else:
        what, first = "8 bits and one scale", PER_TENSOR
    if not isinstance(opset, int) or opset < first:
        raise UnsupportedError(
            f"{name!r}: QDQ of {what} needs opset {first} or later, graph {graph.name!r} has {opset}. "
            "Convert the model (onnx.version_converter), or quantize it in another way."
        )
    return opset


def _saturates_alike(tensor: Tensor, config: TensorQuantizationConfig, dtype: DType) -> bool:
    """Return whether saturating at the ends of *dtype* gives the codes of *config* within its calibrated range."""
    if (config.quant_min, config.quant_max) == (dtype.min, dtype.max):
        return True
    if tensor.data is not None:
        wide = replace(config.params, qmin=dtype.min, qmax=dtype.max)
        return torch.equal(quantize(tensor.data, wide, config.quantizer), config.codes(tensor.data))
    # within the calibrated range, which is symmetric, no value rounds to the code below -quant_max
    return P.SYMMETRICAL in config.policy and (config.quant_min, config.quant_max) == (dtype.min + 1, dtype.max)
