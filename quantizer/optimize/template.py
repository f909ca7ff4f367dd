"""opt_template.json: the settings of every layer of the quantized graph and their results; usable as opt_config."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import cast

from quantizer.core.dtypes import DType
from quantizer.ir.formats.compass_native import SOURCES
from quantizer.ir.formats.compass_params import scale_of
from quantizer.ir.graph import Graph, Node, Tensor
from quantizer.optimize.conversions import MAKER
from quantizer.optimize.layer_parameters import Calibrated
from quantizer.optimize.measuring import Similarity
from quantizer.optimize.per_layer import LayerKey
from quantizer.optimize.settings import KEYS, Settings
from quantizer.optimize.values import Value

SHOWN = (
    "q_mode_activation",
    "q_mode_weight",
    "q_bits_activation",
    "q_bits_weight",
    "q_bits_bias",
    "q_strategy_activation",
    "q_strategy_weight",
    "running_statistic_momentum",
    "histc_bins",
    "lut_items_in_bits",
    "force_dtype_int",
    "force_shift_positive",
    "trigger_float_op",
)
TUNED = tuple(
    (
        "cosine sine atanh asinh atan asin acos acosh sinh tanh erf log shrink softsign exp softplus cosh mish celu "
        "selu elu gelu silu swish sigmoid"
    ).split()
)
"""Layer types and activation methods that have a choice of method."""
FLOATS = {"float32": "FP32", "float16": "FP16", "bfloat16": "BFP16"}


def opt_template(
    graph: Graph,
    keys: Mapping[str, LayerKey],
    settings: Mapping[str, Settings],
    ranges: Mapping[str, Calibrated],
    similarity: Mapping[str, Similarity],
) -> str:
    """Return the JSON text: layer -> settings; under just_for_display, the choices and the similarities."""
    found = {}
    for node in _layers(graph):
        layer = str(node.extra.get(MAKER, node.name))
        # a conversion has no settings: those of the producer of its input are shown
        own, kind = settings[layer], node.op if MAKER in node.extra else keys[layer].type
        entry: dict[str, object] = {"with_winograd": own["with_winograd"]} if kind == "Convolution" else {}
        entry |= {key: own[KEYS[key]] for key in SHOWN} | _tuned(keys[layer], own, kind)
        near = [similarity.get(name) for name in node.outputs]
        # ranges belong to tensors of the float graph, which has no conversions
        made = node.inputs if MAKER in node.extra else node.outputs
        spans = [ranges.get(str(name)) for name in made]
        info = {name: _info(graph.tensor(name), span) for name, span in zip(node.outputs, spans, strict=True)}
        shown = {
            "quantization_info": str(info),
            "optimization_info": "{}",
            "brief_info": (
                f"layer_id = {keys[layer].number}, layer_type = OpType.{kind}, "
                f"similarity={', '.join(str(s.cosine if s else None) for s in near)}, "
                f"MSE={', '.join(str(s.mse if s else None) for s in near)}"
            ),
        }
        found[node.name] = {**entry, "just_for_display": shown}
    return json.dumps(found, indent=4)


def _tuned(key: LayerKey, own: Settings, kind: str) -> dict[str, object]:
    """Return the numbers of the method of an activation or a softmax."""
    if kind == "Softmax":
        return _both(own["enable_pass_tune_op_softmax"])
    named = (key.method or key.type).lower() in TUNED and kind == key.type
    return _both(own["enable_pass_tune_op_complicated_activations"]) if named else {}


def _both(value: Value) -> dict[str, object]:
    extra, approximate = cast("tuple[tuple[float, ...], tuple[float, ...]]", value)
    return {"extra_params": str(list(extra)), "approx_params": str(list(approximate))}


def _layers(graph: Graph) -> list[Node]:
    """Return the graph's layers in the order of its file."""
    layers = list(graph.nodes)
    for position, node, _ in cast("tuple[tuple[int, Node, Tensor | None], ...]", graph.extra.get(SOURCES, ())):
        layers.insert(min(position, len(layers)), node)
    return layers


def _info(tensor: Tensor, span: Calibrated | None) -> dict[str, str]:
    """Return the parameters of a tensor as Compass shows them."""
    params = tensor.qparams
    scale = [1.0] if params is None else scale_of(params).reshape(-1).tolist()
    zero = [0] if params is None else (-params.zero_point).reshape(-1).tolist()
    return {
        "scale": str(scale),
        "zerop": str(zero),
        "qbits": str(None if params is None else params.bits),
        "dtype": f"Dtype.{_dtype(tensor.dtype)}",
        "qmin": str(None if params is None else params.qmin),
        "qmax": str(None if params is None else params.qmax),
        "fmin": str([span.low]) if span else "None",
        "fmax": str([span.high]) if span else "None",
        "fmin_key_axis": "None",
        "fmax_key_axis": "None",
        "qinvariant": "False" if params is not None else "None",
    }


def _dtype(dtype: DType) -> str:
    if dtype.name in FLOATS:
        return FLOATS[dtype.name]
    aligned = "ALIGNED_" if dtype.bits in (4, 12) else ""
    return f"{aligned}{dtype.name.upper()}"
