"""A float graph with a platform for each operation, and with configurations for those that are quantized."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import torch

from quantizer.core.errors import GraphError
from quantizer.core.rooms import graph_platform
from quantizer.ir.graph import Graph, Node, nearest
from quantizer.runtime.calibrate import calibrate
from quantizer.runtime.dispatch import DISPATCHED, FP32, assigned, platform_of, platforms
from quantizer.runtime.setting import BIAS_BITS, INT8, Setting
from quantizer.runtime.tensor_config import (
    OperationQuantizationConfig,
    QuantizationProperty,
    QuantizationStates,
    TensorQuantizationConfig,
    create_default_quant_config,
)

P = QuantizationProperty
COMPUTING = ("Conv", "ConvTranspose", "Gemm", "MatMul", "Attention")
MOVING = ("Flatten", "Identity", "MaxPool", "Pad", "Reshape", "Slice", "Squeeze", "Transpose", "Unsqueeze")
"""Operations whose results have the scale of their operand."""
QUANTIZED = (
    *COMPUTING,
    *MOVING,
    *(
        "Add AveragePool Clip Concat Div Elu Gelu GlobalAveragePool GlobalMaxPool HardSigmoid HardSwish "
        "LayerNormalization LeakyRelu Max Min Mul PRelu ReduceMean ReduceSum Relu Resize Sigmoid Softmax Sub Tanh"
    ).split(),
)
"""Operations that are quantized. Source: the union of PPQ's quantizers, and Elu, Gelu,
Min, ReduceSum and Tanh."""
DISPATCHERS = ("conservative", "allin")
CHANNELS = {"Conv": 0, "ConvTranspose": 1}
"""Operations whose weights have a scale for each channel -> the axis of the output channels."""


def dispatch_graph(
    graph: Graph,
    platform: str | None = None,
    dispatcher: str = "allin",
    dispatching_table: Mapping[str, str] | None = None,
) -> Graph:
    """Return *graph* with a platform for each operation: *platform* for those to quantize, fp32 for the others.

    platform: by default the platform that a room declares for such graphs (`core.rooms.graph_platform`). dispatcher:
    `allin` selects every operation of QUANTIZED on float32; `conservative` selects those of them that are connected to
    a computing operation through selected ones. dispatching_table: node -> platform; it overrides the dispatcher.
    Raises ValueError for an unknown platform or dispatcher, GraphError for an unknown node.
    """
    platform = platform or graph_platform()
    if platform not in platforms():
        raise ValueError(f"platform {platform!r}: no such platform.{nearest(platform, platforms())}")
    if dispatcher not in DISPATCHERS:
        raise ValueError(f"dispatcher {dispatcher!r}: must be one of {', '.join(DISPATCHERS)}.")
    chosen = {node.name for node in graph.nodes if node.op in QUANTIZED and _computes_float32(graph, node)}
    if dispatcher == "conservative":
        chosen = _connected(graph, chosen)
    return assigned(graph, dict.fromkeys(chosen, platform), dispatching_table)


def _computes_float32(graph: Graph, node: Node) -> bool:
    return all(_is_float32(graph, name) for name in (node.inputs[0], *node.outputs) if name is not None)


def _is_float32(graph: Graph, name: str) -> bool:
    """Return whether a tensor is float32, the only format that configurations quantize."""
    return graph.tensor(name).dtype.name == "float32"


def _connected(graph: Graph, chosen: set[str]) -> set[str]:
    """Return the operations of *chosen* that are connected to a computing operation through others of *chosen*."""
    reached = {node.name for node in graph.nodes if node.name in chosen and node.op in COMPUTING}
    # sorted, so that the walk does not depend on the order of a set
    waiting = [graph.node(name) for name in sorted(reached)]
    while waiting:
        node = waiting.pop()
        before = [graph.producers[name] for name in node.reads if name in graph.producers]
        after = [other for name in node.outputs for other in graph.consumers.get(name, ())]
        for other in (*before, *after):
            if other.name in chosen and other.name not in reached:
                reached.add(other.name)
                waiting.append(other)
    return reached


def quantize_graph(
    graph: Graph,
    batches: Iterable[Any],
    setting: Setting = INT8,
    *,
    activations: QuantizationProperty | None = None,
    weights: QuantizationProperty | None = None,
    num_of_bits: int | None = None,
) -> Graph:
    """Return a dispatched graph with a calibrated configuration for each operand and result that is quantized.

    batches: what `forward` takes, at least one. activations, weights, num_of_bits: override *setting*. Weights use the
    codes from -127 on. Raises GraphError if no operation was dispatched to be quantized, or if a dispatched operation
    has no active configuration in the end; ValueError for an observer that does not fit its policy.
    """
    given = {"activations": activations, "weights": weights, "num_of_bits": num_of_bits}
    changes: dict[str, Any] = {key: value for key, value in given.items() if value is not None}
    setting = replace(setting, **changes)
    if not graph.extra.get(DISPATCHED):
        raise GraphError(f"graph {graph.name!r} was not dispatched: use dispatch_graph first.")
    chosen = [node for node in graph.order if platform_of(node, FP32) != FP32]
    if not chosen:
        raise GraphError(
            f"graph {graph.name!r}: no operation is dispatched to be quantized: use the dispatcher 'allin', "
            "which takes those on float32."
        )
    own: dict[str, TensorQuantizationConfig] = {}
    nodes: dict[str, Node] = {}
    for node in chosen:
        inputs = [_operand(graph, node, i, own, setting) for i in range(len(node.inputs))]
        outputs = [_result(graph, node, name, own, setting) for name in node.outputs]
        if not any(config.is_active for config in (*inputs, *outputs)):
            raise GraphError(
                f"node {node.name!r} ({node.op}) was dispatched to be quantized, and nothing of it is: its tensors "
                "are not float32. Dispatch it to fp32."
            )
        nodes[node.name] = replace(node, parameters=OperationQuantizationConfig(inputs, outputs))
    # a configuration with a master takes its scale from there
    calibrate(graph, {name: config for name, config in own.items() if config.master is None}, batches)
    for node in nodes.values():
        _leave_infinite(node)
    if setting.bias:
        for node in nodes.values():
            _quantize_bias(graph, node)
    return graph.with_(nodes=tuple(nodes.get(node.name, node) for node in graph.nodes))


def _leave_infinite(node: Node) -> None:
    """Make a configuration float if it takes its scale from a tensor that stays float."""
    configs = node.parameters
    assert isinstance(configs, OperationQuantizationConfig)
    for config in (*configs.input_quantization_config, *configs.output_quantization_config):
        if config.root.state is QuantizationStates.FP32:
            config.state = QuantizationStates.FP32


def _quantize_bias(graph: Graph, node: Node) -> None:
    """Give a constant bias of a computing operation 32-bit codes whose scale is the product of the operands' scales.

    Groups of a transposed convolution share the scales of its weights, but each element of the bias has its own scale.
    """
    configs = node.parameters
    assert isinstance(configs, OperationQuantizationConfig)
    name = node.inputs[2] if len(node.inputs) > 2 and node.op in COMPUTING else None
    if name is None or not graph.tensor(name).is_constant or len(graph.tensor(name).shape) != 1:
        return
    # Gemm multiplies the product by alpha and the bias by beta: the sum has no single scale then
    if any(node.attrs.get(key, 1.0) != 1.0 for key in ("alpha", "beta")):
        return
    x, weight = (config.root for config in configs.input_quantization_config[:2])
    # a product of scales needs fixed, linear ones
    linear = all(c.scale is not None and P.LINEAR in c.policy and P.DYNAMIC not in c.policy for c in (x, weight))
    if not linear or x.scale is None or weight.scale is None:
        return
    scales = weight.params.repeated(graph.tensor(name).shape[0]).scale.to(weight.scale.dtype)
    grain = P.PER_CHANNEL if weight.scale.dim() else P.PER_TENSOR
    bias = create_default_quant_config(
        num_of_bits=BIAS_BITS, policy=P.LINEAR | P.SYMMETRICAL | grain, channel_axis=0 if weight.scale.dim() else None
    )
    bias.scale, bias.offset = x.scale * scales, torch.zeros_like(scales, dtype=torch.int64)
    # its scale follows from those of the operands, and is not calibrated
    bias.state = QuantizationStates.PASSIVE
    configs.input_quantization_config[2] = bias


def _operand(
    graph: Graph, node: Node, index: int, own: dict[str, TensorQuantizationConfig], setting: Setting
) -> TensorQuantizationConfig:
    """Return the configuration of an operand: its producer's, which has already quantized it, or a weight's own."""
    name = node.inputs[index]
    if (
        name is None
        or not _is_float32(graph, name)
        # a bias, which `_quantize_bias` treats last
        or (index >= 2 and node.op in COMPUTING)
        # bounds, sizes and padding values are numbers, not data
        or (index and node.op in ("Clip", "Resize", "Pad"))
    ):
        return _float()
    known = own.get(name)
    if known is not None:
        if name in graph.producers and _quantized_before(graph, name):
            # the producer's result is already on the grid: quantizing it again would change nothing
            return replace(known, master=known, state=QuantizationStates.OVERLAPPED)
        return known
    bits = setting.num_of_bits
    if graph.tensor(name).is_constant and index == 1 and node.op in COMPUTING:
        axis = CHANNELS.get(node.op) if P.PER_CHANNEL in setting.weights else None
        plain = setting.weights & ~(P.PER_CHANNEL | P.PER_TENSOR)
        own[name] = create_default_quant_config(
            num_of_bits=bits,
            policy=plain | (P.PER_TENSOR if axis is None else P.PER_CHANNEL),
            channel_axis=axis,
            quant_min=None if P.FLOATING in plain else -setting.largest_weight,
            quant_max=None if P.FLOATING in plain else setting.largest_weight,
            observer_algorithm=setting.weight_observer,
            exponent_bits=_exponent(plain),
        )
    else:
        own[name] = _activation(setting)
    own[name].state = QuantizationStates.ACTIVATED
    return own[name]


def _activation(setting: Setting) -> TensorQuantizationConfig:
    return create_default_quant_config(
        num_of_bits=setting.num_of_bits,
        policy=setting.activations,
        observer_algorithm=setting.observer,
        exponent_bits=_exponent(setting.activations),
    )


def _exponent(policy: QuantizationProperty) -> int:
    """Return the bits of the exponent of a floating policy: e4m3."""
    return 4 if P.FLOATING in policy else 0


def _quantized_before(graph: Graph, name: str) -> bool:
    return platform_of(graph.producers[name], FP32) != FP32


def _result(
    graph: Graph, node: Node, name: str, own: dict[str, TensorQuantizationConfig], setting: Setting
) -> TensorQuantizationConfig:
    """Return the configuration of a result. If the operation only moves values, the scale is its operand's."""
    if not _is_float32(graph, name):
        return _float()
    config = _activation(setting)
    config.state = QuantizationStates.ACTIVATED
    source = node.inputs[0]
    # a Pad also writes a value that its operand's range may not contain
    if node.op in MOVING and node.op != "Pad" and source is not None and source in own:
        config.master, config.state = own[source], QuantizationStates.PASSIVE
    own[name] = config
    return config


def _float() -> TensorQuantizationConfig:
    config = create_default_quant_config()
    config.state = QuantizationStates.FP32
    return config
