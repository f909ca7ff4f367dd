"""Which function computes what, by operator, kind, version and platform; the highest version runs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

from torch import Tensor

from quantizer.core.errors import PluginError, UnsupportedError
from quantizer.core.expressions import parse
from quantizer.core.model_errors import IDENTIFIER
from quantizer.core.shield import shielded
from quantizer.numerics.qparams import Parameters
from quantizer.numerics.requantize_accumulator import requantize_accumulator
from quantizer.numerics.request import Request
from quantizer.numerics.tables import lookup, tabulated

FunctionKind = Literal["reference", "quantize", "quantized", "accumulate", "function", "tile"]
KINDS: tuple[FunctionKind, ...] = ("reference", "quantize", "quantized", "accumulate", "function", "tile")
"""Operands and results of the functions, by kind.

reference(*inputs, **attrs) -> Tensor: the operator on real numbers, in whatever float type it is given.
quantize(request) -> Parameters: chooses parameters; derived from the spec if a module has none.
quantized(*inputs, parameters, **attrs) -> Tensor | Staged: int64 codes in, int64 codes out; if a module has none, its
exact sums are requantized (`requantize_accumulator`). accumulate(*inputs, parameters, **attrs) -> Tensor: the exact sum
before requantization. function(x, **attrs) -> Tensor: a function of one input, in the float type in which a platform
builds its table; if a module has no quantize and no quantized, the table is provided and looked up. tile(...): only if
the spec cannot express the tiling, see quantizer.tiling.
"""
BUILT_IN = "built-in"
OVERRIDE = "override"
Function = Callable[..., Any]
Place = str | tuple[str, ...] | None
"""The platform of a requested function: its name, or several names (`Platform.places`), its own first; None: none."""


@dataclass(frozen=True)
class Registration:
    """One function of one operator, and its origin."""

    op: str
    kind: FunctionKind
    function: Function
    version: tuple[int, ...]
    platform: str | None
    origin: str
    fuses: bool = True
    """Whether it can run with a fused activation."""
    activates: bool = False
    """Whether the function applies a fused activation itself. A reference then gets it as `activation`."""
    unsupported: Mapping[str, str] = field(default_factory=dict, compare=False)
    """Predicate over a case's structure, not its values -> why the function does not support the case. Such cases are
    inconclusive."""
    apart: bool = False
    """Whether it represents a function that runs in another process."""
    batched: bool = False
    """Whether it also takes K trials of one structure in one call (`quantizer.numerics.batched`)."""

    def __str__(self) -> str:
        where = f" on {self.platform}" if self.platform else ""
        return f"{self.op}.{self.kind}{where} {'.'.join(map(str, self.version))} ({self.origin})"

    @cached_property
    def finished(self) -> Registration:
        """The integer forward that requantizes these exact sums."""

        def quantized(*operands: Any, parameters: Parameters, **named: Any) -> Any:
            return requantize_accumulator(self.function(*operands, parameters=parameters, **named), parameters)

        return replace(self, kind="quantized", function=quantized)

    @cached_property
    def tabulated(self) -> Registration:
        """The quantize rule that provides a table of this function of one input, as the platform builds it."""

        def quantize(request: Request) -> Parameters:
            return tabulated(request, lambda v: self.function(v, **request.attrs))

        return replace(self, kind="quantize", function=quantize)

    @cached_property
    def looked_up(self) -> Registration:
        """The integer forward of this function of one input: it looks codes up in the provided table."""

        def quantized(x: Tensor, *, parameters: Parameters, **_: Any) -> Tensor:
            return lookup(x, parameters.tables["lut"])

        return replace(self, kind="quantized", function=quantized)


@dataclass
class Registry:
    """Functions by operator, kind and platform; the highest version wins."""

    entries: dict[tuple[str, FunctionKind, str | None], list[Registration]] = field(default_factory=dict)
    origin: str | None = None
    """The origin of functions that are being registered; the loader sets it, not the functions."""
    sealed: bool = False
    """Whether all built-in functions are registered. Later registrations are not built-in."""

    def add(self, entry: Registration) -> None:
        """Add one function; two plugins of equal version are an error, a plugin beats a built-in of its version.

        A plugin's function is shielded: an exception affects only its own case.
        """
        if self.origin is not None:
            entry = replace(entry, origin=self.origin)
        elif entry.origin == BUILT_IN and self.sealed:
            raise PluginError(f"{entry}: is not part of quantizer. Register it from a plugin that is loaded as one.")
        if entry.origin != BUILT_IN:
            if not re.fullmatch(IDENTIFIER, str(entry.op)):
                rule = "must be snake_case, as the `op` of a spec is: small letters, digits and _, a letter first"
                raise PluginError(f"operator {entry.op!r}: {rule}.")
            entry = replace(entry, function=shielded(entry.function))
        key = (entry.op, entry.kind, entry.platform)
        known = self.entries.get(key, [])
        for other in known:
            if other.version == entry.version and other.apart and self.origin is None:
                return  # pytest imports the package around a plugin's spec, too, whose functions run elsewhere
            if other.version == entry.version and (other.origin == BUILT_IN) == (entry.origin == BUILT_IN):
                if other.origin == entry.origin and unwrapped(other.function) == unwrapped(entry.function):
                    return
                raise PluginError(
                    f"{entry}: {other.origin} registers the same function with the same version. Raise one version."
                )
        # a new list, because `loading` keeps the old ones to undo registrations; the last entry runs
        self.entries[key] = sorted([*known, entry], key=lambda e: (e.version, e.origin != BUILT_IN))

    def find(self, op: str, kind: FunctionKind, platform: Place = None) -> Registration | None:
        """Return the function that runs: the highest version; of equal versions, the platform's own.

        If functions exist under two names of the platform, the first name's function is used.
        """
        entries, own = self.entries, None
        shared = entries.get((op, kind, None))
        for name in _names(platform):  # a plain loop, because a case calls it some thirty times
            if own := entries.get((op, kind, name)):
                break
        if own and shared:
            # a shared function of a higher version replaces the platform's own
            return max(own[-1], shared[-1], key=_precedence)
        if known := own or shared:
            return known[-1]
        for source, derive in _DERIVED.get(kind, ()):
            if (entry := self.find(op, source, platform)) is not None:
                return derive(entry)
        return None

    def built_in(self, op: str, kind: FunctionKind, platform: Place = None) -> Registration | None:
        """Return the built-in function, even if it was replaced.

        For an operator without one, the function that runs without overrides.
        """
        for place in (*_names(platform), None):
            known = self.entries.get((op, kind, place), [])
            for entry in known:
                if entry.origin == BUILT_IN:
                    return entry
        for source, derive in _DERIVED.get(kind, ()):
            if (found := self.built_in(op, source, platform)) and found.origin == BUILT_IN:
                return derive(found)
        own = [
            known
            for place in (*_names(platform), None)
            for known in self.entries.get((op, kind, place), [])
            if known.origin != OVERRIDE
        ]
        return max(own, key=_precedence, default=None)

    def fuses(self, op: str, platform: Place) -> bool:
        """Return whether all functions that run for *op* on a platform support a fused activation."""
        found = (self.find(op, kind, platform) for kind in ("quantize", "quantized"))
        return all(entry is None or entry.fuses for entry in found)

    def get(self, op: str, kind: FunctionKind, platform: Place = None) -> Function:
        """Return the function that runs; UnsupportedError if there is none."""
        return self.entry(op, kind, platform).function

    def entry(self, op: str, kind: FunctionKind, platform: Place = None) -> Registration:
        """Return the function that runs; UnsupportedError if there is none."""
        entry = self.find(op, kind, platform)
        if entry is None:
            raise UnsupportedError(
                f"{op}: no {kind} function is registered. Define `def {kind}(...)` in the operator's module, "
                "and name a module of your own with --op-plugins."
            )
        return entry

    def all(self) -> list[Registration]:
        """Return every registered function, sorted by operator, kind and platform."""
        return [entry for _, known in sorted(self.entries.items(), key=lambda i: str(i[0])) for entry in known]

    def operators(self) -> list[str]:
        """Return the names of all operators that have a function, sorted."""
        return sorted({op for op, _, _ in self.entries})

    def replacements(self) -> list[Registration]:
        """Return every function of a plugin that runs for a built-in operator, for the run's header."""
        ours = {op for (op, _, _), known in self.entries.items() if any(entry.origin == BUILT_IN for entry in known)}
        return [
            known[-1]
            for (op, kind, platform), known in sorted(self.entries.items(), key=lambda item: str(item[0]))
            if op in ours and known[-1].origin != BUILT_IN and self.find(op, kind, platform) is known[-1]
        ]

    def unsupported(self, op: str, platform: Place, values: Mapping[str, Any]) -> str | None:
        """Return the reason why a function declares a case of these *values* as unsupported; None if all support it.

        A predicate with names that *values* lacks is ignored.
        """
        for entry in filter(None, (self.find(op, kind, platform) for kind in KINDS)):
            for text, reason in entry.unsupported.items():
                predicate = parse(text)
                # before a case is drawn only some names have values
                if predicate.names <= values.keys() and predicate(values):
                    return f"declared: {reason}"
        return None

    @contextmanager
    def loading(self, origin: str) -> Iterator[None]:
        """Mark registrations in the block as coming from *origin*; undo them if the block raises."""
        before, outer = dict(self.entries), self.origin  # lists in it are never changed, only replaced
        self.origin = origin
        try:
            yield
        except BaseException:
            self.entries = before
            raise
        finally:
            self.origin = outer

    @contextmanager
    def overridden(
        self,
        op: str,
        kind: FunctionKind,
        function: Function,
        platform: str | None,
        *,
        origin: str = OVERRIDE,
        like: Registration | None = None,
    ) -> Iterator[None]:
        """Run a block with *function* instead of the registered one. Faults are planted this way.

        It counts as a plugin's function, as a function from *origin*, or with *like* as the one that it replaces.
        """
        key = (op, kind, platform)
        before = list(self.entries.get(key, []))
        # a version above every real one
        entry = like or Registration(op, kind, function, (1 << 30,), platform, origin)
        # the replacement runs in this process, a trial at a time, whatever it replaces
        alone = replace(entry, version=(1 << 30,), platform=platform, batched=False, apart=False)
        entry = replace(alone, function=function, kind=kind)
        self.entries[key] = [*before, entry]
        try:
            yield
        finally:
            if before:
                self.entries[key] = before
            else:
                del self.entries[key]


_Derive = Callable[[Registration], Registration]
_DERIVED: Mapping[FunctionKind, tuple[tuple[FunctionKind, _Derive], ...]] = {
    "quantize": (("function", lambda entry: entry.tabulated),),
    "quantized": (("accumulate", lambda entry: entry.finished), ("function", lambda entry: entry.looked_up)),
}
"""Kinds of functions that are derived from another function of the module if the module does not define them."""


def _names(platform: Place) -> tuple[str, ...]:
    if platform is None:
        return ()
    return (platform,) if isinstance(platform, str) else platform


def _precedence(entry: Registration) -> tuple[tuple[int, ...], bool, bool]:
    # the version, then a plugin before a built-in, then the platform's own before a shared one
    return (entry.version, entry.origin != BUILT_IN, entry.platform is not None)


def unwrapped(function: Function) -> Function:
    """Return the function that a plugin wrote, without its shield."""
    found: Function = getattr(function, "__wrapped__", function)
    return found


REGISTRY = Registry()
