"""The executor in PPQ's terms: feeds and outputs by name, hooks, delegates, platforms. No value outlives a call."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from quantizer.core.errors import GraphError, QuantizerError, UnsupportedError
from quantizer.ir.graph import Graph, Node, container, nearest
from quantizer.ir.verify import verify
from quantizer.runtime.dispatch import (
    DISPATCHED,
    FP32,
    Handler,
    find_handler,
    platform_of,
    platforms,
    refuse_unsupported,
)
from quantizer.runtime.hooks import QuantOPRuntimeHook, RuntimeHook, is_quantable
from quantizer.runtime.onnx.decided import Decided
from quantizer.runtime.onnx.kernels import Context, Kernel
from quantizer.runtime.tensor_config import QuantizationProperty as P
from quantizer.runtime.tensor_config import Stamp

Inputs = Mapping[str, Any] | Sequence[Any] | Tensor


class UndispatchedGraphWarning(UserWarning):
    """A graph runs whose operations were never given platforms."""


class OperationError(QuantizerError, RuntimeError):
    """An operation failed while a graph ran; its cause says why."""


@dataclass(frozen=True)
class Step:
    """One operation of a plan, and the tensors that no later operation reads."""

    node: Node
    handler: Handler
    dies: tuple[str, ...]
    operands: tuple[tuple[str | None, bool], ...]
    """The name of each operand, and whether it is a constant that was not fed."""
    quantable: bool


class Baked(NamedTuple):
    """A quantized constant, and the objects that determined it, kept so that their addresses are not reused."""

    stamp: Stamp
    value: Tensor
    made_of: tuple[Any, ...]


class TorchExecutor:
    """Runs a graph on torch; it holds the graph and its constants, and no values between calls."""

    def __init__(self, graph: Graph, device: str = "cpu", platform: str | None = None) -> None:
        """Take *graph*; operations without a platform run on *platform*.

        Raises GraphError for a graph that is not well formed, UnsupportedError naming all operators that nothing runs,
        ValueError for an unknown platform or device.
        """
        if platform is None and not graph.extra.get(DISPATCHED):
            warnings.warn(
                f"graph {graph.name!r} was not dispatched: all its operations run on {FP32!r}. Use dispatch_graph "
                "first, or name a platform.",
                UndispatchedGraphWarning,
                stacklevel=2,
            )
        self.platform = FP32 if platform is None else platform
        if self.platform not in platforms():
            raise ValueError(f"platform {platform!r}: no such platform.{nearest(self.platform, platforms())}")
        try:
            self.device = torch.device(device)
        except RuntimeError:
            raise ValueError(f"device {device!r}: torch has no such device.") from None
        self._delegates: dict[int, tuple[Any, Any]] = {}
        self.load_graph(graph)

    def load_graph(self, graph: Graph) -> None:
        """Run *graph* from now on; GraphError or UnsupportedError if it is not legal or a node has no kernel."""
        verify(graph)
        refuse_unsupported(graph, self.platform)
        self.graph = graph
        # (outputs, fed names) -> steps: both decide which operations are needed
        self._plans: dict[tuple[tuple[str, ...], frozenset[str]], tuple[Step, ...]] = {}
        self._constants = {
            name: tensor.data.to(self.device) for name, tensor in graph.tensors.items() if tensor.data is not None
        }
        self._values: Mapping[str, Tensor] = {}
        self._baked: dict[tuple[str, int], Baked] = {}

    @property
    def live(self) -> frozenset[str]:
        """The names of the tensors that a call of forward holds just now: none between calls."""
        return frozenset(self._values)

    # -- running -----------------------------------------------------------------------------------------------------

    def forward(
        self, inputs: Inputs, output_names: Sequence[str] | None = None, hooks: Mapping[str, RuntimeHook] | None = None
    ) -> list[Tensor]:
        """Return the named tensors in the given order, repeated if named twice; by default the graph's outputs.

        inputs: by name (any tensor of the graph; a fed one is not computed), in the order of the graph's inputs, or one
        tensor for a graph of one input. hooks: by the name of the node.
        """
        with torch.set_grad_enabled(False):  # like no_grad, but with one object instead of three
            return self._forward(inputs, output_names, hooks)

    __call__ = forward

    def forward_with_gradient(
        self, inputs: Inputs, output_names: Sequence[str] | None = None, hooks: Mapping[str, RuntimeHook] | None = None
    ) -> list[Tensor]:
        """Do the same as `forward`, and record gradients."""
        return self._forward(inputs, output_names, hooks)

    def partial_graph_forward(
        self, operations: Sequence[Node], feed_dict: Mapping[str, Any], output_names: Sequence[str]
    ) -> list[Tensor]:
        """Run only these operations, in the graph's order, on the fed tensors; gradients are recorded."""
        # looked up by name: the caller may hold nodes of another version of the graph
        chosen = {id(self.graph.node(operation.name)) for operation in operations}
        part = self.graph.with_(nodes=tuple(node for node in self.graph.order if id(node) in chosen))
        feeds = self._fed(feed_dict)
        steps = _planned(part, tuple(output_names), frozenset(feeds), frozenset(self._constants), self._step)
        return self._run(steps, feeds, tuple(output_names), {})

    def tracing_operation_meta(self, inputs: Inputs, output_names: Sequence[str] | None = None) -> Graph:
        """Return the graph with the shapes that its tensors have on *inputs*."""
        seen: dict[str, tuple[int, ...]] = {}
        feeds = self._fed(inputs)
        outputs = self._outputs(output_names)
        with torch.no_grad():
            self._run(self._plan(outputs, feeds), feeds, outputs, {}, seen)
        known = {name: tuple(value.shape) for name, value in feeds.items()} | seen
        traced = (replace(self.graph.tensor(name), shape=shape, ranked=True) for name, shape in known.items())
        return self.graph.with_tensors(*traced)

    def _forward(
        self, inputs: Inputs, output_names: Sequence[str] | None, hooks: Mapping[str, RuntimeHook] | None
    ) -> list[Tensor]:
        hooks = hooks or {}
        for name, hook in hooks.items():
            self.graph.node(name)
            if not isinstance(hook, RuntimeHook):
                raise TypeError(f"hook of {name!r} is a {type(hook).__name__}: must be a RuntimeHook.")
        feeds = self._fed(inputs)
        outputs = self.graph.outputs if output_names is None else self._outputs(output_names)
        return self._run(self._plan(outputs, feeds), feeds, outputs, hooks)

    def _run(
        self,
        steps: Sequence[Step],
        feeds: Mapping[str, Tensor],
        outputs: Sequence[str],
        hooks: Mapping[str, RuntimeHook],
        seen: dict[str, tuple[int, ...]] | None = None,
    ) -> list[Tensor]:
        constants, values = self._constants, dict(feeds)
        self._values = values
        context = Context(self.graph, self.device, values, self._body_runner(values))
        try:
            for step in steps:
                node = step.node
                operands = [
                    None if name is None else constants[name] if constant else values[name]
                    for name, constant in step.operands
                ]
                results = self._operate(step, operands, context, hooks.get(node.name) if hooks else None)
                # optional outputs at the end may be absent
                for name, result in zip(node.outputs, results, strict=False):
                    if name not in feeds and result is not None:
                        values[name] = result
                        if seen is not None:
                            seen[name] = tuple(result.shape)
                for name in step.dies:
                    # frees memory as soon as nothing reads the tensor
                    values.pop(name, None)
            return [values[name] if name in values else constants[name] for name in outputs]
        finally:
            self._values = {}

    def _operate(
        self, step: Step, operands: list[Tensor | None], context: Context, hook: RuntimeHook | None
    ) -> Sequence[Tensor | None]:
        """Run one operation: quantize the operands, hook, compute, quantize the results, hook."""
        node = step.node
        try:
            if not step.quantable:
                if hook is not None:
                    operands = hook.pre_forward_hook(operands)
                found = _listed(step.handler(node, operands, context))
                return found if hook is None else hook.post_forward_hook(list(found))
            configs: Any = node.parameters
            ins, outs = configs.input_quantization_config, configs.output_quantization_config
            ready = [
                self._baked_constant(name, value, config) if constant else self._quantized(value, config)
                for (name, constant), value, config in zip(step.operands, operands, ins, strict=True)
            ]
            if isinstance(hook, QuantOPRuntimeHook):
                ready = hook.pre_forward_hook(operands, quant_inputs=ready, quant_configs=ins)
            elif hook is not None:
                ready = hook.pre_forward_hook(ready)
            raw = _listed(step.handler(node, ready, context))
            # the operands may be the last references to large tensors
            del ready
            made = [self._quantized(value, config) for value, config in zip(raw, outs, strict=True)]
            if isinstance(hook, QuantOPRuntimeHook):
                return hook.post_forward_hook(list(raw), quant_outputs=made, quant_configs=outs)
            return made if hook is None else hook.post_forward_hook(made)
        except Exception as err:
            raise OperationError(f"Op Execution Error: {node.name}({node.op}): {err}") from err

    def _quantized(self, value: Tensor | None, config: Any) -> Tensor | None:
        return None if value is None else self.quantize_function(value, config)

    def _baked_constant(self, name: str | None, value: Tensor | None, config: Any) -> Tensor | None:
        """Return a quantized constant, cached until its scale changes; with a delegate, quantized in each call."""
        if name is None or value is None or not config.is_active or id(config) in self._delegates:
            return self._quantized(value, config)
        stamp, key = config.stamp(value.dim()), (name, id(config))
        kept = self._baked.get(key)
        if kept is None or kept.stamp != stamp:
            # its scale is computed from the values in each call
            if P.DYNAMIC in config.policy:
                return self._quantized(value, config)
            found, root = self.quantize_function(value, config), config.root
            kept = self._baked[key] = Baked(stamp, found, (config, root.scale, root.offset))
        return kept.value

    def quantize_function(self, tensor: Tensor, config: Any = None) -> Tensor:
        """Return *tensor* as its configuration, or the delegate registered for it, quantizes it; never in place."""
        if config is None or not config.is_active:
            return tensor
        delegate = self._delegates.get(id(config)) if self._delegates else None
        if delegate is not None:
            found = delegate[1](tensor, config)
            assert isinstance(found, Tensor)
            return found
        quantized = config.quantize(tensor)
        assert isinstance(quantized, Tensor)
        return quantized

    def register_quantize_delegate(self, config: Any, delegator: Any) -> None:
        """Quantize with `delegator(tensor, config)` wherever this executor meets *config*."""
        if not callable(delegator):
            raise TypeError(f"delegate {delegator!r}: must be a function of (tensor, config).")
        if not any(config is known for known in self._configs()):
            raise GraphError("a delegate for a configuration that no operation of the graph has.")
        self._delegates[id(config)] = (config, delegator)

    def remove_quantize_delegate(self, config: Any) -> None:
        """Forget the delegate of *config*; GraphError if it has none."""
        if self._delegates.pop(id(config), None) is None:
            raise GraphError("no delegate is registered for this configuration.")

    def _configs(self) -> Iterator[Any]:
        for node in self.graph.nodes:
            if is_quantable(node):
                configs: Any = node.parameters
                yield from configs.input_quantization_config
                yield from configs.output_quantization_config

    # -- plans -------------------------------------------------------------------------------------------------------

    def _step(self, node: Node, dies: tuple[str, ...], fed: frozenset[str]) -> Step:
        platform = platform_of(node, self.platform)
        handler = find_handler(node.op, platform)
        if handler is None:
            raise UnsupportedError(f"node {node.name!r}: nothing runs {node.op} on platform {platform!r}.")
        # a fed value takes precedence over a constant of the same name
        operands = tuple((name, name in self._constants and name not in fed) for name in node.inputs)
        # handlers of users may depend on anything, so that only our kernels' decisions are cached
        runs = Decided(handler) if isinstance(handler, Kernel) else handler
        return Step(node, runs, dies, operands, is_quantable(node))

    def _plan(self, outputs: tuple[str, ...], feeds: Mapping[str, Tensor]) -> tuple[Step, ...]:
        key = (outputs, frozenset(feeds))
        if key not in self._plans:
            self._plans[key] = _planned(self.graph, outputs, key[1], frozenset(self._constants), self._step)
        return self._plans[key]

    def _outputs(self, names: Sequence[str] | None) -> tuple[str, ...]:
        if isinstance(names, str):
            raise TypeError(f"output_names={names!r}: must be a list of names.")
        chosen = self.graph.outputs if names is None else tuple(names)
        for name in chosen:
            self.graph.tensor(name)
        return chosen

    def _fed(self, inputs: Inputs) -> dict[str, Tensor]:
        """Return the inputs by name, with the declared type and number of axes."""
        if isinstance(inputs, (Tensor, np.ndarray)):
            inputs = [inputs]
        if not isinstance(inputs, Mapping):
            if len(inputs) != len(self.graph.inputs):
                wanted = f"{len(self.graph.inputs)} inputs: {', '.join(self.graph.inputs)}"
                raise GraphError(f"graph {self.graph.name!r}: {len(inputs)} tensors were fed: must be {wanted}.")
            inputs = dict(zip(self.graph.inputs, inputs, strict=True))
        feeds: dict[str, Tensor] = {}
        for name, given in inputs.items():
            tensor, value = self.graph.tensor(name), given if isinstance(given, Tensor) else torch.as_tensor(given)
            if value.dtype != container(tensor.dtype):
                raise GraphError(f"graph {self.graph.name!r}: {name!r} was fed {value.dtype}: must be {tensor.dtype}.")
            if tensor.ranked and value.dim() != len(tensor.shape):
                raise GraphError(
                    f"graph {self.graph.name!r}: {name!r} was fed shape {list(value.shape)}: must have "
                    f"{len(tensor.shape)} axes."
                )
            feeds[name] = value if value.device == self.device else value.to(self.device)
        return feeds

    def _body_runner(self, outer: Mapping[str, Tensor]) -> Any:
        """Return a function that runs a body of control flow; the body may read the live values around it."""

        def run_body(body: Graph, feeds: Mapping[str, Tensor]) -> list[Tensor]:
            inner = _Body(self, body, {**self._constants, **outer})
            return inner.run(feeds)

        return run_body


