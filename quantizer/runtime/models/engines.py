"""Engines for whole networks: float, quantize-dequantize, our integer functions, ONNX's reference, real systems."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch

from quantizer.core.dtypes import DType, integer
from quantizer.core.errors import GraphError, QuantizerError, UnsupportedError
from quantizer.core.rooms import WHOLE_MODELS, Engine, engines
from quantizer.core.wording import suggestion, to_install
from quantizer.ir.formats.onnx_values import to_numpy, to_torch
from quantizer.ir.graph import Graph, Node, Tensor
from quantizer.numerics.pinned import pinned
from quantizer.runtime.dispatch import FP32
from quantizer.runtime.engines.catalogue import chosen, installed_version
from quantizer.runtime.engines.frames import Job
from quantizer.runtime.engines.process import Worker
from quantizer.runtime.integer import integer_graph, with_integers
from quantizer.runtime.integer_executor import IntegerExecutor
from quantizer.runtime.models.parts import ALONE, DEQUANTIZE, QUANTIZE, Part, Parts, unquantized
from quantizer.runtime.torch_executor import TorchExecutor

FLOAT, QDQ, OWN, REFERENCE = "float", "qdq", "builtin", "reference"
OPTIMIZED = "optimized"
"""The variant of a real system with all of its optimizations."""
OURS: Mapping[str, str] = {
    FLOAT: "the model without its quantizations, ours",
    QDQ: "the model with its quantizations in float32, ours",
    OWN: "the model on integers, our functions of --platform",
    REFERENCE: "onnx.reference, ONNX's own evaluator",
}
BYTE = 8
PATIENCE = 600.0
"""The time limit of a whole model, in seconds."""
Values = dict[str, torch.Tensor]


class ModelEngine(ABC):
    """Runs the parts of a graph of ONNX's operators: in sequence as a model, and each alone on given operands."""

    name: str

    @abstractmethod
    def whole(self, parts: Parts, feeds: Values) -> Values:
        """Return the edges of a run of the whole model, as many as the engine shows."""

    @abstractmethod
    def alone(self, parts: Parts, edges: Values) -> Values:
        """Return the results of each part on *edges*. No part reads another part's result."""

    def how(self, part: Part) -> str:  # noqa: ARG002 - of most engines there is nothing to say
        """Return why a part was not computed in the way that the engine's name promises; empty if it was."""
        return ""

    def integers(self, part: Part) -> IntegerExecutor | None:  # noqa: ARG002 - most engines belong to no platform
        """Return the integer graph whose platform judges a part; None if the float32 enclosure judges it."""
        return None


class OwnFloat(ModelEngine):
    """The executor, with quantizations exactly as in the file."""

    def __init__(self, name: str = QDQ) -> None:
        self.name = name

    @pinned()
    def whole(self, parts: Parts, feeds: Values) -> Values:
        """Return every edge; for `float` as real numbers, without quantizations."""
        if self.name == QDQ:
            return self._run(parts.graph, feeds, parts.edges)
        stripped, codes = unquantized(parts.graph)
        wanted = {edge: codes.get(edge, edge) for edge in parts.edges}
        shown = [name for name in dict.fromkeys(wanted.values()) if name in stripped.tensors]
        made = self._run(stripped, {name: feeds[name] for name in stripped.inputs}, shown)
        return {edge: made[name] for edge, name in wanted.items() if name in made}

    @pinned()
    def alone(self, parts: Parts, edges: Values) -> Values:
        """Return every edge; empty for `float`, which is the reference."""
        return _alone(self._run, parts, edges) if self.name == QDQ else {}

    def _run(self, graph: Graph, feeds: Values, wanted: Sequence[str]) -> Values:
        return dict(zip(wanted, TorchExecutor(graph, platform=FP32).forward(dict(feeds), list(wanted)), strict=True))


