"""The graph that operator functions add to: explicit, or one per thread or task. A failed call leaves it unchanged."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import Self

from quantizer.core.dtypes import DTYPES
from quantizer.core.errors import QuantizerError
from quantizer.ir.formats.top_ops import ABSENT, TOP_OPS
from quantizer.ir.graph import AttrValue, Node
from quantizer.ir.graph import Graph as IrGraph
from quantizer.ir.graph import Tensor as Stored
from quantizer.ir.verify import verify
from quantizer.lang.errors import LangError
from quantizer.lang.lowering.lower import infer
from quantizer.lang.propagation import propagated
from quantizer.lang.tensor import Numbers, Tensor, quantization_of

CURRENT: ContextVar[tuple[Graph, ...]] = ContextVar("quantizer_lang_graphs", default=())
"""The graphs of this thread or task: the default one, then those of the `with` blocks around, the innermost last."""


@dataclass(frozen=True)
class Result:
    """A requested output: its type, its parameters, and the suffix of its name; it is left out if not `used`."""

    dtype: str
    suffix: str = ""
    scale: Numbers = None
    zero_point: Numbers = None
    axis: int = 1
    """The axis along which lists of parameters lie."""
    used: bool = True
    name: str | None = None
    """The whole name, instead of the call's name with the suffix."""


