"""The table of ONNX operators: one torch function for each, by the exact rule of the standard.

A kernel takes the operands in ONNX's order (None for an absent one) and the attributes by ONNX's names. It raises
UnsupportedError for cases that it does not compute exactly as ONNX. Besides attributes it may request `since` (the
version of the operator), `made` (how many outputs are wanted), `op` (the node) and `ctx`. Where an operator of the
registry computes the same, its function in `mapped` says so and the registry's reference runs.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias, TypeVar

import torch
from torch import Tensor

from quantizer.core.dtypes import DType
from quantizer.core.errors import UnsupportedError
from quantizer.core.library import load_library
from quantizer.core.shapes import Shape, infer_shapes
from quantizer.core.spec import Spec
from quantizer.ir.graph import LARGEST, Graph, Node, container
from quantizer.ops import REGISTRY, load_built_ins

Outcome: TypeAlias = "Tensor | tuple[Tensor, ...] | list[Tensor]"
F = TypeVar("F", bound=Callable[..., Any])
SPECIAL = ("since", "made", "op", "ctx")
Bodies = Callable[[Graph, Mapping[str, Tensor]], list[Tensor]]


WIDENED = (torch.uint16, torch.uint32, torch.uint64)
"""Integer types with few torch operations. They are added, multiplied and compared in int64."""


HALVES = (torch.float16, torch.bfloat16)
"""Floating-point types of 16 bits."""


class NoFunctionError(UnsupportedError):
    """No kernel computes the operator on this type. Unsigned integers are tried again in int64."""


class Ours(NamedTuple):
    """A node as one of the registry's operators: its name, operands under the spec's names, attributes."""

    op: str
    operands: Mapping[str, Tensor]
    attrs: Mapping[str, Any]


class Context(NamedTuple):
    """Values that a handler may use besides its operands."""

    graph: Graph
    executing_device: torch.device
    values: Mapping[str, Tensor] = MappingProxyType({})
    """The live values, which bodies of control flow may read."""
    run_body: Bodies | None = None

    def dtype(self, name: str | None) -> DType:
        """Return the number format of a tensor of the graph."""
        assert name is not None
        return self.graph.tensor(name).dtype


@dataclass
class Kernel:
    """The kernel of one ONNX operator: the registry's operator where `mapped` finds one, else the function `own`."""

    name: str
    own: Callable[..., Outcome] | None = None
    mapped: Callable[..., Ours | None] | None = None
    widens: bool = False
    """Whether operands of 16 bits are computed in float32, and the results rounded to the first operand's type."""

    def __call__(self, op: Node, values: Sequence[Tensor | None], ctx: Context, **_: Any) -> Outcome:
        """Run the operator on *values*, as PPQ's handlers are called."""
        # once, around the whole kernel: rounding each step to 16 bits would lose digits
        if self.widens and any(v is not None and v.dtype in HALVES for v in values):
            kind = next(v.dtype for v in values if v is not None)
            outcome = self(op, [v.float() if v is not None and v.dtype in HALVES else v for v in values], ctx)
            return outcome.to(kind) if isinstance(outcome, Tensor) else [found.to(kind) for found in outcome]
        try:
            return self._computed(op, values, ctx)
        except (NoFunctionError, NotImplementedError) as err:  # NotImplementedError is torch's own
            kinds = {v.dtype for v in values if v is not None}
            if kinds.isdisjoint(WIDENED) or any(v is not None and _beyond_int64(v) for v in values):
                raise UnsupportedError(
                    f"{op.op} of {', '.join(sorted(map(str, kinds)))}: nothing computes it."
                ) from err
            # int64 holds each value below 2**63; the low bits of sums and products are those of the narrow type
            wide = [v.long() if v is not None and v.dtype in WIDENED else v for v in values]
            return self._narrowed(op, self._computed(op, wide, ctx), ctx)

    def _narrowed(self, op: Node, outcome: Outcome, ctx: Context) -> Outcome:
        """Convert int64 results to the types of the outputs; the low bits are kept."""
        made = [outcome] if isinstance(outcome, Tensor) else list(outcome)
        kinds = (container(ctx.dtype(name)) for name in op.outputs)
        found = [v.to(kind) if kind in WIDENED else v for v, kind in zip(made, kinds, strict=False)]
        return found[0] if isinstance(outcome, Tensor) else found

    def _computed(self, op: Node, values: Sequence[Tensor | None], ctx: Context) -> Outcome:
        # both, because the node may take either way
        for function in filter(None, (self.own, self.mapped)):
            _refuse_unknown(op, len(values), function)
        if self.mapped is not None:
            found = self.mapped(*values, **op.attrs, **special(self.mapped, op, ctx))
            if found is not None:
                return run_ours(found)
        if self.own is None:
            shapes = ", ".join("absent" if v is None else f"{v.dtype} {list(v.shape)}" for v in values)
            raise UnsupportedError(f"{op.op}: no rule for operands {shapes}.")
        return self.own(*values, **op.attrs, **special(self.own, op, ctx))


def _beyond_int64(values: Tensor) -> bool:
    return values.dtype == torch.uint64 and bool((values.view(torch.int64) < 0).any())


KERNELS: dict[str, Kernel] = {}


