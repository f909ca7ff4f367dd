"""Converts Compass layers to operators by the specs' `formats.compass`; `compass_foreign` converts back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TypeAlias, cast

from quantizer.core.errors import GraphError
from quantizer.core.layer_format import LayerFormat
from quantizer.core.spec import Domain, Spec
from quantizer.ir.formats.compass_axes import checked_order, first_of_trailing, from_front, permuted
from quantizer.ir.formats.compass_graph import CONSTANTS
from quantizer.ir.formats.compass_mapping import (
    FORMAT,
    SLOPES,
    constant_keys,
    defaults_of,
    evaluate,
    fused_attrs,
    fused_text,
    mapped_attrs,
    named_sizes,
)
from quantizer.ir.formats.compass_text import format_loosely, parse_value
from quantizer.ir.formats.compass_types import as_named
from quantizer.ir.graph import AttrValue, Graph, Node, Tensor

SOURCES = "compass.sources"
"""Key of a native Graph.extra: (position, layer, its constant or None) of each Input or Constant layer that was
removed."""
Source: TypeAlias = "tuple[int, Node, Tensor | None]"
SINGLE = "compass.single"
"""Key of a native Node.extra: those keys of the layer that are lists of axes but hold a single number."""
PARAMS = "compass.params"
"""Key of a native Node.extra: the keys of its layer's parameters, in order."""
SPELLED = "compass.spelled"
"""Key of a native Node.extra: key -> the word in its layer, because Compass ignores the case of letters."""
AXIS = "axis"
"""The key of an axis, or of several, that may be counted from the end."""
CONSTANT_ORDER = "compass.constant_order"
"""Key of a native Node.extra: the keys of its layer's constants, in order."""


def native(graph: Graph, specs: Mapping[str, Spec]) -> Graph:
    """Replace each layer that a spec covers by its operator. Other layers stay unchanged.

    Input layers that make the graph's inputs are removed; Constant layers become constants. A layer's other parameters
    (scale_value, ...) stay in `extra` under Compass's names, and so do its other constants (scale, lut, weights_scale,
    ...), as `Tensor`. GraphError if a layer lacks what its operator needs, or contradicts its shapes.
    """
    known: dict[str, list[tuple[Spec, LayerFormat]]] = {}
    for spec in specs.values():
        if FORMAT in spec.formats:
            known.setdefault(spec.formats[FORMAT].type, []).append((spec, spec.formats[FORMAT]))
    nodes: list[Node] = []
    sources: list[Source] = []
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
        layer = as_named(node)
        found = _match(layer, known.get(layer.op, [])) if CONSTANTS in node.extra else None
        nodes.append(node if found is None else _to_ours(graph, layer, *found, arranged))
    read = {name for node in nodes for name in (*node.inputs, *node.outputs)}
    # tensors that only removed or converted layers read
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


def _folds(graph: Graph, node: Node) -> Tensor | None:
    """Return the constant of a Constant layer whose only content is its values."""
    if node.op != "Constant" or node.extra.get(CONSTANTS) != ("weights",) or len(node.inputs) != 1:
        return None
    source, top = graph.tensor(str(node.inputs[0])), [graph.tensor(name) for name in node.outputs]
    return source if len(top) == 1 and (top[0].shape, top[0].dtype) == (source.shape, source.dtype) else None


def _match(node: Node, candidates: list[tuple[Spec, LayerFormat]]) -> tuple[Spec, LayerFormat] | None:
    """Return the spec whose fixed keys match the layer; if several match, the one with the most fixed keys.

    A fixed key whose value is NONE may be missing in the layer.
    """
    fits = []
    for spec, form in candidates:
        said = {
            key: format_loosely(node.attrs[key]) if key in node.attrs else form.absent.get(key, "NONE")
            for key in form.fixed
        }
        if form.activation is not None and _fused(node, form) not in ("none", *spec.fuses, *form.fuses):
            continue
        # Compass ignores the case of letters in words
        if all(said[key].casefold() == wanted.casefold() for key, wanted in form.fixed.items()):
            fits.append((spec, form))
    # the most specific spec first
    fits.sort(key=lambda fit: -len(fit[1].fixed))
    if len(fits) > 1 and len(fits[0][1].fixed) == len(fits[1][1].fixed):
        names = " and ".join(spec.op for spec, _ in fits[:2])
        rule = "their specs must differ in formats.compass.fixed"
        raise GraphError(f"layer {node.name!r}: {node.op} is both {names}: {rule}.")
    return fits[0] if fits else None


