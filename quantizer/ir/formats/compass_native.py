"""Between Compass layers and our operators, by what the specs say in `formats.compass`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TypeAlias, TypeVar, cast

import torch

from quantizer.core.dtypes import DTYPES
from quantizer.core.errors import GraphError, UnsupportedError
from quantizer.core.expressions import Expression
from quantizer.core.shapes import named_axes
from quantizer.core.spec import CompassFormat, Domain, Input, OneOrMoreKeys, Output, Spec
from quantizer.ir.formats.compass_axes import constant_order, first_of_trailing, from_front, trailing
from quantizer.ir.formats.compass_graph import CONSTANTS, STRUCTURE
from quantizer.ir.formats.compass_params import constant_params, scale_of
from quantizer.ir.formats.compass_text import format_loosely, parse_value
from quantizer.ir.formats.compass_types import as_activation, as_own_type
from quantizer.ir.graph import AttrValue, Graph, Node, Tensor, container, difference, nearest

_T = TypeVar("_T")
SOURCES = "compass.sources"
"""Graph.extra of a native graph: (position, layer, its constant or None) of the Input and Constant layers set aside."""
_Source: TypeAlias = "tuple[int, Node, Tensor | None]"
SINGLE = "compass.single"
"""Node.extra of a native node: the keys of lists of axes for which its layer gives one number."""
PARAMS = "compass.params"
"""Node.extra of a native node: the keys of its layer's parameters, in order."""
SPELLED = "compass.spelled"
"""Node.extra of a native node: key -> the word that its layer gives it; Compass takes capitals and small letters as one."""
AXIS = "axis"
"""The key of an axis, or of several, which a layer may count from the end."""
CONSTANT_ORDER = "compass.constant_order"
"""Node.extra of a native node: the keys of its layer's constants, in order."""


def native(graph: Graph, specs: Mapping[str, Spec]) -> Graph:
    """Return *graph* with our operators where a spec covers the layer; other layers stay as they are.

    Input layers that make the graph's inputs are set aside; Constant layers become constants. A layer's other
    parameters (scale_value, ...) stay in `extra` under Compass's names, its other constants (scale, lut, weights_scale,
    ...) there as `Tensor`. GraphError where a layer lacks what its operator needs, or contradicts its shapes.
    """
    known: dict[str, list[tuple[Spec, CompassFormat]]] = {}
    for spec in specs.values():
        if spec.formats.compass is not None:
            known.setdefault(spec.formats.compass.type, []).append((spec, spec.formats.compass))
    nodes: list[Node] = []
    sources: list[_Source] = []
    folded: dict[str, Tensor] = {}
    arranged: dict[str, Tensor] = {}
    for position, node in enumerate(graph.nodes):
        if node.op == "Input" and not node.inputs and set(node.outputs) <= set(graph.inputs):
            sources.append((position, node, None))
            continue
        if (source := _folds(graph, node)) is not None:
            sources.append((position, node, source))
            folded[node.outputs[0]] = replace(graph.tensor(node.outputs[0]), data=source.data)
            continue
        layer = as_activation(node)
        found = _match(layer, known.get(layer.op, [])) if CONSTANTS in node.extra else None
        nodes.append(node if found is None else _to_ours(graph, layer, *found, arranged))
    read = {name for node in nodes for name in (*node.inputs, *node.outputs)}
    set_aside = {name for node in graph.nodes for name in node.inputs if name is not None} - read
    return graph.with_(
        nodes=tuple(nodes),
        tensors={
            name: {**folded, **arranged}.get(name, tensor)
            for name, tensor in graph.tensors.items()
            if name not in set_aside
        },
        extra={**graph.extra, SOURCES: tuple(sources)},
        subgraphs={name: native(body, specs) for name, body in graph.subgraphs.items()},
    )


def foreign(graph: Graph, specs: Mapping[str, Spec]) -> Graph:
    """Return *graph* with Compass layers for our operators, inputs and constant operands: what `write` takes."""
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


