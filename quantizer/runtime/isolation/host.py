"""The judge's side of the plugin process: starts it, calls functions in it, and restarts it if it ended."""

from __future__ import annotations

import hashlib
import json
import os
import weakref
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import torch

from quantizer import __version__
from quantizer.core.errors import EngineError, FormatError, FunctionError, PluginError, UnsupportedError
from quantizer.core.model import Model
from quantizer.core.spec import Spec
from quantizer.core.wording import visible
from quantizer.numerics.pinned import is_within
from quantizer.runtime.engines.child import Child, DiedError, Limits
from quantizer.runtime.engines.frames import Frame
from quantizer.runtime.isolation.launch import launch
from quantizer.runtime.isolation.placement import asked_place
from quantizer.runtime.isolation.wire import Opaque, Reader, Writer, write_model

HANGS = 3
"""How many calls of a function may hang; after that it is no longer called."""
RECENT = 256
"""The number of specs, schemes and platforms that are recognized by their address."""
PROBES = {"writes": "wrote into operand 'x'", "keeps": "other codes"}
"""A function of ours that does something forbidden (`worker.FORBIDDEN`) -> the message that it must cause."""
DUE = 7
"""The second of two operands' codes. With these operands the process repeats the call in other memory."""
TOLD = 1 << 13
"""The number of characters of the process's output that a failure shows."""


