"""Converts our operators to Compass layers and inserts Input and Constant layers, as `compass_write` needs them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TypeVar, cast

import torch

from quantizer.core.dtypes import DTYPES
from quantizer.core.errors import GraphError, UnsupportedError
from quantizer.core.expressions import Expression
from quantizer.core.layer_format import LayerFormat
from quantizer.core.spec import Spec
from quantizer.core.spec_values import OneOrMoreKeys
from quantizer.ir.formats.compass_axes import checked_order, from_front, permuted, trailing
from quantizer.ir.formats.compass_graph import CONSTANTS, STRUCTURE
from quantizer.ir.formats.compass_mapping import (
    FORMAT,
    constant_keys,
    defaults_of,
    evaluate,
    fused_text,
    mapped_attrs,
    named_sizes,
)
from quantizer.ir.formats.compass_native import CONSTANT_ORDER, PARAMS, SINGLE, SOURCES, SPELLED, Source
from quantizer.ir.formats.compass_params import constant_params, scale_of
from quantizer.ir.formats.compass_text import parse_value
from quantizer.ir.formats.compass_types import as_own_type
from quantizer.ir.graph import AttrValue, Graph, Node, Tensor, container, difference

_T = TypeVar("_T")


def foreign(graph: Graph, specs: Mapping[str, Spec]) -> Graph:
    """Return *graph* with Compass layers for our operators, inputs and constant operands: the input of `write`."""
    tensors = dict(graph.tensors)
    nodes = [
        as_own_type(_to_theirs(graph, node, specs[node.op], tensors))
        if node.op in specs and CONSTANTS not in node.extra
        else node
        for node in graph.nodes
    ]
    _add_sources(graph, nodes, tensors)
    return graph.with_(
        nodes=tuple(nodes),
        tensors=tensors,
        extra={key: value for key, value in graph.extra.items() if key != SOURCES},
        subgraphs={name: foreign(body, specs) for name, body in graph.subgraphs.items()},
    )


def _add_sources(graph: Graph, nodes: list[Node], tensors: dict[str, Tensor]) -> None:
    """Insert the layers of inputs and constant operands: stored ones at their old positions, new ones in front."""
    read = {name for node in nodes for name in node.inputs[: len(node.inputs) - len(constant_keys(node))]}
    read |= set(graph.outputs)
    wanted = dict.fromkeys((*graph.inputs, *(n for n in tensors if n in read and tensors[n].is_constant)))
    for node in nodes:
        for name in node.outputs:
            wanted.pop(name, None)
    for position, source, constant in cast("tuple[Source, ...]", graph.extra.get(SOURCES, ())):
        name = source.outputs[0] if source.outputs else ""
        if name in wanted and (constant is not None) is tensors[name].is_constant:
            # a changed graph may have become shorter than the position
            nodes.insert(min(position, len(nodes)), source)
            for made in source.outputs:
                wanted.pop(made, None)
            if constant is not None:
                tensors[constant.name] = replace(constant, data=tensors[name].data)
                tensors[name] = replace(tensors[name], data=None)
    taken = {node.name for node in nodes}
    for position, name in enumerate(wanted):
        constants: tuple[str, ...] = ()
        label = name
        while label in taken:
            label += "_source"
        taken.add(label)
        if tensors[name].is_constant:
            constants = (f"{label}:weights",)
            tensors[constants[0]] = replace(tensors[name], name=constants[0], qparams=None)
            tensors[name] = replace(tensors[name], data=None)
        extra = {CONSTANTS: ("weights",) if constants else ()}
        layer = "Constant" if constants else "Input"
        nodes.insert(position, Node(label, layer, constants, (name,), order="channels_last", extra=extra))


def _to_theirs(graph: Graph, node: Node, spec: Spec, tensors: dict[str, Tensor]) -> Node:
    form, where = spec.formats.get(FORMAT), f"node {node.name!r}"
    if form is None:
        raise UnsupportedError(f"{where}: {spec.op} has no Compass layer: add formats.compass to its spec.")
    if node.order == "channels_first" and any(item.spatial for item in spec.inputs.values()):
        raise UnsupportedError(f"{where}: Compass layers are channels_last: transpose its tensors and set its order.")
    bound = named_sizes(graph, node, spec)
    bottoms, constants = _their_operands(graph, node, spec, form, bound, tensors)
    attrs = _their_attrs(node, spec, form, bound, len(graph.tensor(str(node.inputs[0])).shape))
    extra = {key: v for key, v in node.extra.items() if key.startswith("compass.") or key in STRUCTURE}
    kept = {key: v for key, v in node.extra.items() if key not in extra}
    rest = {key: value for key, value in kept.items() if isinstance(value, Tensor)}
    attrs |= {key: cast("AttrValue", value) for key, value in kept.items() if key not in rest}
    for key, tensor_of in list(constants.items()):
        _requantize(node, key, tensor_of, attrs, rest)
    constants |= rest
    tensors |= {tensor.name: tensor for tensor in rest.values()}
    attrs = _ordered(attrs, cast("tuple[str, ...]", extra.pop(PARAMS, ())))
    constants = _ordered(constants, cast("tuple[str, ...]", extra.pop(CONSTANT_ORDER, ())))
    for key in cast("tuple[str, ...]", extra.pop(SINGLE, ())):
        # the layer that was read had a single number here
        (attrs[key],) = cast("tuple[AttrValue]", attrs[key])
    extra = {CONSTANTS: tuple(constants)} | extra
    inputs = (*bottoms, *(tensor.name for tensor in constants.values()))
    return replace(
        node,
        op=form.type,
        inputs=inputs,
        attrs=attrs,
        order="channels_last",
        activation="none",
        activation_attrs={},
        extra=extra,
        transposed=(),
    )


def _their_operands(
    graph: Graph,
    node: Node,
    spec: Spec,
    form: LayerFormat,
    bound: Mapping[str, object],
    tensors: dict[str, Tensor],
) -> tuple[list[str], dict[str, Tensor]]:
    """Return the layer's inputs and its constants by their keys; constants that are made for it go to *tensors*."""
    where = f"node {node.name!r}"
    bottoms: list[str] = []
    constants: dict[str, Tensor] = {}
    for name, tensor in zip(spec.inputs, node.inputs, strict=True):
        if tensor is None:
            if name in form.zeros and CONSTANT_ORDER not in node.extra:
                zeros = _zeros(node, spec, name, form.inputs[name], bound, list(constants.values()))
                tensors[zeros.name] = constants[form.inputs[name]] = zeros
        elif name not in form.inputs:
            bottoms.append(tensor)
        elif graph.tensor(tensor).is_constant:
            constants[form.inputs[name]] = graph.tensor(tensor)
            if name in form.layouts:
                order = checked_order(where, spec, name, graph.tensor(tensor))
                # the inverse permutation
                back = [order.index(axis) for axis in range(len(order))]
                label = _free(f"{node.name}:{form.inputs[name]}", tensors, tensor)
                tensors[label] = constants[form.inputs[name]] = permuted(graph.tensor(tensor), label, back)
        else:
            key = form.inputs[name]
            raise UnsupportedError(f"{where}: input {name!r} is computed: Compass stores {key!r} as a constant.")
    return bottoms, constants