def _folds(graph: Graph, node: Node) -> Tensor | None:
    """Return the constant of a Constant layer that says no more than its values."""
    if node.op != "Constant" or node.extra.get(CONSTANTS) != ("weights",) or len(node.inputs) != 1:
        return None
    source, top = graph.tensor(str(node.inputs[0])), [graph.tensor(name) for name in node.outputs]
    return source if len(top) == 1 and (top[0].shape, top[0].dtype) == (source.shape, source.dtype) else None


def _add_sources(graph: Graph, nodes: list[Node], tensors: dict[str, Tensor]) -> None:
    """Insert the layers that make inputs and constant operands: those set aside at their places, new ones in front."""
    read = {name for node in nodes for name in node.inputs[: len(node.inputs) - len(_constant_keys(node))]}
    read |= set(graph.outputs)
    wanted = dict.fromkeys((*graph.inputs, *(n for n in tensors if n in read and tensors[n].is_constant)))
    for node in nodes:
        for name in node.outputs:
            wanted.pop(name, None)
    for position, source, constant in cast("tuple[_Source, ...]", graph.extra.get(SOURCES, ())):
        name = source.outputs[0] if source.outputs else ""
        if name in wanted and (constant is not None) is tensors[name].is_constant:
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


def _fused(node: Node, form: CompassFormat) -> str:
    """Return the fused activation that a layer says; none where it says nothing."""
    said = format_loosely(node.attrs.get(form.activation or "", form.unfused)).casefold()
    return "none" if said == form.unfused.casefold() else said


def _fused_text(activation: str, form: CompassFormat) -> str:
    return form.unfused if activation == "none" else activation.upper()


def _constant_keys(node: Node) -> tuple[str, ...]:
    return cast("tuple[str, ...]", node.extra.get(CONSTANTS, ()))


def _match(node: Node, candidates: list[tuple[Spec, CompassFormat]]) -> tuple[Spec, CompassFormat] | None:
    """Return the spec whose fixed keys the layer has; of several the one that fixes most. NONE may be left out."""
    fits = []
    for spec, form in candidates:
        said = {
            key: format_loosely(node.attrs[key]) if key in node.attrs else form.absent.get(key, "NONE")
            for key in form.fixed
        }
        if form.activation is not None and _fused(node, form) not in ("none", *spec.fuses, *form.fuses):
            continue
        if all(said[key].casefold() == wanted.casefold() for key, wanted in form.fixed.items()):
            fits.append((spec, form))
    fits.sort(key=lambda fit: -len(fit[1].fixed))
    if len(fits) > 1 and len(fits[0][1].fixed) == len(fits[1][1].fixed):
        names = " and ".join(spec.op for spec, _ in fits[:2])
        rule = "their specs must differ in formats.compass.fixed"
        raise GraphError(f"layer {node.name!r}: {node.op} is both {names}: {rule}.")
    return fits[0] if fits else None


