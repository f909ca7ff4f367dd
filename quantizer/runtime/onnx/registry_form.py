"""An ONNX graph as a static graph of the registry's operators, under the spec's names and attributes."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from quantizer.core.dtypes import DTYPES, DType
from quantizer.core.errors import GraphError, UnsupportedError
from quantizer.ir.graph import FREE, ON_CODES, Graph, Node, container
from quantizer.ir.graph import Tensor as Named
from quantizer.ir.verify import verify
from quantizer.numerics.qparams import QParams
from quantizer.numerics.quantize import dequantize, quantize
from quantizer.runtime.onnx import composed, composed_layout
from quantizer.runtime.onnx.kernels import KERNELS, Context, Kernel, Ours, run_ours, special, specs
from quantizer.runtime.onnx.ppq_only import find_ppq_kernel
from quantizer.runtime.onnx.unfolded import LINEAR
from quantizer.runtime.single_nodes import alone

TABLES = (composed, composed_layout)
"""The modules that fill the table of composed operators."""
Origin = tuple[str, ...]
BODIES = ("If", "Loop", "Scan")


def registry_form(graph: Graph, inputs: Mapping[str, Tensor] | None = None) -> Graph:
    """Return *graph* as nodes of the registry's operators, with the shapes that its tensors have on *inputs*.

    The graph is run once, on zeros where no inputs are given; everything that does not depend on the inputs (constants,
    shapes) is computed and kept as constants. Inputs and outputs keep their names and order; every size is fixed.

    Raises UnsupportedError that names every node without a spec for its operator or its form, with the reason;
    GraphError if a size of an input is free and no inputs were given.
    """
    return _filled(_Form(graph), inputs).graph()


class Mixed(NamedTuple):
    """A graph of the registry's operators, with ONNX's own where the registry has none."""

    graph: Graph
    origins: Mapping[str, Origin]
    """Rearranged constant -> the constants of the source that hold its elements."""
    kept: Mapping[str, str]
    """Node that stays an ONNX operator -> the reason."""


def mixed_form(graph: Graph, inputs: Mapping[str, Tensor] | None, params: Mapping[str, QParams]) -> Mixed:
    """Return `registry_form`'s graph; a node without such a form stays as it is and runs by its ONNX kernel.

    params: tensors that are quantized after they are computed. Each stays a separate tensor, even if its node only
    passes its operand on. A constant among them has the values of its codes.

    Raises UnsupportedError that names every node that no kernel runs, or whose kernel refuses it.
    """
    form = _filled(_Form(graph, params, keeps=True), inputs)
    return Mixed(form.graph(), form.origins, form.kept)


def _filled(form: _Form, inputs: Mapping[str, Tensor] | None) -> _Form:
    for name in form.source.inputs:
        form.add_input(name, _fed(form.source, name, inputs or {}))
    for node in form.source.order:
        form.add_node(node)
    return form


def _fed(graph: Graph, name: str, inputs: Mapping[str, Tensor]) -> Tensor:
    tensor = graph.tensor(name)
    if name in inputs:
        given = inputs[name]
        sizes = zip(given.shape, tensor.shape, strict=False)
        if tensor.ranked and (given.dim() != len(tensor.shape) or any(b not in (FREE, a) for a, b in sizes)):
            raise GraphError(f"input {name!r} was fed shape {list(given.shape)}: must be {list(tensor.shape)}.")
        return given
    if not tensor.ranked or FREE in tensor.shape:
        shown = ["?" if size == FREE else size for size in tensor.shape]
        raise GraphError(f"input {name!r} has shape {shown}: give inputs, whose sizes are then kept.")
    return torch.zeros(tensor.shape, dtype=container(tensor.dtype))


@dataclass
class _Form:
    """The graph under construction: values by name, and which of them depend on the inputs."""

    source: Graph
    params: Mapping[str, QParams] = field(default_factory=dict)
    keeps: bool = False
    """Whether a node that the registry cannot express stays an ONNX operator."""
    kept: dict[str, str] = field(default_factory=dict)
    values: dict[str, Tensor] = field(default_factory=dict)
    live: dict[str, str] = field(default_factory=dict)
    """A tensor of the source that depends on the inputs -> the tensor of the result with its values."""
    nodes: list[Node] = field(default_factory=list)
    tensors: dict[str, Named] = field(default_factory=dict)
    refused: list[str] = field(default_factory=list)
    constants: list[tuple[Tensor, str]] = field(default_factory=list)
    origins: dict[str, Origin] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.values = {name: t.data for name, t in self.source.tensors.items() if t.data is not None}
        self.context = Context(self.source, torch.device("cpu"), self.values)

    def add_input(self, name: str, value: Tensor) -> None:
        self.values[name], self.live[name] = value, name
        self.tensors[name] = Named(name, tuple(value.shape), self.source.tensor(name).dtype)

    def add_node(self, node: Node) -> None:
        """Add what *node* computes; if the registry cannot, note why and go on with the results of its kernel."""
        # an earlier node failed, and was noted
        if any(name not in self.values for name in node.reads):
            return
        operands = [None if name is None else self.values[name] for name in node.inputs]
        try:
            if node.op in BODIES:
                raise UnsupportedError("control flow has no static form")
            # shapes are fixed, so that a Shape is a constant even of a live tensor
            if node.op in ("Shape", "Size") or not any(name in self.live for name in node.reads):
                self._keep(node, operands)
            else:
                self._translate(node, operands)
        except Exception as err:  # noqa: BLE001 - torch raises what it does for operands that contradict each other
            if self.keeps:
                self._keep_as_it_is(node, _line(err))
                return
            self.refused.append(f"{node.name!r} ({node.op}): {_line(err)}")
            with contextlib.suppress(Exception):
                self._keep(node, operands)
                # later nodes are examined too, so that one error lists all that is missing
                self.live |= {name: name for name in node.outputs}

    def _keep_as_it_is(self, node: Node, why: str) -> None:
        """Add an ONNX node, with the results of its kernel."""
        given = {name: self.values[name] for name in node.reads}
        try:
            found = alone(self.source, node).forward(given, node.outputs)
        except Exception as err:  # noqa: BLE001 - as above
            self.refused.append(f"{node.name!r} ({node.op}): {_line(err)}")
            return
        for name in node.captures:
            self._name_capture(name)
        inputs = [
            None if name is None else self.live[name] if name in self.live else self._typed_constant(name)
            for name in node.inputs
        ]
        for name, value in zip(node.outputs, found, strict=True):
            self.values[name] = value
            self.live[name] = name
            self.tensors[name] = replace(
                self.source.tensor(name), shape=tuple(value.shape), ranked=True, data=None, qparams=None
            )
        label = self.free(node.name)
        self.kept[label] = why
        self.nodes.append(replace(node, name=label, inputs=tuple(inputs)))

    def _typed_constant(self, name: str) -> str:
        """Return the name of a constant in the number format of the source: 4 bits are held in 8."""
        value, dtype = self.values[name], self.source.tensor(name).dtype
        return self.constant(name, value, dtype if container(dtype) == value.dtype else None)

    def _name_capture(self, name: str) -> None:
        """Make a tensor that a body reads available under its own name."""
        if name not in self.live:
            value = self.values[name]
            self.tensors[name] = replace(
                self.source.tensor(name), shape=tuple(value.shape), data=value, ranked=True, qparams=None
            )
        elif self.live[name] != name:
            self._copy(self.live[name], name)
            self.live[name] = name

    def _keep(self, node: Node, operands: Sequence[Tensor | None]) -> None:
        """Compute a node by its kernel."""
        kernel = _kernel(node)
        if kernel is None or node.op in BODIES:
            raise UnsupportedError("no kernel runs it")
        for name, value in zip(node.outputs, _listed(kernel(node, operands, self.context)), strict=False):
            own = self.params.get(name)
            # a quantized constant has the values of its codes
            self.values[name] = value if own is None else dequantize(quantize(value, own, LINEAR), own).to(value.dtype)

    def _translate(self, node: Node, operands: Sequence[Tensor | None]) -> None:
        tape = _Tape(self, node, operands)
        found = _listed(_ours(node, operands, self.context, tape))
        if found is None:
            raise UnsupportedError("has no spec" if _kernel(node) is None else "this form of it has no spec")
        tape.check()
        for name, value in zip(node.outputs, found, strict=False):
            self.values[name], self.live[name] = value, tape.named(value, name)
        self.nodes += tape.renamed()
        self.tensors |= tape.made
        for name in node.outputs:
            if name in self.params and self.live.get(name, name) != name:
                self._copy(self.live[name], name)
                self.live[name] = name
                # tensors are told apart by identity: the copy must be another object than its source
                self.values[name] = self.values[name].clone()

    def constant(self, label: str, value: Tensor, dtype: DType | None = None) -> str:
        """Return the name of a constant of the result; one that is there already is shared."""
        dtype = dtype or dtype_of(value)
        for source, known in self.constants:
            # by identity: comparing values of large constants would be slow
            alike = source is value and self.tensors[known].dtype == dtype
            if alike and (known == label or not {known, label} & self.params.keys()):
                return known
        name, count = label, 1
        while name in self.tensors or (name in self.source.tensors and name != label):
            count += 1
            name = f"{label}_{count}"
        self.tensors[name] = Named(name, tuple(value.shape), dtype, value.detach().contiguous())
        self.constants.append((value, name))
        return name

    def graph(self) -> Graph:
        """Return the verified graph; one UnsupportedError names all nodes that could not be added."""
        if self.refused:
            raise UnsupportedError(f"graph {self.source.name!r}: {'; '.join(self.refused)}.")
        for name in self.source.outputs:
            self._name_output(name)
        used = {name for node in self.nodes for name in (*node.reads, *node.outputs)}
        kept = used | {*self.source.inputs, *self.source.outputs}
        made = Graph(
            self.source.name,
            tuple(self.nodes),
            {name: t for name, t in self.tensors.items() if name in kept},
            self.source.inputs,
            self.source.outputs,
            subgraphs=self.source.subgraphs if self.kept else {},
            dynamic=bool(self.kept),
        )
        verify(made)
        return made

    def _name_output(self, name: str) -> None:
        """Add an output that is the same as another tensor under its own name: as a constant, or by a copy."""
        if name not in self.live:
            value = self.values[name]
            self.tensors[name] = Named(name, tuple(value.shape), dtype_of(value), value)
        elif self.live[name] != name:
            self._copy(self.live[name], name)

    def _copy(self, source: str, name: str) -> None:
        """Add a tensor *name* that has the values of *source*."""
        tensor = self.tensors[source]
        self.tensors[name] = Named(name, tensor.shape, tensor.dtype)
        self.nodes.append(Node(self.free(name), "reshape", (source,), (name,), {"shape": tensor.shape}))

    def free(self, label: str) -> str:
        """Return a name that no node has."""
        taken, name, count = {node.name for node in self.nodes}, label, 1
        while name in taken:
            count += 1
            name = f"{label}_{count}"
        return name


class _Tape:
    """The operators of the registry that one node becomes."""

    def __init__(self, form: _Form, node: Node, operands: Sequence[Tensor | None]) -> None:
        self.form, self.node = form, node
        self.names: list[tuple[Tensor, str]] = []
        self.made: dict[str, Named] = {}
        self.nodes: list[Node] = []
        self.read: set[str] = set()
        self.renames: dict[str, str] = {}
        self.operands = [(n, v) for n, v in zip(node.inputs, operands, strict=True) if n is not None and v is not None]

    def computed(self, value: Tensor) -> bool:
        """Return whether an operand depends on the graph's inputs."""
        return any(other is value and name in self.form.live for name, other in self.operands)

    def __call__(self, ours: Ours) -> Tensor:
        """Run one operator, and add its node to the graph."""
        spec = specs()[ours.op]
        result = run_ours(ours)
        inputs = [self._operand(key, ours.operands[key]) if key in ours.operands else None for key in spec.inputs]
        name = f"{self.node.name}#{len(self.nodes)}"
        attrs = {key: tuple(value) if isinstance(value, list) else value for key, value in ours.attrs.items()}
        # the first operator keeps the node's name, which messages mention
        label = self.node.name if not self.nodes else name
        self.nodes.append(Node(label, ours.op, tuple(inputs), (name,), attrs))
        self.made[name] = Named(name, tuple(result.shape), dtype_of(result))
        self.names.append((result, name))
        return result

    def _operand(self, key: str, value: Tensor) -> str:
        """Return the name of an operator's input: an operand of the node, an earlier result, or a constant."""
        for other, name in self.names:
            if other is value:
                return name
        for name, other in self.operands:
            if other is value:
                self.read.update(same for same, held in self.operands if held is value)
                return self.form.live[name] if name in self.form.live else self.form.constant(name, value)
        # a view of a live operand, such as its transpose: values would be frozen as a constant
        if any(_same_memory(value, other) for name, other in self.operands if name in self.form.live):
            raise UnsupportedError(f"its operand {key!r} is computed and would have to be moved first")
        made = self.form.constant(f"{self.node.name}#{key}", value)
        self.form.origins[made] = tuple(
            name for name, other in self.operands if name not in self.form.live and _rearranges(value, other)
        )
        return made

    def check(self) -> None:
        """Raise UnsupportedError if a computed operand was read as a number, or went into a constant."""
        for name, _ in self.operands:
            if name in self.form.live and name not in self.read and self.nodes:
                raise UnsupportedError(f"{name!r} is computed, must be a constant")

    def named(self, value: Tensor, name: str) -> str:
        """Return the tensor of the result that is the node's output *name*."""
        for other, made in self.names:
            if other is value:
                if made in self.renames:
                    return self.renames[made]
                self.renames[made] = name
                return name
        for operand, other in self.operands:
            if other is value and operand in self.form.live:
                return self.form.live[operand]
        raise UnsupportedError("its result was not made by an operator")

    def renamed(self) -> list[Node]:
        """Return the nodes with the results that are the node's outputs under the outputs' names."""
        to = self.renames
        self.made = {to.get(name, name): Named(to.get(name, name), t.shape, t.dtype) for name, t in self.made.items()}
        return [
            Node(
                self.form.free(n.name),
                n.op,
                tuple(to.get(i, i) if i is not None else None for i in n.inputs),
                tuple(to.get(o, o) for o in n.outputs),
                n.attrs,
                extra={key: value for key, value in self.node.extra.items() if key == ON_CODES},
            )
            for n in self.nodes
        ]