class OwnIntegers(ModelEngine):
    """The integer functions of a platform, part by part; a part that it does not declare runs in float32."""

    name = OWN

    def __init__(self, platform: str) -> None:
        self.platform = platform
        self._ready: dict[str, IntegerExecutor | None] = {}
        self._why: dict[str, str] = {}

    @pinned()
    def whole(self, parts: Parts, feeds: Values) -> Values:
        """Return every edge. Each part reads the results of the parts before it."""
        values = dict(feeds)
        for part in parts.parts:
            values |= self._part(parts, part, values)
        return {name: values[name] for name in parts.edges}

    @pinned()
    def alone(self, parts: Parts, edges: Values) -> Values:
        """Return every edge."""
        return {name: made for part in parts.parts for name, made in self._part(parts, part, edges).items()}

    def how(self, part: Part) -> str:
        """Return why a part was computed in float32."""
        return self._why.get(part.name, "")

    def integers(self, part: Part) -> IntegerExecutor | None:
        """Return the executor of a part on integers."""
        return self._ready.get(part.name)

    def _part(self, parts: Parts, part: Part, values: Values) -> Values:
        cut = parts.cut(part, values)
        if part.name not in self._ready:
            self._ready[part.name] = self._integers(cut, part, values)
        executor = self._ready[part.name]
        fed = {name: values[name] for name in part.operands}
        run = TorchExecutor(cut, platform=FP32) if executor is None else executor
        return dict(zip(part.results, run.forward(fed, list(part.results)), strict=True))

    def _integers(self, cut: Graph, part: Part, values: Values) -> IntegerExecutor | None:
        codes = {name for node in part.nodes if node.op == DEQUANTIZE for name in node.inputs[:1]}
        # integer_graph reads integers as codes; only the shape counts here
        shaped = {name: values[name].float() if name in codes else values[name] for name in part.operands}
        # nothing is computed on codes
        if part.core.op in (QUANTIZE, DEQUANTIZE):
            return None
        try:
            executor = IntegerExecutor(with_integers(integer_graph(cut, self.platform, shaped)))
            if missing := [name for name in part.results if not executor.shows(name)]:
                raise UnsupportedError(f"the integer graph has no tensor {missing[0]!r}")
        except QuantizerError as err:
            self._why[part.name] = str(err)
            return None
        return executor


class Session(ModelEngine):
    """A system that runs ONNX files in a separate process."""

    def __init__(self, name: str, module: str, options: Mapping[str, str | int], command: Sequence[str] = ()) -> None:
        """module: the worker's module, run by this interpreter; command: a command that starts a worker instead."""
        self.name, self._options = name, dict(options)
        self._worker = Worker(module, PATIENCE, command=command)

    def whole(self, parts: Parts, feeds: Values) -> Values:
        """Return every edge; EngineError if the system raised, crashed or hung."""
        return self._run(parts.graph, feeds, parts.edges)

    def results(self, graph: Graph, feeds: Values, wanted: Sequence[str]) -> Values:
        """Run *graph* with only the outputs *wanted*, so that the engine may fuse all nodes between them."""
        return self._run(graph, feeds, wanted)

    def alone(self, parts: Parts, edges: Values) -> Values:
        """Return every edge, all parts in one run."""
        return _alone(self._run, parts, edges)

    def _run(self, graph: Graph, feeds: Values, wanted: Sequence[str]) -> Values:
        from quantizer.ir.formats.onnx_write import to_model

        sent = _in_bytes(graph, wanted)
        given = {}
        for name, inner in zip(sent.inputs, graph.inputs, strict=True):
            given[name] = to_numpy(feeds[inner], sent.tensor(name).dtype)
            _sendable(inner, given[name])
        made = self._worker.run(Job(to_model(sent).SerializeToString(), given, self._options))
        return {
            name: to_torch(np.asarray(values), graph.tensor(name).dtype)
            for name, values in zip(wanted, made, strict=True)
        }