def kernel(*names: str, widens: bool = False) -> Callable[[F], F]:
    """Register the decorated function as the kernel of the ONNX operators of these names.

    *widens*: operands of 16 bits are computed in float32, because positions of elements and long sums need more than 16
    bits.
    """

    def register(function: F) -> F:
        for name in names:
            found = KERNELS.setdefault(name, Kernel(name))
            found.own, found.widens = function, widens
        return function

    return register


def mapped(*names: str) -> Callable[[F], F]:
    """Register the decorated function, which maps ONNX operators of these names to the registry's operators."""

    def register(function: F) -> F:
        for name in names:
            KERNELS.setdefault(name, Kernel(name)).mapped = function
        return function

    return register


@cache
def _takes(function: Callable[..., Any]) -> tuple[int | None, frozenset[str] | None]:
    """Return the number of operands and the attributes of *function*; None means any."""
    found = inspect.signature(function).parameters.values()
    places = sum(p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in found)
    free = any(p.kind is p.VAR_POSITIONAL for p in found)
    named = frozenset(p.name for p in found if p.kind is p.KEYWORD_ONLY) - set(SPECIAL)
    return None if free else places, None if any(p.kind is p.VAR_KEYWORD for p in found) else named


def _refuse_unknown(op: Node, operands: int, function: Callable[..., Any]) -> None:
    """Raise UnsupportedError for features of a later version of the operator that *function* does not know."""
    most, known = _takes(function)
    version = f"{op.op}-{op.extra['since']}" if "since" in op.extra else op.op
    if most is not None and operands > most:
        raise UnsupportedError(f"{version}: {operands} operands: this kernel takes {most} at most.")
    strange = sorted(op.attrs.keys() - known) if known is not None else []
    if strange:
        values = ", ".join(f"{name}={op.attrs[name]}" for name in strange)
        raise UnsupportedError(f"{version}: {values}: this kernel has no such attribute.")


@cache
def _asked(function: Callable[..., Any]) -> tuple[str, ...]:
    return tuple(name for name in inspect.signature(function).parameters if name in SPECIAL)


def special(function: Callable[..., Any], op: Node, ctx: Context) -> dict[str, Any]:
    """Return the parameters of *function* that are neither operands nor attributes."""
    asked = _asked(function)
    if not asked:
        return {}
    known = {"since": op.extra.get("since", 0), "made": len(op.outputs), "op": op, "ctx": ctx}
    return {name: known[name] for name in asked}


@cache
def specs() -> Mapping[str, Spec]:
    """Return the specs of the built-in operators, and register their functions."""
    load_built_ins()
    return load_library().specs


def run_ours(node: Ours) -> Tensor:
    """Run the registry's reference on operands of one type; ConstraintError if they break its spec."""
    # hashable, for the cache of _allowed
    shapes = tuple([(name, tuple(values.shape)) for name, values in node.operands.items()])
    _allowed(node.op, shapes, tuple(node.attrs.items()), next(iter(node.operands.values())).dtype)
    outcome = REGISTRY.get(node.op, "reference")(**node.operands, **node.attrs)
    assert isinstance(outcome, Tensor)
    return outcome


@lru_cache(maxsize=4096)
def _allowed(
    op: str, shapes: tuple[tuple[str, Shape], ...], attrs: tuple[tuple[str, Any], ...], dtype: torch.dtype
) -> None:
    """Raise an error if operands of these shapes break the spec or give too large a result; errors are not cached."""
    for shape in infer_shapes(specs()[op], dict(shapes), dict(attrs)).values():
        sized(op, shape, dtype)


def one_of(op: str, name: str, value: str, legal: Collection[str]) -> str:
    """Return *value*, an attribute of a node; UnsupportedError if it is not one of *legal*."""
    if value not in legal:
        raise UnsupportedError(f"{op}: {name}={value!r}: must be one of {', '.join(legal)}.")
    return value


def sized(op: str, shape: Sequence[int], dtype: torch.dtype) -> tuple[int, ...]:
    """Return *shape*; UnsupportedError if its tensor would need more than 2 GiB."""
    if any(size < 0 for size in shape):
        raise UnsupportedError(f"{op}: makes shape {list(shape)}: no size may be negative.")
    if math.prod(shape) * dtype.itemsize > LARGEST:
        raise UnsupportedError(
            f"{op}: makes shape {list(shape)} of {dtype}: more than {LARGEST} bytes, which no tensor may have."
        )
    return tuple(int(size) for size in shape)


def whole(values: Tensor) -> list[int]:
    """Return a tensor of integers as a list."""
    return [int(value) for value in values.reshape(-1).tolist()]


def scalar(values: Tensor | None, default: Any) -> Any:
    """Return the one number in *values*, or *default* where it is absent."""
    if values is None:
        return default
    if values.numel() != 1:
        raise UnsupportedError(f"an operand of shape {list(values.shape)}: must be one number.")
    return values.reshape(()).item()


def axis_of(op: str, axis: int, rank: int) -> int:
    """Return *axis* counted from 0; UnsupportedError if it is not one of *rank* axes."""
    if not -rank <= axis < max(rank, 1):
        raise UnsupportedError(f"{op}: axis {axis}: must lie in [{-rank}, {rank - 1}].")
    return axis % rank if rank else 0
