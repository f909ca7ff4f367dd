"""The declared defect, if any, that explains a failing check of a case."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

import numpy as np
import torch

from quantizer.conformance.checks.window_sums import mean_sums
from quantizer.conformance.judging.matches_builtin import matches_builtin
from quantizer.conformance.judging.stated_results import is_as_stated
from quantizer.conformance.trials.ratios import ratios
from quantizer.conformance.trials.trial import Trial
from quantizer.core.defects import CASE_NAMES, Defect
from quantizer.core.expressions import parse
from quantizer.numerics.qparams import QParams
from quantizer.runtime.engines.protocol import Engine


def known_defect(trial: Trial, check: str) -> str | None:
    """Return `id: reason` of the declared defect that explains a failing *check*, or None.

    A defect of a real system excuses only results equal to those of the built-in functions, which were observed to
    agree with that system. A defect of a real engine holds only in versions in which it was seen. If it states what
    the engine computes, it excuses only that result. A known failure of a plugin is not compared with anything.
    """
    for defect in _declared(trial, check, trial.target.platform.defects):
        if defect.engine is not None:
            if concerns(defect, trial.engine, trial.target.platform.platform) and is_as_stated(defect, trial, check):
                return f"{defect.id}: {defect.reason}"
        elif type(defect) is not Defect or _matches(trial, check):
            return f"{defect.id}: {defect.reason}"
    return None


def _matches(trial: Trial, check: str) -> bool:
    """Return whether a failing *check* fails like the built-in functions; parts share the result of their stack."""
    if check not in trial.matches:
        trial.matches[check] = matches_builtin(trial, check)
    return trial.matches[check]


def unstable_defect(trial: Trial, check: str) -> str | None:
    """Return `id: reason` of the declared defect by which an engine's result changes between runs, or None."""
    platform = trial.target.platform
    unstable = [d for d in platform.defects if d.unstable and concerns(d, trial.engine, platform.platform)]
    return next((f"{defect.id}: {defect.reason}" for defect in _declared(trial, check, unstable)), None)


def _declared(trial: Trial, check: str, defects: Sequence[Defect]) -> Iterator[Defect]:
    """Yield the defects that name *check* and whose predicate holds for the case."""
    concerned = [defect for defect in defects if defect.concerns(trial.spec.op) and check in defect.checks]
    if concerned:
        predicates = [parse(defect.predicate) for defect in concerned]
        # some values take a run of the reference, so only those that a predicate names are computed
        asked = frozenset[str]().union(*(predicate.names for predicate in predicates))
        names = {**trial.bound, **case_values(trial, asked)}
        yield from (defect for defect, holds in zip(concerned, predicates, strict=True) if holds(names))


def is_overruled(defect: Defect, trial: Trial) -> bool:
    """Return whether an engine has its own defect for the case of a platform's *defect*.

    Then it need not show the platform's defect.
    """
    if defect.engine is not None:
        return False
    platform = trial.target.platform
    own = [other for other in platform.defects if other.engine and concerns(other, trial.engine, platform.platform)]
    return any(True for check in defect.checks for _ in _declared(trial, check, own))


def concerns(defect: Defect, engine: Engine, platform: str) -> bool:
    """Return whether *engine* has *defect*, in a version and with instruction sets where it was seen."""
    if defect.engine is None:
        return True
    seen = engine.version in defect.versions and defect.seen_with(engine.instructions)
    return seen and defect.engine == engine.identity(platform)


def case_values(trial: Trial, asked: Collection[str] = CASE_NAMES) -> dict[str, object]:
    """Return the values in *asked* that a defect's predicate may name, in addition to dimensions and attributes."""
    return {name: _CASE_VALUES[name](trial) for name in CASE_NAMES if name in asked}


def _input_scales(trial: Trial) -> list[float]:
    return [float(params.scale.max()) for params in trial.parameters.inputs.values()]


def _scales(trial: Trial) -> list[float]:
    return [*_input_scales(trial), *(float(params.scale.max()) for params in trial.parameters.outputs.values())]


def _spread(scales: Sequence[float]) -> float:
    """Return the largest of *scales* divided by the smallest; 1 if *scales* is empty."""
    return max(scales) / min(scales) if scales else 1.0