def _fused(node: Node, form: LayerFormat) -> str:
    """Return the fused activation of a layer; `none` if it names none."""
    said = format_loosely(node.attrs.get(form.activation or "", form.unfused)).casefold()
    return "none" if said == form.unfused.casefold() else said


def _operands(node: Node, spec: Spec, form: LayerFormat) -> tuple[list[str | None], dict[str, str | None]]:
    """Return the layer's tensors in the order of the spec's inputs, and the constants that no input takes."""
    keys = constant_keys(node)
    count = len(node.inputs) - len(keys)
    constants = dict(zip(keys, node.inputs[count:], strict=True))
    bottoms = list(node.inputs[:count])
    inputs: list[str | None] = []
    for name, item in spec.inputs.items():
        key = form.inputs.get(name)
        found = constants.pop(key, None) if key else bottoms.pop(0) if bottoms else None
        if found is None and not item.optional:
            lacks = f"constant {form.inputs[name]!r}" if name in form.inputs else f"input {name!r}"
            raise GraphError(f"layer {node.name!r}: {node.op} without {lacks}: {spec.op} needs it.")
        inputs.append(found)
    # a spec with pieces, such as split, has as many outputs as its attributes say
    cut = next(iter(spec.outputs.values())).pieces is not None
    if bottoms or (len(node.outputs) != len(spec.outputs) and not cut):
        sizes = f"{count} inputs and {len(node.outputs)} outputs"
        takes = f"{spec.op} takes fewer, or makes {len(spec.outputs)}"
        raise GraphError(f"layer {node.name!r}: {node.op} has {sizes}: {takes}.")
    return inputs, constants


def _to_ours(graph: Graph, node: Node, spec: Spec, form: LayerFormat, arranged: dict[str, Tensor]) -> Node:
    """Return the layer as one of our nodes; constants that the layer stores in another axis order go to *arranged*."""
    where = f"layer {node.name!r}"
    inputs, constants = _operands(node, spec, form)
    node, single = _listed(node, spec, form)
    if form.pairs:
        node = replace(node, attrs={**node.attrs, **_unpaired(where, node, form)})
    rank = len(graph.tensor(str(inputs[0])).shape)
    attrs = _our_attrs(node, spec, form, rank)
    fused = "none" if form.activation is None else _fused(node, form)
    rest_constants = {key: graph.tensor(str(name)) for key, name in constants.items()}
    extra = {key: value for key, value in node.extra.items() if key != CONSTANTS}
    extra |= _unmapped(node, form, fused) | rest_constants
    extra |= {PARAMS: tuple(node.attrs), CONSTANT_ORDER: constant_keys(node)} | ({SINGLE: single} if single else {})
    ours = replace(
        node,
        op=spec.op,
        inputs=tuple(inputs),
        attrs=attrs,
        order="channels_last",
        activation=fused,
        extra=extra,
        activation_attrs=fused_attrs(where, node, fused, rest_constants.get(SLOPES), rank),
        transposed=_transposed(graph, node, form, dict(zip(spec.inputs, inputs, strict=True))),
    )
    for name, tensor in zip(spec.inputs, inputs, strict=True):
        if name in form.layouts and tensor is not None:
            given = graph.tensor(tensor)
            arranged[tensor] = permuted(given, tensor, checked_order(where, spec, name, given))
    if form.sized:
        bound = named_sizes(graph, ours, spec)
        own = {name: tuple(cast("int", bound[axis]) for axis in axes) for name, axes in form.sized.items()}
        # attributes in the spec's order, whether the layer names them or its shapes give them
        ours = replace(ours, attrs={name: {**attrs, **own}[name] for name in spec.attrs if name in {**attrs, **own}})
    if form.derived:
        bound = named_sizes(graph.with_tensors(*arranged.values()), ours, spec)
        ours = replace(ours, extra={**extra, **_otherwise_derived(ours, node, form, bound, rank)})
    return ours