class Host:
    """One plugin process at a time, and everything that its successor must be sent again."""

    def __init__(
        self,
        paths: Sequence[Path],
        limits: Limits,
        python: str = "",
        child: Child | None = None,
        variables: Mapping[str, str] | None = None,
    ) -> None:
        """child: a process that was launched before, with these limits and by this interpreter."""
        self._paths = [str(path) for path in paths]
        self._limits = limits
        self._python = python
        self._variables = dict(variables or {})
        self._child = child
        self._owner = os.getpid()
        self._generation = 0
        self._models: list[Model] = []
        self._numbers: dict[str, int] = {}
        self._recent: OrderedDict[int, tuple[int, Model]] = OrderedDict()
        self._defined = 0
        self._dropped: list[int] = []
        self._connected: list[dict[str, Spec]] = []
        self._known: list[Mapping[str, Any]] = []
        self._fatal: dict[str, str] = {}
        self._hangs: dict[int | str, int] = {}
        self._trace = self._said = ""
        self.ended = 0
        """The number of processes that ended during a question."""
        self.left = 0
        """The number of processes that plugins started and did not end."""

    def load(self) -> Mapping[str, Any]:
        """Return the plugins and their functions; PluginError if one cannot be loaded."""
        if self._child is None:
            self._child = launch(self._limits, self._python, self._variables)
        # handles of an earlier process must not be taken for those of this one
        self._generation += 1
        self._defined = 0
        header = {"kind": "load", "paths": self._paths, "generation": self._generation}
        greeting = self._asked(Frame(header), PluginError, self._limits.starting).header
        # the worker's interpreter may have another release, whose messages differ
        if greeting.get("version") != __version__:
            raise PluginError(
                f"{self._python}: has quantizer {greeting.get('version')}, must have {__version__}. Install that one."
            )
        return greeting

    def connect(self, specs: Mapping[str, Spec]) -> list[Mapping[str, Any]]:
        """Return the functions that layers of plugins become under *specs*; PluginError if a layer has no spec."""
        self._connected.append(dict(specs))
        return self._connect(specs)

    def has_connected(self, specs: Mapping[str, Spec]) -> bool:
        """Return whether the process knows these specs already."""
        return any(known == dict(specs) for known in self._connected)

    def describe(self, functions: Sequence[Mapping[str, Any]]) -> list[int]:
        """Remember the description of functions; return their numbers."""
        self._known += functions
        return [*range(len(self._known) - len(functions), len(self._known))]

    def call(self, number: int, args: Sequence[Any], named: Mapping[str, Any]) -> Any:
        """Return the result of function *number*; FunctionError if it raised, EngineError if it ended its process."""
        return self._called({"kind": "call", "function": number, "place": asked_place()}, args, named)

    def flow(self, place: str, args: Sequence[Any], named: Mapping[str, Any]) -> Any:
        """Return the result of our `module:function` in the process of plugins; errors are those of a call.

        For code that calls functions of plugins many times. It counts as one call, with the limits of one call.
        """
        return self._called({"kind": "flow", "function": place}, args, named)

    def _called(self, asked: Mapping[str, Any], args: Sequence[Any], named: Mapping[str, Any]) -> Any:
        function = asked["function"]
        if self._hangs.get(function, 0) >= HANGS:
            raise EngineError(f"it was not called again: {HANGS} earlier calls did not end in time")
        self._revive()
        writer = Writer(self._number, _refuse)
        body = {"args": writer.write(tuple(args)), "named": writer.write(dict(named)), "pinned": is_within()}
        # The same call already ended a process. Other checks of the case must not each wait for it to end again.
        if self._fatal and (why := self._fatal.get(_digest(function, body, writer))) is not None:
            raise EngineError(why)  # before `_new_models` notes models as sent
        drop, self._dropped = self._dropped, []
        header = {**asked, **body, "define": self._new_models(), "drop": drop}
        try:
            reply = self._ask(Frame(header, arrays=writer.arrays), None)
            if (error := reply.header.get("error")) is not None:
                self._trace = str(reply.header.get("trace", ""))
                kind = UnsupportedError if reply.header.get("unsupported") else FunctionError
                raise kind(visible(str(error)))
            return Reader(reply.arrays, self._named, self._opaque).read(reply.header.get("result"))
        except (DiedError, FormatError) as err:
            why = visible(f"its process {err}" if isinstance(err, DiedError) else f"its process answered with {err}")
            # only calls that did not answer in time count, not those that crashed at once
            self._hangs[function] = self._hangs.get(function, 0) + ("did not answer" in str(err))
            # digests of calls that ended a process
            self._fatal[_digest(function, body, writer)] = why
            self.ended += 1
            self.close()
            raise EngineError(why) from None

    def damage(self) -> str:
        """Return which forbidden acts the process no longer detects; empty if it detects all, or has ended."""
        for what, said in PROBES.items():
            if self._child is None or self._owner != os.getpid():
                return ""
            writer = Writer(self._number, _refuse)
            body = {"args": writer.write(()), "named": writer.write({"x": torch.tensor([0, DUE])}), "pinned": False}
            try:
                found = self._ask(Frame({"kind": "probe", "function": what, **body}, arrays=writer.arrays), None)
            except DiedError:
                self.close()
                return "its process ended while it was asked whether it is whole."
            if (late := found.header.get("late")) is not None:
                return f"the process of plugins was damaged: {visible(str(late))}"
            # the probe does something forbidden: an answer without that error means that the checks no longer work
            if said not in str(found.header.get("error", "")):
                return f"the process of plugins was damaged: it calls a function right that {what}."
        return ""

    def told(self) -> str:
        """Return, only once, the last traceback and the last lines that the process printed; empty if none.

        Each line starts with a bar, and terminal control characters are escaped, so that a CI system reads
        no command in it.
        """
        printed = self._child.said()[-TOLD:] if self._child is not None else self._said
        trace, self._trace = self._trace, ""
        lines = [line for part in (trace, printed) if part.strip() for line in part.rstrip().splitlines()]
        return "\n".join(f"| {visible(line)}".rstrip() for line in lines)

    def close(self) -> None:
        """End the process; the next call starts another."""
        child, self._child = self._child, None
        if child is not None:
            self._said = child.said()[-TOLD:]
            self.left += child.close()

    def _revive(self) -> None:
        """Start a process if none is running, and bring it to the state of the previous one."""
        if self._owner != os.getpid():  # this is a fork; the original process goes on using the child
            self._child, self._owner = None, os.getpid()
        if self._child is not None:
            return
        known = [*self.load()["functions"]]
        for specs in self._connected:
            known += self._connect(specs)
        if known != self._known[: len(known)]:  # functions are called by their number, so the numbers must not change
            self.close()
            raise PluginError("the plugins registered other functions when they were loaded again.")

    def _connect(self, specs: Mapping[str, Spec]) -> list[Mapping[str, Any]]:
        numbers = {op: self._number(spec) for op, spec in specs.items()}
        header = {"kind": "connect", "specs": numbers, "define": self._new_models()}
        found = self._asked(Frame(header), PluginError, self._limits.starting).header["functions"]
        return [*found]

    def _asked(self, frame: Frame, kind: type[Exception], patience: float) -> Frame:
        """Return the answer; raise *kind* with a text that says what went wrong."""
        try:
            reply = self._ask(frame, patience)
        except DiedError as err:
            self.close()
            raise kind(f"the process of plugins {err}") from None
        if (error := reply.header.get("error")) is not None:
            self.close()
            raise kind(str(error))
        return reply

    def _ask(self, frame: Frame, patience: float | None) -> Frame:
        assert self._child is not None
        return self._child.ask(frame, patience)

    def _number(self, model: Model) -> int:
        """Return the number of a spec, scheme or platform. Equal ones share a number."""
        known = self._recent.get(id(model))
        if known is None:
            # equal models share a number; the address is only a shortcut to it
            text = json.dumps(write_model(model), sort_keys=True)
            number = self._numbers.setdefault(text, len(self._models))
            if number == len(self._models):
                self._models.append(model)
            known = self._recent[id(model)] = number, model
            # the model is kept with its number, so that its address is not reused
            while len(self._recent) > RECENT:
                self._recent.popitem(last=False)
        return known[0]

    def _new_models(self) -> list[Any]:
        """Return specs, schemes and platforms that this process has not seen yet, and note that it has."""
        new = range(self._defined, len(self._models))
        self._defined = len(self._models)
        return [[number, write_model(self._models[number])] for number in new]

    def _named(self, number: int) -> Model:
        # `type`, because True is an int; a negative number would count from the end
        if type(number) is not int or not 0 <= number < len(self._models):
            raise FormatError(f"a spec, scheme or platform of number {number!r}")
        return self._models[number]

    def _opaque(self, handle: tuple[int, int], name: str) -> Opaque:
        """Return a proxy for a value that stays in the process.

        Its type has the same name; the value is freed with the proxy.
        """
        # the name comes from the plugin: only an identifier may become a class name
        kind: type[Opaque] = type(name, (Opaque,), {}) if isinstance(name, str) and name.isidentifier() else Opaque
        made = kind(handle)
        # the next call tells the process to free the value
        weakref.finalize(made, self._dropped.append, handle[1])
        return made


def _refuse(value: Any) -> NoReturn:
    raise FunctionError(f"a {type(value).__name__} cannot be passed to a plugin: its functions must take plain data.")


def _digest(function: int | str, body: Mapping[str, Any], writer: Writer) -> str:
    found = hashlib.sha256(json.dumps([function, body], sort_keys=True).encode())
    for values in writer.arrays:
        found.update(values.tobytes())
    return found.hexdigest()