def _to_ours(graph: Graph, node: Node, spec: Spec, form: CompassFormat, arranged: dict[str, Tensor]) -> Node:
    """Return the layer as a node of ours; constants that the layer has in another axis order go to *arranged*."""
    keys = _constant_keys(node)
    count = len(node.inputs) - len(keys)
    constants = dict(zip(keys, node.inputs[count:], strict=True))
    bottoms = list(node.inputs[:count])
    where = f"layer {node.name!r}"
    inputs: list[str | None] = []
    for name, item in spec.inputs.items():
        key = form.inputs.get(name)
        found = constants.pop(key, None) if key else bottoms.pop(0) if bottoms else None
        if found is None and not item.optional:
            lacks = f"constant {form.inputs[name]!r}" if name in form.inputs else f"input {name!r}"
            raise GraphError(f"{where}: {node.op} without {lacks}: {spec.op} needs it.")
        inputs.append(found)
    if bottoms or len(node.outputs) != len(spec.outputs):
        sizes = f"{count} inputs and {len(node.outputs)} outputs"
        raise GraphError(f"{where}: {node.op} has {sizes}: {spec.op} takes fewer, or makes {len(spec.outputs)}.")
    node, single = _listed(node, spec, form)
    attrs = {name: value for name, value in _defaults(spec).items() if name not in form.attrs}
    if form.pairs:
        node = replace(node, attrs={**node.attrs, **_unpaired(where, node, form)})
    attrs |= {name: _our_attr(where, node, name, form, domain) for name, domain in _mapped(spec, form)}
    for name, key in form.trailing_axes.items():
        if key in node.attrs:
            attrs[name] = first_of_trailing(where, key, node.attrs[key], len(graph.tensor(str(inputs[0])).shape))
    theirs = {key for mapped in form.attrs.values() for key in ([mapped] if isinstance(mapped, str) else mapped)}
    theirs |= {*form.trailing_axes.values(), *form.transposed.values()}
    implied = {key for key, text in form.fixed.items() if format_loosely(node.attrs.get(key, "")) == text}
    fused = "none" if form.activation is None else _fused(node, form)
    if form.activation is not None and format_loosely(node.attrs.get(form.activation, "")) == _fused_text(fused, form):
        implied.add(form.activation)
    rest = {key: v for key, v in node.attrs.items() if key not in theirs | form.derived.keys() | implied}
    rest_constants = {key: graph.tensor(str(name)) for key, name in constants.items()}
    extra = {key: value for key, value in node.extra.items() if key != CONSTANTS}
    spelled = {key: value for key, value in node.attrs.items() if key in theirs and isinstance(value, str)}
    extra |= {SPELLED: spelled} if spelled else {}
    extra |= rest | rest_constants | {PARAMS: tuple(node.attrs), CONSTANT_ORDER: keys}
    extra |= {SINGLE: single} if single else {}
    ours = replace(
        node, op=spec.op, inputs=tuple(inputs), attrs=attrs, order="channels_last", activation=fused, extra=extra,
        transposed=_transposed(graph, node, form, dict(zip(spec.inputs, inputs, strict=True))),
    )  # fmt: skip
    for name, tensor in zip(spec.inputs, inputs, strict=True):
        if name in form.layouts and tensor is not None:
            given = graph.tensor(tensor)
            arranged[tensor] = _arranged(given, tensor, _checked_order(where, spec, name, given))
    if form.sized:
        bound = _variables(graph, ours, spec)
        own = {name: tuple(cast("int", bound[axis]) for axis in axes) for name, axes in form.sized.items()}
        ours = replace(ours, attrs={name: {**attrs, **own}[name] for name in spec.attrs if name in {**attrs, **own}})
    if form.derived:
        bound = _variables(graph.with_tensors(*arranged.values()), ours, spec)
        rank = len(graph.tensor(str(inputs[0])).shape)
        ours = replace(ours, extra={**extra, **_otherwise_derived(ours, node, form, bound, rank)})
    return ours


def _transposed(graph: Graph, node: Node, form: CompassFormat, operands: Mapping[str, str | None]) -> tuple[str, ...]:
    """Return the inputs whose last two axes the layer says to be swapped."""
    found = []
    for name, key in form.transposed.items():
        said, tensor = node.attrs.get(key), operands[name]
        if not isinstance(said, bool):
            raise GraphError(f"layer {node.name!r}: {node.op} without {key}: write {key}=true or {key}=false.")
        if said and tensor is not None:
            if len(shape := graph.tensor(tensor).shape) < 2:
                raise GraphError(
                    f"layer {node.name!r}: {key}=true: {tensor!r} has shape {list(shape)}: needs two axes."
                )
            found.append(name)
    return tuple(found)


def _checked_order(where: str, spec: Spec, name: str, tensor: Tensor) -> list[int]:
    order = constant_order(spec, name)
    if len(tensor.shape) != len(order):
        raise GraphError(f"{where}: {name!r} has rank {len(tensor.shape)}: {spec.op} takes rank {len(order)}.")
    return order


