"""The operator registry: which function computes what, by operator, version and platform."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeVar

from quantizer.core.errors import PluginError, UnsupportedError
from quantizer.core.spec import Spec
from quantizer.numerics.finish import finish
from quantizer.numerics.qparams import Parameters

FunctionKind = Literal["reference", "quantize", "quantized", "accumulate", "infer_shape", "tile"]
KINDS: tuple[FunctionKind, ...] = ("reference", "quantize", "quantized", "accumulate", "infer_shape", "tile")
BUILT_IN = "built-in"
OVERRIDE = "override"
Function = Callable[..., Any]
F = TypeVar("F", bound=Function)
"""
reference(*inputs, **attrs) -> Tensor: the operator on real numbers, in whatever float type it is given.
quantize(request) -> Parameters: chooses parameters; compiled from the spec where a module has none.
quantized(*inputs, parameters, **attrs) -> Tensor | Staged: int64 codes in, int64 codes out; where a module has none,
what `finish` makes of its accumulate.
accumulate(*inputs, parameters, **attrs) -> Tensor: the exact sum before requantization.
infer_shape(shapes, **attrs) -> dict of shapes: only where the spec cannot say it.
tile(...): only where the spec cannot say it, see quantizer.tiling.
"""


@dataclass(frozen=True)
class Registration:
    """One function of one operator, with where it came from."""

    op: str
    kind: FunctionKind
    function: Function
    version: tuple[int, ...]
    platform: str | None
    origin: str
    fuses: bool = True
    """Whether it can run with a fused activation."""
    activates: bool = False
    """Whether it applies a fused activation itself; a reference is then told which, by `activation`."""

    def __str__(self) -> str:
        where = f" on {self.platform}" if self.platform else ""
        return f"{self.op}.{self.kind}{where} {'.'.join(map(str, self.version))} ({self.origin})"


def parse_version(text: str) -> tuple[int, ...]:
    """Return a version that compares as a version: 1.10 is above 1.9."""
    try:
        parts = tuple(int(part) for part in str(text).split("."))
    except ValueError:
        raise PluginError(f"version {text!r}: must be numbers joined by dots, such as '1.0' or '2.10'.") from None
    while len(parts) > 1 and parts[-1] == 0:
        parts = parts[:-1]
    return parts


@dataclass
class Registry:
    """Functions by operator, kind and platform; the highest version wins."""

    entries: dict[tuple[str, FunctionKind, str | None], list[Registration]] = field(default_factory=dict)
    origin: str | None = None
    """Where functions come from that are registered now; None: from the module that defines them."""

    def add(self, entry: Registration) -> None:
        """Add one function; two plugins of equal version are an error, a plugin beats a built-in of its version."""
        known = self.entries.setdefault((entry.op, entry.kind, entry.platform), [])
        for other in known:
            if other.version == entry.version and (other.origin == BUILT_IN) == (entry.origin == BUILT_IN):
                if other.origin == entry.origin and other.function is entry.function:
                    return
                raise PluginError(
                    f"{entry}: {other.origin} registers the same function with the same version. Raise one version."
                )
        known.append(entry)
        known.sort(key=lambda e: (e.version, e.origin != BUILT_IN))

    def find(self, op: str, kind: FunctionKind, platform: str | None = None) -> Registration | None:
        """Return what runs: the highest version for the platform or for all; at equal version the platform's own."""
        candidates = [known[-1] for key in {(op, kind, platform), (op, kind, None)} if (known := self.entries.get(key))]
        if not candidates and kind == "quantized":
            return _finished(self.find(op, "accumulate", platform))
        return max(candidates, key=_precedence, default=None)

    def built_in(self, op: str, kind: FunctionKind, platform: str | None = None) -> Registration | None:
        """Return the built-in function, whatever replaced it; of an operator without, what runs but for overrides."""
        for place in (platform, None):
            known = self.entries.get((op, kind, place), [])
            for entry in known:
                if entry.origin == BUILT_IN:
                    return entry
        if kind == "quantized" and (summed := self.built_in(op, "accumulate", platform)) and summed.origin == BUILT_IN:
            return _finished(summed)
        own = [
            known
            for place in {platform, None}
            for known in self.entries.get((op, kind, place), [])
            if known.origin != OVERRIDE
        ]
        return max(own, key=_precedence, default=None)

    def fuses(self, op: str, platform: str) -> bool:
        """Return whether all that runs for *op* on a platform can do so with a fused activation."""
        found = (self.find(op, kind, platform) for kind in ("quantize", "quantized"))
        return all(entry is None or entry.fuses for entry in found)

    def get(self, op: str, kind: FunctionKind, platform: str | None = None) -> Function:
        """Return the function that runs; UnsupportedError where there is none."""
        return self.entry(op, kind, platform).function

    def entry(self, op: str, kind: FunctionKind, platform: str | None = None) -> Registration:
        """Return what runs; UnsupportedError where there is nothing."""
        entry = self.find(op, kind, platform)
        if entry is None:
            raise UnsupportedError(
                f"{op}: no {kind} function is registered. Define `def {kind}(...)` in the operator's module."
            )
        return entry

    def all(self) -> list[Registration]:
        """Return every registered function, sorted by operator, kind and platform."""
        return [entry for _, known in sorted(self.entries.items(), key=lambda i: str(i[0])) for entry in known]

    def operators(self) -> list[str]:
        """Return the names of all operators that have a function, sorted."""
        return sorted({op for op, _, _ in self.entries})

    def replacements(self) -> list[Registration]:
        """Return every function of a plugin that replaces a built-in, for the run's header."""
        return [
            known[-1]
            for _, known in sorted(self.entries.items(), key=lambda item: str(item[0]))
            if known[-1].origin != BUILT_IN and any(e.origin == BUILT_IN for e in known)
        ]

    @contextmanager
    def loading(self, origin: str) -> Iterator[None]:
        """Register what the block registers as coming from *origin*; take it back where the block raises."""
        before, outer = {key: list(known) for key, known in self.entries.items()}, self.origin
        self.origin = origin
        try:
            yield
        except BaseException:
            self.entries = before
            raise
        finally:
            self.origin = outer

    @contextmanager
    def overridden(self, op: str, kind: FunctionKind, function: Function, platform: str | None) -> Iterator[None]:
        """Run a block with *function* in place of the registered one (how faults are applied)."""
        key = (op, kind, platform)
        before = list(self.entries.get(key, []))
        self.entries[key] = [*before, Registration(op, kind, function, (1 << 30,), platform, OVERRIDE)]
        try:
            yield
        finally:
            if before:
                self.entries[key] = before
            else:
                del self.entries[key]


