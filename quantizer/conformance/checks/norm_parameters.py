"""Further integers of a normalisation's quantize rule: shifts and multiplier of the variance."""

from __future__ import annotations

import math
from collections.abc import Iterator

from quantizer.conformance.checks.multiplier_rules import is_replaced
from quantizer.conformance.checks.norm_interval import is_integer
from quantizer.conformance.checks.norm_rows import norm_count
from quantizer.conformance.expected import norms as expected_norm
from quantizer.conformance.expected.parameters import Expected
from quantizer.conformance.kinds import has
from quantizer.conformance.trials.finding import Finding
from quantizer.conformance.trials.trial import Trial


def norm_factors(trial: Trial) -> dict[str, Expected]:
    """Return the parameters of the normalised value; empty for other operators.

    Its scale times the scale of gamma is the scale of beta.
    """
    if trial.spec.error_model.kind != "normalization":
        return {}
    return {"normalized": expected_norm.normalized(norm_count(trial), trial.target.scheme, trial.target.platform)}


def norm_findings(trial: Trial) -> Iterator[Finding]:
    """Yield findings on the numbers of an integer normalisation, compared with the platform's rule.

    A plugin may use names of its own.
    """
    platform = trial.target.platform
    if trial.spec.error_model.kind != "normalization" or not is_integer(trial):
        return
    mean = trial.spec.error_model.centred
    wanted = expected_norm.table_numbers(norm_count(trial), trial.target.scheme, platform, mean=mean)
    if is_replaced(trial) and wanted.keys().isdisjoint(trial.parameters.numbers):
        return
    for name, number in wanted.items():
        got = trial.parameters.numbers.get(name)
        ratio = 0.0 if got == number else math.inf
        yield Finding(name, ratio, f"{number}", f"{got}", "the platform's rule for N elements")
    if not has(trial.parameters, "inverse_root"):
        yield Finding("table inverse_root", math.inf, "a table", "nothing", "the platform looks inverse roots up")
