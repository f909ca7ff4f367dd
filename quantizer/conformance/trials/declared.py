"""The numbers and stages by which a case is judged. They come from the platform's own functions, not from a plugin.

The operator, the scheme and the platform decide how a case is judged. A function under test cannot change this by
providing numbers of another kind: `parameters` then fails and names both kinds, and the codes are judged by the numbers
of the platform's rule. A stage that is shown but not declared is a failure.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import replace

from quantizer.conformance.kinds import NOTHING, OF_ONE_INPUT, Kind, kind_of, takes
from quantizer.conformance.trials.finding import Finding
from quantizer.conformance.trials.trial import Trial
from quantizer.core.errors import QuantizerError
from quantizer.numerics.qparams import Parameters, Staged
from quantizer.numerics.stage_formats import declared_stages
from quantizer.ops import REGISTRY
from quantizer.ops.registry import BUILT_IN
from quantizer.plugins.layer_parameters import LAYER_ATTRS


def as_declared(trial: Trial) -> Trial:
    """Return *trial* as the platform's arithmetic judges its codes.

    This is *trial* itself if the functions that ran are the platform's own or provide numbers of its kind. Otherwise it
    is a copy with the same codes and the numbers of the platform's rule. `known_stages` says which stages may be shown.
    """
    judged = with_declared_numbers(trial)
    if judged is not trial:
        judged.outcome = trial.outcome
    return judged


def with_declared_numbers(trial: Trial) -> Trial:
    """Return *trial* if its numbers are of the platform's kind, else a copy with the platform's numbers."""
    rule = REGISTRY.find(trial.spec.op, "quantize", trial.target.platform.places)
    if rule is None or rule.origin == BUILT_IN:
        return trial
    provided = _known_numbers(trial)
    if accepts(trial, kind_of(provided)):
        return trial if provided is trial.parameters else _with_parameters(trial, provided)
    own = trial.declared
    return _with_parameters(
        trial, replace(trial.parameters, rescale=own.rescale, tables=own.tables, numbers=own.numbers, fused=own.fused)
    )


def accepts(trial: Trial, provided: Kind) -> bool:
    """Return whether the platform's arithmetic, or the reading chosen by the run's owner, accepts such numbers."""
    return any(provided == kind or takes(trial.target.reading, kind, provided) for kind in _kinds(trial))


def kind_findings(trial: Trial) -> Iterator[Finding]:
    """Yield a finding for each kind of number from a replaced rule that the platform's arithmetic does not take."""
    rule = REGISTRY.find(trial.spec.op, "quantize", trial.target.platform.places)
    if rule is None or rule.origin == BUILT_IN:
        return
    provided, taken = kind_of(_known_numbers(trial)), _kinds(trial)
    if provided != NOTHING and not accepts(trial, provided):
        family = trial.spec.quantization.family
        text = f"the numbers that the platform takes for family {family!r} of the spec; provide all of these, or none"
        yield Finding("numbers", float("inf"), " or ".join(map(str, taken)), f"{provided}", text)


def _with_parameters(trial: Trial, parameters: Parameters) -> Trial:
    """Return a copy of *trial* that is judged by *parameters*."""
    other = copy.copy(trial)
    other.parameters = parameters
    # the codes stay those that ran
    other.codes = trial.codes
    # cached under the old parameters
    other.__dict__.pop("variant", None)
    return other


def known_stages(trial: Trial) -> set[str] | None:
    """Return the stages that a plugin's forward may show; None if the platform's own forward runs or shows no stages.

    They come from the spec or the platform, else from the platform's own forward on the case.
    """
    forward = REGISTRY.find(trial.spec.op, "quantized", trial.target.platform.places)
    if not trial.outcome.stages or forward is None or forward.origin == BUILT_IN:
        return None
    (output,) = [*trial.spec.outputs][-1:]
    # the stage of the output is the result itself
    declared = set(declared_stages(trial.spec, trial.target.platform)) - {output}
    return declared or _stages(trial)


def _stages(trial: Trial) -> set[str] | None:
    """Return the stages that the platform's own forward shows; None if it computes no such case."""
    forward = REGISTRY.built_in(trial.spec.op, "quantized", trial.target.platform.places)
    if forward is None or forward.origin != BUILT_IN:
        return set()
    try:
        outcome = forward.function(**trial.codes, parameters=trial.declared, **trial.case.attrs)
    except QuantizerError:
        return None
    return set(outcome.stages) if isinstance(outcome, Staged) else set()


def _known_numbers(trial: Trial) -> Parameters:
    """Return the provided numbers; if a layer uses other names, only the integers that the arithmetic takes."""
    provided = trial.parameters
    if LAYER_ATTRS not in provided.extra:
        return provided
    taken = frozenset().union(*(kind.numbers for kind in _kinds(trial)))
    if provided.numbers.keys() <= taken:
        return provided
    return replace(provided, numbers={name: number for name, number in provided.numbers.items() if name in taken})


def _kinds(trial: Trial) -> tuple[Kind, ...]:
    """Return the kinds of numbers that the platform's arithmetic takes.

    A new operator is judged by its spec, that is by the numbers of the default rule. A function of one input is
    judged by a table that the platform's method builds.
    """
    own = kind_of(trial.declared)
    reference = REGISTRY.built_in(trial.spec.op, "reference")
    shipped = reference is not None and reference.origin == BUILT_IN
    if shipped or own != NOTHING or trial.spec.error_model.kind not in OF_ONE_INPUT or len(trial.codes) != 1:
        return (own,)
    rule = trial.target.platform.tables
    forms = ["integer entries"]
    if rule.entries != "full" or rule.segments is not None:
        forms.append(f"integer entries, read between two, {rule.interpolation}")
    return own, *(replace(NOTHING, tables=frozenset({("lut", form)})) for form in forms)