def _arranged(tensor: Tensor, name: str, order: list[int]) -> Tensor:
    """Return *tensor* called *name*, whose axis i is axis order[i] of the given one."""
    shape = tuple(tensor.shape[axis] for axis in order)
    data = None if tensor.data is None else tensor.data.permute(order).contiguous()
    params = tensor.qparams
    if params is not None and params.axis is not None:
        params = replace(params, axis=order.index(params.axis % len(order)))
    return replace(tensor, name=name, shape=shape, data=data, qparams=params)


def _listed(node: Node, spec: Spec, form: CompassFormat) -> tuple[Node, tuple[str, ...]]:
    """Return the layer with lists of one axis where it gives the axis itself, and the keys of these."""
    keys = [key for name, key in form.attrs.items() if isinstance(key, str) and spec.attrs[name].type == "axes"]
    single = tuple(key for key in keys if type(node.attrs.get(key)) is int)
    return replace(node, attrs={**node.attrs, **{key: (node.attrs[key],) for key in single}}), single


def _unpaired(where: str, node: Node, form: CompassFormat) -> dict[str, AttrValue]:
    """Return parameters of [before, after] pairs as all numbers before and then all after."""
    found: dict[str, AttrValue] = {}
    for key in (str(form.attrs[name]) for name in form.pairs):
        value = node.attrs.get(key, ())
        if not isinstance(value, tuple) or not all(isinstance(pair, tuple) and len(pair) == 2 for pair in value):
            shown = format_loosely(value)
            raise GraphError(f"{where}: {key}: got {shown}: must be a list of pairs, such as [[0,0],[1,1]].")
        pairs = cast("tuple[tuple[AttrValue, AttrValue], ...]", value)
        found[key] = (*(before for before, _ in pairs), *(after for _, after in pairs))
    return found


def _mapped(spec: Spec, form: CompassFormat) -> list[tuple[str, Domain]]:
    unknown = [name for name in form.attrs if name not in spec.attrs]
    if unknown:
        hint = nearest(unknown[0], spec.attrs)
        raise UnsupportedError(f"spec {spec.op}: formats.compass.attrs.{unknown[0]}: no such attribute.{hint}")
    return [(name, domain) for name, domain in spec.attrs.items() if name in form.attrs]


def _defaults(spec: Spec) -> dict[str, AttrValue]:
    values = {name: domain.default for name, domain in spec.attrs.items() if domain.default is not None}
    return {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}


def _our_attr(where: str, node: Node, name: str, form: CompassFormat, domain: Domain) -> AttrValue:
    keys = form.attrs[name]
    named = [keys] if isinstance(keys, str) else keys
    said = {key: parse_value(form.absent[key]) for key in named if key in form.absent} | dict(node.attrs)
    missing = [key for key in named if key not in said]
    if missing:
        if domain.default is not None and len(missing) == len(named):
            return tuple(domain.default) if isinstance(domain.default, list) else domain.default
        raise GraphError(f"{where}: {node.op} without {missing[0]}: write {missing[0]}=... for {name!r}.")
    values = tuple(said[key] for key in named)
    kinds: dict[str, type | tuple[type, ...]] = {
        "int": int,
        "bool": bool,
        "float": (int, float),
        "shape": int,
        "axes": int,
        "permutation": int,
        "enum": (bool, int, float, str),
    }
    value: AttrValue = values
    if isinstance(keys, str):
        value = values[0]
        many = domain.type in ("shape", "axes", "permutation") or domain.length is not None
        if isinstance(value, tuple) is not many:
            wanted = "a list" if many else "one value"
            raise GraphError(f"{where}: {keys}: got {format_loosely(value)}: {name!r} is {wanted}.")
        values = value if isinstance(value, tuple) else values
    for item in values:
        if not isinstance(item, kinds[domain.type]) or (isinstance(item, bool) and domain.type not in ("bool", "enum")):
            got = f"{'/'.join(named)}: got {format_loosely(item)!r}"
            raise GraphError(f"{where}: {got}: {name!r} is of type {domain.type}.")
    return _choice(where, keys, value, domain) if isinstance(keys, str) and isinstance(value, str) else value


