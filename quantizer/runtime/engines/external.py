"""A real system as an engine: cases are lowered here and run in a separate process."""

from __future__ import annotations

import functools
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from quantizer.core.errors import EngineError
from quantizer.core.levels import HOST
from quantizer.core.library import load_library
from quantizer.core.platforms import Platform
from quantizer.core.processor import instructions
from quantizer.core.schemes import Scheme
from quantizer.core.spec import Spec
from quantizer.numerics.qparams import Parameters, Staged
from quantizer.numerics.request import Request
from quantizer.runtime.engines.builtin import BuiltinEngine
from quantizer.runtime.engines.catalogue import Chosen
from quantizer.runtime.engines.frames import Array, Job
from quantizer.runtime.engines.lowering import Join, Lowered, Lowering, Wires, load_lowering
from quantizer.runtime.engines.pins import held_to, instruction_sets, running_variant, variables
from quantizer.runtime.engines.process import OverLimitError, Worker
from quantizer.runtime.engines.protocol import Asked, Call

Outputs = Callable[[], tuple[Array, ...]]
STOPPED = 3
"""How many cases of one operator may break a limit. After that the engine is no longer asked for this operator."""


class ExternalEngine:
    """Runs the engine *chosen* in a process of its own. The platform's rules provide the parameters.

    *level* is the instruction-set level (quantizer.core.levels) to which its libraries are restricted, if they have a
    switch for it. *threads*: cases run again on each of these numbers of threads, if the engine can set the number.
    """

    def __init__(self, chosen: Chosen, level: str = HOST, threads: tuple[int, ...] = ()) -> None:
        self._chosen = chosen
        self._rules = BuiltinEngine()
        self._worker = Worker(
            chosen.entry.worker,
            pins=variables(chosen.backend, level),
            command=(chosen.missing is None and chosen.command) or (),
            expected=None if chosen.missing else chosen.greeting,
        )
        self._stopped: Counter[str] = Counter()
        self._last = ""
        self.threads = threads if chosen.entry.threads else ()
        self.isa = held_to(chosen.backend, level)
        self.instructions = instruction_sets(chosen.backend, self.isa, instructions(), os.environ)
        self.name = chosen.name
        self.version = chosen.version
        self.checks = () if chosen.missing else self._checks()

    @functools.cached_property
    def _lowering(self) -> Lowering:
        return load_lowering(self._chosen.lowering)

    def _checks(self) -> tuple[str, ...]:
        """Return the checks that its form allows; `float` where it runs float models."""
        said = self._chosen.greeting
        # without a greeting the form is that of this system alone, and says it all
        without = () if said is None or said.floats else ("float",)
        return tuple(name for name in self._lowering.CHECKS if name not in without)

    def identity(self, platform: str) -> str:
        """Return the system and its variant on *platform*."""
        return self._chosen.identity(platform)

    def supports(self, spec: Spec, scheme: Scheme, platform: Platform) -> str | None:
        """Return why an operator does not run: no engine, an engine of another platform, or no such kernel."""
        if (missing := self._chosen.missing) is not None:
            return missing
        if scheme.grid != "uniform":
            return f"scheme {scheme.name} has {scheme.grid_words}: no form that engines read holds them"
        if not self._chosen.computes(platform.platform, named=True):
            return f"engine {self.name} does not compute platform {platform.platform}"
        said = self._chosen.greeting
        if said is not None and said.operators and spec.op not in said.operators:
            unknown = [name for name in said.operators if name not in load_library().specs]
            named = f"; no shipped operator has the name {unknown[0]!r} of its OPERATORS" if unknown else ""
            return f"engine {self.name} has no {spec.op}{named}"
        return self._lowering.supports(spec, scheme, platform, self._variant(platform.platform))

    def quantize(self, request: Request) -> Parameters:
        """Return the parameters of the platform's rule."""
        return self._rules.quantize(request)

    def run_float(self, call: Call, operands: Mapping[str, Tensor]) -> Tensor:
        """Return the system's float forward."""
        asked = Asked(call, operands, None)
        return self._answer(asked, self._lowered(asked))

    def run(self, call: Call, codes: Mapping[str, Tensor], parameters: Parameters) -> Staged:
        """Return the system's codes."""
        asked = Asked(call, codes, parameters)
        return Staged(self._answer(asked, self._lowered(asked)), {})

    def run_each(self, several: Sequence[Asked]) -> list[Callable[[], Tensor]]:
        """Ask for *several* runs in one message; return for each a function that gives its codes or float result.

        The function raises what `run` or `run_float` raises. A user's command gets one run per message, because it need
        not accept several.
        """
        lowered = [self._lowered_or_error(asked) for asked in several]
        jobs = [one.job for one in lowered if isinstance(one, Lowered)]
        # an operator that broke a limit too often is not sent at all: `_run` refuses each of its cases
        single = bool(self._chosen.given) or any(self._stopped[asked.call.spec.op] >= STOPPED for asked in several)
        made = iter(() if single or len(jobs) < 2 else self._worker.run_each(jobs) or ())
        outputs = [next(made, None) if isinstance(one, Lowered) else None for one in lowered]
        return [functools.partial(self._answer, *each) for each in zip(several, lowered, outputs, strict=True)]

    @property
    def joins(self) -> bool:
        """Return whether the system's form holds several operators in one model."""
        return self._chosen.missing is None and hasattr(self._lowering, "join")

    def lowered(self, asked: Asked) -> Lowered:
        """Return the model of one operator and its inputs."""
        return self._lowered(asked)

    def joined(self, jobs: Sequence[Job], wires: Wires, outputs: Sequence[int]) -> tuple[Array, ...]:
        """Return the results *outputs* of one model that joins all *jobs*, unconverted."""
        join: Join = getattr(self._lowering, "join")  # noqa: B009 - only some forms have it
        return self._worker.run(join(jobs, wires, outputs))

    def alone(self, job: Job) -> tuple[Array, ...]:
        """Return the results of one job."""
        return self._worker.run(job)

    def accumulate(self, call: Call, codes: Mapping[str, Tensor], parameters: Parameters) -> Tensor | None:
        """Return the system's sums, where it shows them."""
        if "exact" not in self.checks:
            return None
        lowered = self._lowering.lower_sums(call, codes, parameters, self._variant(parameters.platform.platform))
        return None if lowered is None else _whole(self._run(call, lowered), "sums")

    def close(self) -> None:
        """End the worker; the next case starts another."""
        self._worker.close()

    def _variant(self, platform: str | None) -> str:
        home = self._chosen.entry.variant_of_platform
        variant = self._chosen.variant or home.get(platform or "", next(iter(home.values()), ""))
        return running_variant(self._chosen.backend, variant, self.instructions)

    def _lowered(self, asked: Asked) -> Lowered:
        call, operands, parameters = asked.call, asked.operands, asked.parameters
        if parameters is None:
            return self._lowering.lower_float(call, operands, self._variant(next(iter(call.places), None)))
        made = self._lowering.lower(call, operands, parameters, self._variant(parameters.platform.platform))
        if asked.threads == 1:
            return made
        return replace(made, job=replace(made.job, options={**made.job.options, "threads": asked.threads}))

    def _lowered_or_error(self, asked: Asked) -> Lowered | Exception:
        try:
            return self._lowered(asked)
        except Exception as err:  # noqa: BLE001 - it is raised where the result is read
            return err

    def _answer(self, asked: Asked, lowered: Lowered | Exception, outputs: Outputs | None = None) -> Tensor:
        """Return the result of a run; *outputs* returns the outputs if the job was already sent."""
        if isinstance(lowered, Exception):
            raise lowered
        found = self._run(asked.call, lowered, outputs)
        # real numbers stay as they are, codes must be integers
        return torch.from_numpy(found) if asked.parameters is None else _whole(found, "codes")

    def _run(self, call: Call, lowered: Lowered, outputs: Outputs | None = None) -> Array:
        op = call.spec.op
        if self._stopped[op] >= STOPPED:
            raise EngineError(
                f"the engine is no longer asked for {op}: {STOPPED} cases broke a limit, the last: {self._last}"
            )
        try:
            made = self._worker.run(lowered.job) if outputs is None else outputs()
            return np.array(lowered.result(made), order="C")
        except OverLimitError as err:
            self._stopped[op] += 1
            self._last = str(err)
            raise


def _whole(values: Array, what: str) -> Tensor:
    """Return *values* as int64; EngineError if they are not integers. Values are never rounded here."""
    if values.dtype.kind not in "iu" and not _holds_integers(values):
        raise EngineError(f"the engine gave {what} of type {values.dtype}, one of them no integer")
    return torch.from_numpy(values.astype(np.int64))


def _holds_integers(values: Array) -> bool:
    return values.dtype.kind == "f" and bool(np.isfinite(values).all() and (values == np.round(values)).all())