class _Body(TorchExecutor):
    """A body of control flow: it runs as its graph does, and may read the graph's tensors."""

    def __init__(self, owner: TorchExecutor, graph: Graph, outer: Mapping[str, Tensor]) -> None:
        self.platform, self.device, self.graph, self._delegates = owner.platform, owner.device, graph, owner._delegates
        # a body's own constants hide outer tensors of the same name
        own = {name: t.data.to(self.device) for name, t in graph.tensors.items() if t.data is not None}
        made = {*graph.inputs, *graph.producers}
        self._constants = {
            name: value for name, value in outer.items() if name in graph.tensors and name not in made
        } | own
        # bodies inside this body may read outer tensors, too
        for body in graph.subgraphs.values():
            self._constants |= {name: outer[name] for name in body.tensors if name in outer and name not in made}
        self._values, self._plans, self._baked = {}, {}, {}

    def run(self, feeds: Mapping[str, Tensor]) -> list[Tensor]:
        """Run the body on the values that control flow provides."""
        return self._run(self._plan(self.graph.outputs, feeds), feeds, self.graph.outputs, {})


def _listed(outcome: Any) -> Sequence[Tensor | None]:
    return [outcome] if isinstance(outcome, Tensor) else outcome if isinstance(outcome, list | tuple) else [outcome]


