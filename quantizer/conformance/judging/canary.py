"""The canary: a fault planted at the end of a run that the judge must find; a judge that does not was damaged.

A function under test runs in the same process as the judge and may have changed it. A case that passed is judged once
more with one changed function, by the item's own code and through pytest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from torch import Tensor

from quantizer.conformance.judging.known_defects import known_defect
from quantizer.conformance.trials.trial import Trial
from quantizer.core.case import Case
from quantizer.core.verdict import Verdict
from quantizer.numerics.parameters import default_parameters
from quantizer.numerics.qparams import Parameters, Staged
from quantizer.ops import REGISTRY
from quantizer.ops.registry import Function, FunctionKind
from quantizer.runtime.engines.external import ExternalEngine
from quantizer.runtime.engines.protocol import Call, Engine

FAR = 1 << 20
"""A change of codes that leaves every format of up to 16 bits."""
NEAR = 1
"""A change of codes that leaves an interval of one code."""
CODES = ("arithmetic", "accuracy", "engine")
"""The checks that judge codes by their allowed values; a comparison of two runs would not see a constant step."""


@dataclass(frozen=True)
class Witness:
    """A case that passed, and the checks in which nothing would excuse a fault."""

    case: Case
    checks: tuple[str, ...]
    step: int
    """The number of codes by which a planted fault moves results; no interval of the case is wider."""


def witness(trial: Trial, verdicts: Sequence[Verdict]) -> Witness | None:
    """Return the trial's case if a planted fault must show in it; None if vacuous or excused elements could hide it."""
    sound = {v.check: v for v in verdicts if v.status == "pass" and v.elements > 0 and not v.vacuous}
    names = [name for name in ("parameters", "float", *CODES) if name in sound]
    names = [name for name in names if known_defect(trial, name) is None]
    # a change of the float result does not show in infinity or NaN
    if "float" in names and not np.isfinite(trial.y).all():
        names.remove("float")
    clamped = trial.case.activation != "none"  # a clip after the function may undo the change
    if not names or clamped or trial.refusal is not None:
        return None
    sharp = "arithmetic" in names and sound["arithmetic"].width <= 1 and trial.spec.outputs["y"].kind == "value"
    return Witness(trial.case, tuple(names), NEAR if sharp else FAR)


@dataclass(frozen=True)
class Planted:
    """A fault in one function of an operator on a platform."""

    what: str
    """The function, as a message names it."""
    checks: tuple[str, ...]
    """At least one of these must fail."""
    block: Callable[[], AbstractContextManager[None]]
    """Context manager: while it is open, the fault is active."""
    engine: Callable[[Engine], Engine]
    """Replaces a real engine in the canary's run."""


def faults(found: Witness, op: str, platform: str, engine: Engine) -> Iterator[Planted]:
    """Yield a fault in each function that the checks of *found* judge."""
    codes = tuple(name for name in found.checks if name in CODES)
    if codes and isinstance(engine, ExternalEngine):
        yield Planted(f"{engine.name} on {platform}", codes, nullcontext, lambda own: _Moved(own, found.step))
    elif codes:
        yield _in_registry(op, "quantized", platform, codes, lambda made: _moved(made, found.step))
    if "parameters" in found.checks and not isinstance(engine, ExternalEngine):
        yield _in_registry(op, "quantize", platform, ("parameters",), _doubled)
    if "float" in found.checks and not isinstance(engine, ExternalEngine):
        yield _in_registry(op, "reference", platform, ("float",), _far)


def _in_registry(
    op: str, kind: FunctionKind, platform: str, checks: tuple[str, ...], change: Callable[[Any], Any]
) -> Planted:
    entry = REGISTRY.find(op, kind, platform)
    original: Function = default_parameters if entry is None else entry.function

    def changed(*args: Any, **named: Any) -> Any:
        return change(original(*args, **named))

    def block() -> AbstractContextManager[None]:
        # stages stay shown or hidden as they were; the judge never uses a changed rule
        same = entry if kind == "quantized" else None
        return REGISTRY.overridden(op, kind, changed, platform, like=same)

    return Planted(f"{op}.{kind} on {platform}", checks, block, lambda own: own)


def _moved(made: Any, step: int) -> Any:
    """Return an integer forward's result with every code *step* higher; pieces and stages do not change."""
    if isinstance(made, Staged):
        return replace(made, codes=_moved(made.codes, step))
    # int64: a step of 2**20 leaves codes of 8 bits in their own type as they are
    return made.long() + step if isinstance(made, Tensor) else tuple(_moved(piece, step) for piece in made)


def _doubled(made: Parameters) -> Parameters:
    """Return parameters with twice the scale of the output."""
    wrong = {name: replace(params, scale=params.scale * 2) for name, params in made.outputs.items()}
    return replace(made, outputs=wrong)


def _far(made: Any) -> Any:
    """Return a float forward's result with a large error."""
    if isinstance(made, Tensor):
        return made + (1.0 + made.abs()) * FAR if made.is_floating_point() else _moved(made, FAR)
    return tuple(_far(piece) for piece in made)


class _Moved:
    """A real engine whose codes are all *step* too high."""

    def __init__(self, own: Engine, step: int) -> None:
        self._own, self._step = own, step

    def __getattr__(self, name: str) -> Any:
        return getattr(self._own, name)

    def run(self, call: Call, codes: Mapping[str, Tensor], parameters: Parameters) -> Staged:
        """Return the engine's codes, moved."""
        made: Staged = _moved(self._own.run(call, codes, parameters), self._step)
        return made
