"""Tells whether float32 operations in any order explain an engine, by the intervals of an enclosing platform."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import torch
from torch import Tensor

from quantizer.conformance.judging.judge import judge
from quantizer.conformance.model_cases import GIVEN, given_of
from quantizer.conformance.probe.question import Array, Question
from quantizer.conformance.trials.trial import Trial
from quantizer.core.case import Case, DataRecipe, TilePlan
from quantizer.numerics.qparams import Parameters, Staged
from quantizer.runtime.engines.builtin import BuiltinEngine
from quantizer.runtime.engines.protocol import Call

CHECK = ("arithmetic",)


class Recorded(BuiltinEngine):
    """An engine that returns recorded codes."""

    def __init__(self, codes: Array) -> None:
        self._codes = codes

    # the protocol's arguments
    def run(self, call: Call, codes: Mapping[str, Tensor], parameters: Parameters) -> Staged:  # noqa: ARG002
        """Return the recorded codes."""
        return Staged(torch.from_numpy(self._codes.astype(np.int64)), {})


def enclosed(answers: Iterable[tuple[Question, Array]]) -> bool:
    """Return whether the platform of each question, an enclosing one, allows every code of its answer."""
    return all(not _failing(question, codes) for question, codes in answers)


def _failing(question: Question, codes: Array) -> bool:
    shapes = {name: tuple(values.shape) for name, values in question.codes.items()}
    if any(values.is_floating_point() for values in question.codes.values()):
        return True
    given = {name: given_of(question.params(name), shapes[name], values) for name, values in question.codes.items()}
    target = question.target
    case = Case(
        target.spec.op,
        target.scheme.name,
        target.platform.platform,
        shapes,
        question.attrs,
        {},
        "channels_first",
        TilePlan({}),
        DataRecipe(GIVEN, 0, given={**given, "y": given_of(question.output, codes.shape, None)}),
    )
    return any(verdict.failing for verdict in judge(Trial(target, case, Recorded(codes)), CHECK))