def _planned(
    graph: Graph, outputs: tuple[str, ...], fed: frozenset[str], constants: frozenset[str], step: Any
) -> tuple[Step, ...]:
    """Return the operations that *outputs* need, in order, each with the tensors that no later one reads."""
    known = fed | constants
    needed, nodes = {name for name in outputs if name not in known}, []
    # backwards from the outputs, so that only operations on which they depend are kept
    for node in reversed(graph.order):
        if any(name in needed for name in node.outputs if name not in fed):
            nodes.append(node)
            needed |= {name for name in node.reads if name not in known}
    nodes.reverse()
    made = {name for node in nodes for name in node.outputs}
    if missing := sorted(needed - made):
        raise GraphError(f"graph {graph.name!r}: {missing[0]!r} was not fed, and {', '.join(outputs)} need it.")
    last: dict[str, int] = {}
    for i, node in enumerate(nodes):
        # later nodes overwrite earlier ones; a result that nothing reads dies at once
        last |= dict.fromkeys((*node.outputs, *node.reads), i)
    dies: list[list[str]] = [[] for _ in nodes]
    for name, i in last.items():
        if name not in outputs and name not in constants:
            dies[i].append(name)
    return tuple(step(node, tuple(names), fed) for node, names in zip(nodes, dies, strict=True))