def _largest_sum(trial: Trial) -> float:
    """Return the largest |sum| of a linear or bilinear operator or a mean.

    For other operators of one input, the largest |centred code|. For all others, 0.
    """
    kind = trial.spec.error_model.kind
    if kind in ("linear", "bilinear"):
        return float(np.abs(trial.sums).max(initial=0.0))
    if kind == "mean" and (known := mean_sums(trial)) is not None:
        return float(np.abs(known[0]).max(initial=0.0))
    if len(trial.codes) != 1 or not trial.parameters.inputs:
        return 0.0
    return max((float(values.abs().max()) for values in trial.centred.values() if values.numel()), default=0.0)


def _largest_ratio(trial: Trial) -> float:
    """Return the largest ratio of scales: the product of input and weight scales over the output scale.

    Without products, the largest input scale over the output scale.
    """
    if trial.spec.error_model.kind != "bilinear":
        return max(ratios(trial.parameters).values(), default=0.0) if trial.parameters.outputs else 0.0
    factors = [trial.qparams(name).scale for name in trial.tensors if trial.spec.inputs[name].role != "bias"]
    return float(math.prod(float(scale.max()) for scale in factors)) / float(trial.output.scale)


def _largest_code(trial: Trial) -> float:
    """Return a bound on the largest |output code| before saturation; 0 except for sums and real inputs."""
    reads_reals = any(item.kind == "real" for item in trial.spec.inputs.values())
    if trial.spec.error_model.kind not in ("linear", "bilinear") and not reads_reals:
        return 0.0
    real = np.abs(trial.reference(trial.values)).max(initial=0.0) / float(trial.output.scale)
    return float(real) + abs(int(trial.output.zero_point))


def _largest_pair(trial: Trial) -> int:
    """Return twice the product of the largest |raw code| of each operand except the bias; 0 without products.

    The zero point counts as a code if padding adds it.
    """
    if trial.spec.error_model.kind != "bilinear":
        return 0
    names = [name for name in trial.codes if trial.spec.inputs[name].role != "bias"]
    largest = (int(trial.codes[name].to(torch.int64).abs().max()) for name in names if trial.codes[name].numel())
    return 2 * math.prod(max(code, _largest_zero([trial.qparams(n)])) for n, code in zip(names, largest, strict=True))


def _largest_zero(tensors: Iterable[QParams]) -> int:
    return max((int(params.zero_point.abs().max()) for params in tensors), default=0)


def _range_low(trial: Trial) -> float:
    """Return the highest lower end, at most 0, of calibrated input and output ranges, each in its own steps."""
    tensors = {**trial.parameters.inputs, **trial.parameters.outputs}
    ends = (
        min(trial.case.ranges[name][0], 0.0) / float(params.scale.min())
        for name, params in tensors.items()
        if name in trial.case.ranges
    )
    return max(ends, default=0.0)


_CASE_VALUES: Mapping[str, Callable[[Trial], object]] = {
    "activation_bits": lambda trial: trial.target.scheme.activation.bits,
    "lut_bits": lambda trial: trial.target.scheme.activation.lut_bits,
    "weight_bits": lambda trial: trial.target.scheme.weight.bits if trial.target.scheme.weight else 0,
    "data": lambda trial: trial.case.data.sets[0],
    "activation": lambda trial: trial.case.activation,
    "input_spread": lambda trial: _spread(_input_scales(trial)),
    "spread": lambda trial: _spread(_scales(trial)),
    "largest_sum": _largest_sum,
    "largest_ratio": _largest_ratio,
    "largest_code": _largest_code,
    "input_zero_point": lambda trial: _largest_zero(trial.parameters.inputs.values()),
    "output_zero_point": lambda trial: _largest_zero(trial.parameters.outputs.values()),
    "weight_zero_point": lambda trial: _largest_zero(c.params for c in trial.parameters.constants.values()),
    "range_low": _range_low,
    "terms": lambda trial: trial.terms,
    "fast": lambda trial: trial.target.scheme.activation.fast,
    "cut_axes": lambda trial: tuple(trial.case.tiles.sizes),
    "largest_pair": _largest_pair,
    "biased": lambda trial: any(trial.spec.inputs[name].role == "bias" for name in trial.case.shapes),
}
"""How each of CASE_NAMES is computed: a predicate names few of them, and sums take a run of the reference."""