def _our_attrs(node: Node, spec: Spec, form: LayerFormat, rank: int) -> dict[str, AttrValue]:
    """Return the operator's attributes: as the layer says them, or their defaults."""
    where = f"layer {node.name!r}"
    attrs = {name: value for name, value in defaults_of(spec).items() if name not in form.attrs}
    attrs |= {name: _our_attr(where, node, name, form, domain) for name, domain in mapped_attrs(spec, form)}
    for name, key in form.trailing_axes.items():
        if key in node.attrs:
            attrs[name] = first_of_trailing(where, key, node.attrs[key], rank)
    return attrs


def _unmapped(node: Node, form: LayerFormat, fused: str) -> dict[str, object]:
    """Return the attributes of the layer that no attribute of ours holds, and how it writes the others in words."""
    theirs = {key for mapped in form.attrs.values() for key in ([mapped] if isinstance(mapped, str) else mapped)}
    theirs |= {*form.trailing_axes.values(), *form.transposed.values()}
    implied = {key for key, text in form.fixed.items() if format_loosely(node.attrs.get(key, "")) == text}
    if form.activation is not None and format_loosely(node.attrs.get(form.activation, "")) == fused_text(fused, form):
        implied.add(form.activation)
    spelled = {key: value for key, value in node.attrs.items() if key in theirs and isinstance(value, str)}
    rest = {key: value for key, value in node.attrs.items() if key not in theirs | form.derived.keys() | implied}
    said: dict[str, object] = {SPELLED: spelled} if spelled else {}
    return {**said, **rest}


def _transposed(graph: Graph, node: Node, form: LayerFormat, operands: Mapping[str, str | None]) -> tuple[str, ...]:
    """Return the inputs whose last two axes are swapped according to the layer."""
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


def _listed(node: Node, spec: Spec, form: LayerFormat) -> tuple[Node, tuple[str, ...]]:
    """Return the layer with lists of one element instead of single axes, and the keys of these lists."""
    keys = [key for name, key in form.attrs.items() if isinstance(key, str) and spec.attrs[name].type == "axes"]
    single = tuple(key for key in keys if type(node.attrs.get(key)) is int)
    return replace(node, attrs={**node.attrs, **{key: (node.attrs[key],) for key in single}}), single


def _unpaired(where: str, node: Node, form: LayerFormat) -> dict[str, AttrValue]:
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


def _our_attr(where: str, node: Node, name: str, form: LayerFormat, domain: Domain) -> AttrValue:
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
        # in Python a bool is an int, and the file's `true` is no number
        if not isinstance(item, kinds[domain.type]) or (isinstance(item, bool) and domain.type not in ("bool", "enum")):
            got = f"{'/'.join(named)}: got {format_loosely(item)!r}"
            raise GraphError(f"{where}: {got}: {name!r} is of type {domain.type}.")
    return _choice(where, keys, value, domain) if isinstance(keys, str) and isinstance(value, str) else value


def _choice(where: str, key: str, value: str, domain: Domain) -> str:
    """Return the spec's choice for a layer's own spelling."""
    for choice in domain.choices or []:
        if isinstance(choice, str) and choice.casefold() == value.casefold():
            return choice
    raise GraphError(f"{where}: {key}: got {value!r}: must be one of {', '.join(map(str, domain.choices or []))}.")


def _otherwise_derived(
    ours: Node, layer: Node, form: LayerFormat, variables: Mapping[str, object], rank: int
) -> dict[str, AttrValue]:
    """Return axes that the layer counts from the end; GraphError if they contradict its shapes."""
    found = {}
    for key, expression in form.derived.items():
        value = evaluate(expression, variables)
        if key in layer.attrs and layer.attrs[key] != value:
            if key == AXIS and from_front(layer.attrs[key], rank) == value:
                found[key] = layer.attrs[key]
                continue
            said = format_loosely(layer.attrs[key])
            raise GraphError(f"layer {ours.name!r}: {key}={said}, but its shapes give {value}: write {key}={value}.")
    return found