def _in_bytes(graph: Graph, wanted: Sequence[str]) -> Graph:
    """Return *graph* with the outputs *wanted*. Tensors below 8 bits are fed and shown in 8 bits, through a Cast."""
    # numpy has no type of less than 8 bits
    fed = {name: f"{name}@fed" for name in graph.inputs if _narrow(graph.tensor(name))}
    shown = {name: f"{name}@shown" for name in dict.fromkeys(wanted) if _narrow(graph.tensor(name))}
    casts = [
        Node(f"{name}@fed", "Cast", (outer,), (name,), {"to": graph.tensor(name).dtype}) for name, outer in fed.items()
    ]
    casts += [
        Node(outer, "Cast", (name,), (outer,), {"to": _byte(graph.tensor(name).dtype)}) for name, outer in shown.items()
    ]
    tensors = {
        outer: replace(graph.tensor(name), name=outer, dtype=_byte(graph.tensor(name).dtype), data=None)
        for name, outer in (fed | shown).items()
    }
    return graph.with_(
        nodes=(*graph.nodes, *casts),
        tensors={**graph.tensors, **tensors},
        inputs=tuple(fed.get(name, name) for name in graph.inputs),
        outputs=tuple(shown.get(name, name) for name in wanted),
    )


def _narrow(tensor: Tensor) -> bool:
    return tensor.dtype.is_integer and tensor.dtype.bits < BYTE


def _byte(dtype: DType) -> DType:
    return integer(BYTE, signed=dtype.kind == "int")


def _alone(run: Callable[[Graph, Values, Sequence[str]], Values], parts: Parts, edges: Values) -> Values:
    """Return the edges of one run of all parts side by side."""
    apart = parts.apart(edges)
    made = run(apart, {name: edges[name] for name in apart.inputs}, [f"{name}{ALONE}" for name in parts.edges])
    return {name.removesuffix(ALONE): values for name, values in made.items()}


def model_engine(name: str, platform: str) -> ModelEngine:
    """Return the engine called *name*; `float` runs `parts.unquantized`. UnsupportedError for any other name."""
    match name:
        case "float" | "qdq":
            return OwnFloat(name)
        case "builtin":
            return OwnIntegers(platform)
        case "reference":
            return Session(name, "quantizer.runtime.models.reference_session", {})
    system, _, variant = name.partition(":")
    entry = real_engines().get(system)
    if entry is None or variant not in ("", OPTIMIZED) or name.endswith(":"):
        raise UnsupportedError(f"--engine={name}: no such engine of models.{suggestion(name, names(), 'Known')}")
    if not entry.models:
        return _guest(name, system)
    if absent := [one for one in entry.distributions if installed_version(one) is None]:
        step = to_install(entry.extra) if entry.extra else f"pip install {' '.join(absent)}"
        raise UnsupportedError(f"{' and '.join(absent)} is not installed: {step}.")
    return Session(name, entry.models, {"optimized": int(variant == OPTIMIZED)})


def _guest(name: str, system: str) -> Session:
    """Return a system whose worker of single operators runs any ONNX file; UnsupportedError if it is not installed.

    Its optimizations cannot be switched off, but an engine never fuses away a tensor that is an output of the graph.
    """
    found = chosen(system, option="--engine")
    assert found is not None
    if found.missing:
        raise UnsupportedError(f"{found.missing}.")
    return Session(name, "", {}, found.command)


def real_engines() -> Mapping[str, Engine]:
    """Return the real systems that run whole models, by name."""
    return {name: entry for name, entry in engines().items() if entry.models or entry.form == WHOLE_MODELS}


def names() -> Mapping[str, str]:
    """Return the values of `--engine`, each with an explanation."""
    found = dict(OURS)
    for name, entry in real_engines().items():
        if not entry.models:
            found[name] = f"{name}, as it runs ONNX files (quantizer engine install {name})"
            continue
        found[name] = f"{entry.title}, no optimization"
        found[f"{name}:{OPTIMIZED}"] = f"{entry.title} with all of its optimizations: fused and integer kernels"
    return found


def _sendable(name: str, values: np.ndarray) -> None:
    if values.dtype.kind not in "fiub":
        raise GraphError(f"tensor {name!r} of {values.dtype}: edges of this format cannot be provided to an engine.")