def _kernel(node: Node) -> Kernel | None:
    """Return the kernel of a node: of an ONNX operator, or of one that only PPQ has."""
    return KERNELS.get(node.op) or find_ppq_kernel(node.op)


def _ours(node: Node, operands: Sequence[Tensor | None], ctx: Context, run: _Tape) -> Any:
    """Return the results of a node, computed only by *run*; None if it is not an operator of the registry."""
    several = composed.COMPOSED.get(node.op)
    found = None if several is None else several(run, *operands, **node.attrs, **special(several, node, ctx))
    kernel = _kernel(node)
    if found is not None or kernel is None or kernel.mapped is None:
        return found
    ours = kernel.mapped(*operands, **node.attrs, **special(kernel.mapped, node, ctx))
    return None if ours is None else run(ours)


def _line(err: Exception) -> str:
    """Return the first line of an error's text, or what kind it is."""
    lines = (text.strip() for text in str(err).splitlines())
    return next((text for text in lines if text), type(err).__name__).rstrip(".")


def _listed(outcome: Any) -> Any:
    return outcome if outcome is None or isinstance(outcome, list | tuple) else [outcome]


def _same_memory(a: Tensor, b: Tensor) -> bool:
    return a.numel() > 0 and a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr()


def _rearranges(value: Tensor, source: Tensor) -> bool:
    """Return whether *value* holds the elements of *source* in some order: a view of all of them, or a copy."""
    if value.numel() != source.numel() or value.dtype != source.dtype:
        return False
    # sorted values are equal if and only if one is a permutation of the other
    return _same_memory(value, source) or torch.equal(value.reshape(-1).sort().values, source.reshape(-1).sort().values)


def dtype_of(values: Tensor) -> DType:
    """Return the number format of a tensor that torch holds."""
    name = str(values.dtype).removeprefix("torch.")
    if name not in DTYPES:
        raise UnsupportedError(f"a tensor of {name}: the registry has no such format")
    return DTYPES[name]