def _finished(entry: Registration | None) -> Registration | None:
    """Return the integer forward of an operator that registers its exact sums alone: the sums, requantized."""
    if entry is None:
        return None

    def quantized(*operands: Any, parameters: Parameters, **named: Any) -> Any:
        return finish(entry.function(*operands, parameters=parameters, **named), parameters)

    return replace(entry, kind="quantized", function=quantized)


def _precedence(entry: Registration) -> tuple[tuple[int, ...], bool, bool]:
    return (entry.version, entry.origin != BUILT_IN, entry.platform is not None)


REGISTRY = Registry()


def operator(
    op: str, *, version: str = "1.0", platform: str | None = None, origin: str | None = None
) -> Callable[[F], F]:
    """Register the decorated function under its own name as one of *op*'s functions."""

    def register(function: F) -> F:
        kind = function.__name__.removesuffix(f"_{platform}") if platform else function.__name__
        if kind not in KINDS:
            raise PluginError(f"{op}: function {function.__name__!r} must be called one of {', '.join(KINDS)}.")
        built_in = BUILT_IN if function.__module__.startswith("quantizer.ops.") else None
        where = origin or built_in or REGISTRY.origin or function.__module__
        REGISTRY.add(Registration(op, kind, function, parse_version(version), platform, where))
        return function

    return register


def check_signature(spec: Spec, entry: Registration) -> None:
    """Refuse a reference or quantized function whose arguments are not the spec's inputs and attributes."""
    if entry.kind not in ("reference", "quantized", "accumulate"):
        return
    accepted = inspect.signature(entry.function).parameters
    if any(p.kind is inspect.Parameter.VAR_KEYWORD for p in accepted.values()):
        return
    wanted = set(spec.inputs) | set(spec.attrs) | ({"parameters"} if entry.kind != "reference" else set())
    if missing := sorted(wanted - accepted.keys()):
        raise PluginError(f"{entry}: takes no argument {', '.join(missing)}, which the spec names.")
    if unknown := sorted(accepted.keys() - wanted):
        raise PluginError(f"{entry}: takes {', '.join(unknown)}, which the spec does not name.")


def load_built_ins() -> None:
    """Import every module of this package, so that its functions are registered."""
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")


def named(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return *values* without the operands that are absent."""
    return {name: value for name, value in values.items() if value is not None}