class Graph:
    """Operators in the order of their calls, over tensors with unique names. Use it as a context, or `init`."""

    def __init__(self, name: str = "main") -> None:
        """Start an empty graph; *name* is the module's name in written files."""
        if not isinstance(name, str) or not name:
            raise LangError(f"Graph: name={name!r}: must be a string.")
        self.name = name
        self.nodes: list[Node] = []
        self.tensors: dict[str, Tensor] = {}
        self._made: set[str] = set()
        self._counts: Counter[str] = Counter()
        self._calls: list[str] = []
        self._undo: list[Callable[[], object]] = []
        self._lock = threading.RLock()

    def __enter__(self) -> Self:
        CURRENT.set((*CURRENT.get(), self))
        return self

    def __exit__(self, *_: object) -> None:
        CURRENT.set(CURRENT.get()[:-1])

    # -- used by operator functions ----------------------------------------------------------------------------------

    @contextmanager
    def calling(self, function: str) -> Iterator[None]:
        """Run one call of an operator function; if it fails, the graph and its tensors stay unchanged."""
        with self._lock:
            self._calls.append(function)
            start = len(self._undo)
            try:
                yield
            except QuantizerError as err:
                while len(self._undo) > start:
                    self._undo.pop()()
                if isinstance(err, LangError) and err.function is not None:
                    raise
                raise LangError(f"{function}: {err}", function) from None
            # an interrupt must not leave half a call behind either
            except BaseException:
                while len(self._undo) > start:
                    self._undo.pop()()
                raise
            finally:
                self._calls.pop()
                # an operator function may call others; only when the outermost one ends can nothing be undone any more
                if not self._calls:
                    self._undo.clear()

    def add(
        self,
        op: str,
        inputs: Sequence[Tensor | None],
        attrs: Mapping[str, AttrValue],
        *results: Result,
        out_name: str | None = None,
    ) -> list[Tensor]:
        """Add one Top operator and return its used outputs, with inferred shapes."""
        taken = [None if tensor is None else self.take(tensor) for tensor in inputs]
        base = self._base_name(out_name)
        outputs = [self._output(base, result) for result in results]
        for tensor in outputs:
            if tensor is not None and tensor.name in self.tensors:
                raise LangError(f"out_name: a tensor {tensor.name!r} is in the graph: must be a new name.")
        first = next(tensor.name for tensor in outputs if tensor is not None)
        assert first is not None
        # an output that is not used is named by its place
        names = tuple(
            f"{first}{ABSENT}{i}" if tensor is None or tensor.name is None else tensor.name
            for i, tensor in enumerate(outputs)
        )
        # Top names an operation after the first of its outputs that is used
        node = Node(first, op, tuple(None if t is None else t.name for t in taken), names, dict(attrs))
        _known_attributes(node)
        # before the results are filed: an impossible shape is refused by the operator's own kernel
        shapes = infer(node, self._stored(taken), self._wanted(outputs, names))
        made = []
        for tensor, shape in zip(outputs, shapes, strict=True):
            if tensor is not None:
                tensor.shape = shape
                _one_for_each_slice(tensor)
                self._file(tensor)
                assert tensor.name is not None
                self._made.add(tensor.name)
                self._undo.append(partial(self._made.discard, tensor.name))
                made.append(tensor)
        self.nodes.append(node)
        self._undo.append(self.nodes.pop)
        return made

    def take(self, tensor: Tensor) -> Tensor:
        """Take a tensor into the graph; a tensor without a name gets one."""
        if tensor.owner is self:
            return tensor
        if tensor.owner is not None:
            raise LangError(f"tensor {tensor.label} is of another graph: must be of graph {self.name!r}.")
        if tensor.name is None:
            tensor.name = self._fresh("weight" if tensor.buffer is not None else "input")
            self._undo.append(lambda: setattr(tensor, "name", None))
        elif tensor.name in self.tensors:
            raise LangError(f"a tensor {tensor.name!r} is in the graph: every tensor must have a name of its own.")
        self._file(tensor)
        return tensor

    def quantize(
        self, tensor: Tensor, scale: Numbers = None, zero_point: Numbers = None, axis: int | None = None
    ) -> None:
        """Set parameters of a tensor; they are reset if the call fails."""
        before, old_axis = tensor.parameters, tensor.axis

        def restore() -> None:
            tensor.parameters, tensor.axis = before, old_axis

        self._undo.append(restore)
        if axis is not None:
            tensor.axis = axis
        tensor.quantization(scale, zero_point)
        _one_for_each_slice(tensor)

    def reshape(self, tensor: Tensor, shape: tuple[int, ...]) -> None:
        """Give a coefficient another shape with the same number of elements; undone if the call fails."""
        before, held = tensor.shape, tensor.buffer
        assert held is not None

        def restore() -> None:
            tensor.shape, tensor.buffer = before, held

        self._undo.append(restore)
        tensor.shape, tensor.buffer = shape, held.reshape(shape)

    def _output(self, base: str, result: Result) -> Tensor | None:
        if not result.used:
            return None
        tensor = Tensor((1,), result.name or f"{base}{result.suffix}", dtype=result.dtype)
        tensor.parameters = quantization_of(result.dtype, result.scale, result.zero_point)
        tensor.axis = result.axis
        return tensor

    def fresh_name(self) -> str:
        """Return a new name for the results of the current call."""
        return self._fresh(self._calls[0] if self._calls else "tensor")

    def _base_name(self, out_name: str | None) -> str:
        if out_name is None:
            return self.fresh_name()
        if not isinstance(out_name, str) or not out_name or "#" in out_name:
            raise LangError(f"out_name={out_name!r}: must be a string without '#'.")
        return out_name

    def _fresh(self, kind: str) -> str:
        while True:
            name = f"{kind}_{self._counts[kind]}"
            self._counts[kind] += 1
            # a call that failed gives its numbers back, so that names do not depend on failures
            self._undo.append(lambda: self._counts.subtract([kind]))
            if name not in self.tensors:
                return name

    def _file(self, tensor: Tensor) -> None:
        assert tensor.name is not None
        name = tensor.name
        self.tensors[name] = tensor
        tensor.owner = self

        def restore() -> None:
            del self.tensors[name]
            tensor.owner = None

        self._undo.append(restore)

    @staticmethod
    def _stored(tensors: Iterable[Tensor | None]) -> list[Stored | None]:
        return [None if tensor is None else tensor.stored() for tensor in tensors]

    @staticmethod
    def _wanted(tensors: Sequence[Tensor | None], names: Sequence[str]) -> list[Stored]:
        unused = DTYPES["float32"]
        return [
            Stored(name, (), unused) if tensor is None else tensor.stored()
            for tensor, name in zip(tensors, names, strict=True)
        ]

    # -- results of a finished graph -----------------------------------------------------------------------------------

    def to_ir(self, inputs: Sequence[Tensor] | None = None, outputs: Sequence[Tensor] | None = None) -> IrGraph:
        """Return the graph of Top operators, its quantization parameters propagated.

        inputs: by default the tensors that no operator makes, in order of use. outputs: by default the tensors that no
        operator reads. Raises LangError for a tensor that is not of the graph, and for parameters that contradict each
        other.
        """
        with self._lock:
            read = {name for node in self.nodes for name in node.reads}
            own = [t for name, t in self.tensors.items() if name not in self._made and t.buffer is None]
            # a tensor that no operator makes and that has no data must be fed
            fed = own if inputs is None else self._listed("inputs", inputs)
            given = (
                [t for name, t in self.tensors.items() if name in self._made and name not in read]
                if outputs is None
                else self._listed("outputs", outputs)
            )
            if missing := [t.label for t in own if t not in fed]:
                raise LangError(f"graph {self.name!r}: inputs must name {', '.join(missing)} too.")
            if not given:
                raise LangError(f"graph {self.name!r}: has no operators: must have at least one output.")
            known = propagated(self.nodes, self.tensors)
            stored = {name: tensor.stored(known.get(name)) for name, tensor in self.tensors.items()}
            return self._graph(stored, [str(t.name) for t in fed], [str(t.name) for t in given])

    def _graph(self, stored: dict[str, Stored], inputs: list[str], outputs: list[str]) -> IrGraph:
        for node in self.nodes:
            for name in node.outputs:
                # an output that is not used has no tensor, but the node names it
                stored.setdefault(name, Stored(name, (), DTYPES["float32"]))
        used = {*inputs, *outputs, *(name for node in self.nodes for name in (*node.reads, *node.outputs))}
        tensors = {name: tensor for name, tensor in stored.items() if name in used}
        free = any(min(tensor.shape, default=1) < 1 for tensor in tensors.values())
        made = IrGraph(self.name, tuple(self.nodes), tensors, tuple(inputs), tuple(outputs), dynamic=free)
        verify(made)
        return made

    def _listed(self, argument: str, tensors: Sequence[Tensor]) -> list[Tensor]:
        for tensor in tensors:
            if not isinstance(tensor, Tensor) or tensor.owner is not self:
                shown = tensor.label if isinstance(tensor, Tensor) else repr(tensor)
                raise LangError(f"{argument}: {shown} is not a tensor of graph {self.name!r}.")
            if argument == "inputs" and (tensor.name in self._made or tensor.buffer is not None):
                raise LangError(f"inputs: {tensor.label} is made by an operator or is a coefficient: must be fed.")
        return list(tensors)

    def reset(self) -> None:
        """Forget every operator and tensor."""
        for tensor in self.tensors.values():
            tensor.owner = None
        self.__init__(self.name)  # type: ignore[misc]


def _one_for_each_slice(tensor: Tensor) -> None:
    """Refuse a list of parameters without exactly one entry for each slice of the tensor's axis."""
    count = max(len(v) if isinstance(v, tuple) else 1 for v in (tensor.scale, tensor.zero_point))
    if count > 1 and (tensor.axis >= len(tensor.shape) or count != tensor.shape[tensor.axis]):
        raise LangError(
            f"{count} parameters for tensor {tensor.label} of shape {list(tensor.shape)}: must be one for "
            f"each slice of axis {tensor.axis}, or one."
        )


def _known_attributes(node: Node) -> None:
    known = TOP_OPS[node.op].attributes
    unknown = sorted(node.attrs.keys() - known.keys())
    missing = [name for name, own in known.items() if own.required and name not in node.attrs]
    assert not unknown, (node.op, unknown)
    assert not missing, (node.op, missing)