def _free(label: str, tensors: Mapping[str, Tensor], own: str) -> str:
    """Return *label*, lengthened until no tensor except *own* has that name."""
    while label in tensors and label != own:
        label += "_"
    return label


def _zeros(
    node: Node, spec: Spec, name: str, key: str, variables: Mapping[str, object], constants: list[Tensor]
) -> Tensor:
    """Return zeros for optional constant *name*, of the type of the node's other constants."""
    dtype = constants[0].dtype if constants else DTYPES["float32"]
    if dtype.is_integer:
        raise UnsupportedError(
            f"node {node.name!r}: quantized and without {name!r}: Compass needs {key!r}, which hold the input's zero "
            "point too. Give the float graph zeros for it."
        )
    shape = tuple(int(cast("int", axis(variables))) for axis in cast("list[Expression]", spec.inputs[name].axes))
    return Tensor(f"{node.name}:{key}", shape, dtype, torch.zeros(shape, dtype=container(dtype)))


def _their_attrs(
    node: Node, spec: Spec, form: LayerFormat, variables: Mapping[str, object], rank: int
) -> dict[str, AttrValue]:
    """Return derived, mapped and fixed parameters.

    Parameters that the original layer left out are still left out unless they changed.
    """
    written = cast("tuple[str, ...] | None", node.extra.get(PARAMS))
    found: dict[str, AttrValue] = {}
    for key, expression in form.derived.items():
        found[key] = evaluate(expression, variables)
    defaults = defaults_of(spec)
    for name, value in node.attrs.items():
        if name not in {*form.attrs, *form.trailing_axes} and value != defaults.get(name, value):
            raise UnsupportedError(
                f"node {node.name!r}: {name}={value!r}: a Compass {form.type} has {defaults[name]!r}."
            )
    consumed = set(form.consumed)
    quantized = node.extra.get("unquantifiable") is False
    for name in (name for name, _ in mapped_attrs(spec, form) if not (quantized and name in consumed)):
        if name not in node.attrs:
            raise GraphError(f"node {node.name!r}: {spec.op} without attribute {name!r}: Compass writes it.")
        value, keys = node.attrs[name], form.attrs[name]
        if written is None and name in form.from_front:
            value = from_front(value, rank)
        named = [keys] if isinstance(keys, str) else keys
        if written is not None and value == defaults.get(name) and not set(named) & set(written):
            continue
        values = (_spelled(node, keys, value),) if isinstance(keys, str) else value
        if not isinstance(values, tuple) or len(values) != len(named):
            raise GraphError(f"node {node.name!r}: {name}={value!r}: Compass writes it as {', '.join(named)}.")
        if name in form.pairs and isinstance(value, tuple):
            values = (tuple(zip(value[: len(value) // 2], value[len(value) // 2 :], strict=True)),)
        found |= dict(zip(named, values, strict=True))
    found |= _trailing(node, form, rank, defaults, written)
    found |= {key: parse_value(text) for key, text in form.fixed.items()}
    found |= {key: name in node.transposed for name, key in form.transposed.items()}
    implied = form.derived.keys() | form.fixed.keys()
    if form.activation is not None:
        found[form.activation] = parse_value(fused_text(node.activation, form))
        implied |= {form.activation} if node.activation == "none" else set()
    elif node.activation != "none":
        raise UnsupportedError(f"node {node.name!r}: a Compass {form.type} fuses no {node.activation}.")
    implied |= {key for key, text in form.absent.items() if found.get(key) == parse_value(text)}
    # a file that is read and written again must be the same, so lines that it did not need are not added
    left_out = set() if written is None else implied - set(written)
    return {key: value for key, value in found.items() if key not in left_out}


def _spelled(node: Node, key: OneOrMoreKeys, value: AttrValue) -> AttrValue:
    """Return a word as the original layer spells it, in capitals if there was no layer; numbers are unchanged."""
    if not isinstance(value, str) or not isinstance(key, str):
        return value
    said = cast("Mapping[str, str]", node.extra.get(SPELLED, {})).get(key, "")
    return said if said.casefold() == value.casefold() else value.upper()


def _trailing(
    node: Node, form: LayerFormat, rank: int, defaults: Mapping[str, AttrValue], written: tuple[str, ...] | None
) -> dict[str, AttrValue]:
    """Return the lists of trailing axes, except those that the original layer left out and that equal its default."""
    found: dict[str, AttrValue] = {}
    for name, key in form.trailing_axes.items():
        value = node.attrs[name]
        if isinstance(value, int) and not (written is not None and key not in written and value == defaults.get(name)):
            found[key] = trailing(value, rank)
    return found


def _requantize(node: Node, key: str, tensor: Tensor, attrs: dict[str, AttrValue], rest: dict[str, Tensor]) -> None:
    """Set `<key>_scale` and `<key>_zp` to the tensor's parameters if the file has other values."""
    params = tensor.qparams
    if params is None:
        return
    names = (f"{key}_scale", f"{key}_zp")
    scale, zero = ((rest[name].data if name in rest else attrs.get(name)) for name in names)
    if scale is not None:
        said = constant_params(tensor.dtype, tensor.shape, scale, 0 if zero is None else zero)
        if difference("", said, params) is None:
            return
    # the file's zero point has the other sign
    steps, zeros = scale_of(params), (-params.zero_point).to(torch.int32)
    for name in names:
        attrs.pop(name, None)
        rest.pop(name, None)
    if steps.dim() == 0:
        attrs |= dict(zip(names, (float(steps), int(zeros)), strict=True))
        return
    if (params.axis or 0) % len(tensor.shape):
        where = f"node {node.name!r}: {key}"
        raise UnsupportedError(f"{where}: scales along axis {params.axis}: Compass has them along axis 0.")
    for name, data, kind in zip(names, (steps, zeros), ("float32", "int32"), strict=True):
        rest[name] = Tensor(f"{node.name}:{name}", tuple(data.shape), DTYPES[kind], data)


def _ordered(found: dict[str, _T], order: tuple[str, ...]) -> dict[str, _T]:
    return {key: found[key] for key in (*(k for k in order if k in found), *(k for k in found if k not in order))}