def _choice(where: str, key: str, value: str, domain: Domain) -> str:
    """Return the choice that a layer spells in its own way."""
    for choice in domain.choices or []:
        if isinstance(choice, str) and choice.casefold() == value.casefold():
            return choice
    raise GraphError(f"{where}: {key}: got {value!r}: must be one of {', '.join(map(str, domain.choices or []))}.")


def _otherwise_derived(
    ours: Node, layer: Node, form: CompassFormat, variables: Mapping[str, object], rank: int
) -> dict[str, AttrValue]:
    """Return axes that the layer counts from the end; GraphError for what contradicts its shapes."""
    found = {}
    for key, expression in form.derived.items():
        value = _evaluate(expression, variables)
        if key in layer.attrs and layer.attrs[key] != value:
            if key == AXIS and from_front(layer.attrs[key], rank) == value:
                found[key] = layer.attrs[key]
                continue
            said = format_loosely(layer.attrs[key])
            raise GraphError(f"layer {ours.name!r}: {key}={said}, but its shapes give {value}: write {key}={value}.")
    return found


def _evaluate(expression: object, variables: Mapping[str, object]) -> AttrValue:
    assert isinstance(expression, Expression)
    return cast("AttrValue", expression(variables))


def _variables(graph: Graph, node: Node, spec: Spec) -> dict[str, object]:
    """Return attributes and named sizes; GraphError where ranks or two sizes of one name differ."""
    found: dict[str, object] = dict(node.attrs)
    operands: list[tuple[str, Input | Output, str | None]] = []
    operands += [(name, item, tensor) for (name, item), tensor in zip(spec.inputs.items(), node.inputs, strict=True)]
    operands += [(name, item, tensor) for (name, item), tensor in zip(spec.outputs.items(), node.outputs, strict=True)]
    for name, item, tensor in operands:
        if tensor is None or item.axes is None:
            continue
        shape = graph.tensor(tensor).shape
        if item.spatial and node.order == "channels_last" and len(shape) > 2:
            shape = (shape[0], shape[-1], *shape[1:-1])
        elif name in node.transposed:
            shape = (*shape[:-2], shape[-1], shape[-2])
        if not isinstance(item.axes, list):
            pairs: list[tuple[object, object]] = [(item.axes, shape)]
        elif (places := named_axes(item.axes, len(shape))) is None:
            axes = ", ".join(axis.text for axis in item.axes)
            raise GraphError(f"layer {node.name!r}: {name!r} has rank {len(shape)}: {spec.op} takes [{axes}].")
        else:
            pairs = [(axis, shape[place]) for place, axis in places.items()]
        for axis, size in pairs:
            if isinstance(axis, Expression) and axis.names == {axis.text} and found.setdefault(axis.text, size) != size:
                raise GraphError(f"layer {node.name!r}: {axis.text} is {found[axis.text]} and in {name!r} {size}.")
    return found


def _to_theirs(graph: Graph, node: Node, spec: Spec, tensors: dict[str, Tensor]) -> Node:
    form, where = spec.formats.compass, f"node {node.name!r}"
    if form is None:
        raise UnsupportedError(f"{where}: {spec.op} has no Compass layer: add formats.compass to its spec.")
    if node.order == "channels_first" and any(item.spatial for item in spec.inputs.values()):
        raise UnsupportedError(f"{where}: Compass layers are channels_last: transpose its tensors and set its order.")
    bottoms: list[str] = []
    constants: dict[str, Tensor] = {}
    bound = _variables(graph, node, spec)
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
                order = _checked_order(where, spec, name, graph.tensor(tensor))
                back = [order.index(axis) for axis in range(len(order))]
                label = _free(f"{node.name}:{form.inputs[name]}", tensors, tensor)
                tensors[label] = constants[form.inputs[name]] = _arranged(graph.tensor(tensor), label, back)
        else:
            key = form.inputs[name]
            raise UnsupportedError(f"{where}: input {name!r} is computed: Compass stores {key!r} as a constant.")
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
        (attrs[key],) = cast("tuple[AttrValue]", attrs[key])
    extra = {CONSTANTS: tuple(constants)} | extra
    inputs = (*bottoms, *(tensor.name for tensor in constants.values()))
    return replace(
        node, op=form.type, inputs=inputs, attrs=attrs, order="channels_last", activation="none", extra=extra,
        transposed=(),
    )  # fmt: skip


def _free(label: str, tensors: Mapping[str, Tensor], own: str) -> str:
    """Return *label*, lengthened until no tensor but *own* is called so."""
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
    node: Node, spec: Spec, form: CompassFormat, variables: Mapping[str, object], rank: int
) -> dict[str, AttrValue]:
    """Return derived, mapped and fixed parameters; what the layer left out stays out while it says nothing new."""
    written = cast("tuple[str, ...] | None", node.extra.get(PARAMS))
    found: dict[str, AttrValue] = {}
    for key, expression in form.derived.items():
        found[key] = _evaluate(expression, variables)
    defaults = _defaults(spec)
    for name, value in node.attrs.items():
        if name not in {*form.attrs, *form.trailing_axes} and value != defaults.get(name, value):
            raise UnsupportedError(
                f"node {node.name!r}: {name}={value!r}: a Compass {form.type} has {defaults[name]!r}."
            )
    consumed = set(form.consumed)
    quantized = node.extra.get("unquantifiable") is False
    for name in (name for name, _ in _mapped(spec, form) if not (quantized and name in consumed)):
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
        found[form.activation] = parse_value(_fused_text(node.activation, form))
        implied |= {form.activation} if node.activation == "none" else set()
    elif node.activation != "none":
        raise UnsupportedError(f"node {node.name!r}: a Compass {form.type} fuses no {node.activation}.")
    implied |= {key for key, text in form.absent.items() if found.get(key) == parse_value(text)}
    left_out = set() if written is None else implied - set(written)
    return {key: value for key, value in found.items() if key not in left_out}


def _spelled(node: Node, key: OneOrMoreKeys, value: AttrValue) -> AttrValue:
    """Return one of several words as the layer spells it, in capitals where there was no layer; numbers as they are."""
    if not isinstance(value, str) or not isinstance(key, str):
        return value
    said = cast("Mapping[str, str]", node.extra.get(SPELLED, {})).get(key, "")
    return said if said.casefold() == value.casefold() else value.upper()


def _trailing(
    node: Node, form: CompassFormat, rank: int, defaults: Mapping[str, AttrValue], written: tuple[str, ...] | None
) -> dict[str, AttrValue]:
    """Return the lists of trailing axes, but those that the layer left out and that are as it means them."""
    found: dict[str, AttrValue] = {}
    for name, key in form.trailing_axes.items():
        value = node.attrs[name]
        if isinstance(value, int) and not (written is not None and key not in written and value == defaults.get(name)):
            found[key] = trailing(value, rank)
    return found


def _requantize(node: Node, key: str, tensor: Tensor, attrs: dict[str, AttrValue], rest: dict[str, Tensor]) -> None:
    """Set `<key>_scale` and `<key>_zp` to the tensor's parameters, where those of the file say something else."""
    params = tensor.qparams
    if params is None:
        return
    names = (f"{key}_scale", f"{key}_zp")
    scale, zero = ((rest[name].data if name in rest else attrs.get(name)) for name in names)
    if scale is not None:
        said = constant_params(tensor.dtype, tensor.shape, scale, 0 if zero is None else zero)
        if difference("", said, params) is None:
            return
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
