"""Arithmetic of normalisations: moments, inverse root, normalised value and output, each from the codes before it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quantizer.conformance.bounds.rounding import code_interval
from quantizer.conformance.checks.norm_interval import (
    NORMAL_PLACES,
    affine,
    effective_beta,
    exact_error,
    final_interval,
    is_integer,
)
from quantizer.conformance.checks.norm_rows import neighbours_of, row_codes
from quantizer.conformance.checks.softmax import Exact, final_codes
from quantizer.conformance.kinds import has
from quantizer.conformance.trials.elements import Allowed, judge_codes, place_of_largest
from quantizer.conformance.trials.trial import Trial
from quantizer.core.verdict import Verdict, Worst, inconclusive

Array = NDArray[Any]
CHECK = "arithmetic"
ROOT_BITS = 32
"""Significant bits of the exact platform's square root."""
UNIT_BITS = 30
"""Fraction bits of the normalized value."""
CODE_LIMIT = 1 << 62


def normalization_arithmetic(trial: Trial) -> Verdict:
    """Judge each shown stage from the codes before it, then the output.

    If no stages are shown, the sum of all stage errors bounds the output.
    """
    stages = {name: values.numpy() for name, values in trial.outcome.stages.items()}
    if not is_integer(trial) and {"root", "exponent", "normalized"} <= stages.keys():
        return _exact_platform(trial, stages)
    wanted = {"mean"} if trial.spec.error_model.centred else {"factor"}
    if is_integer(trial) and wanted | {"variance", "root", "normalized"} <= stages.keys():
        return _ByTable(trial, stages).verdict()
    return _without_stages(trial)


def _moments(trial: Trial) -> tuple[Array, Array, int]:
    """Return N * x - sum x and N * sum x**2 - (sum x)**2 of the codes, exact integers in rows of N, and N.

    Without a mean: N * x and N * sum x**2 of centred codes.
    """
    codes = row_codes(trial)
    count = codes.shape[1]
    if not trial.spec.error_model.centred:
        return count * codes, count * (codes * codes).sum(axis=1, keepdims=True), count
    # deviations do not depend on a common offset; without it the squares stay small
    codes = codes - codes.min(axis=1, keepdims=True)
    total = codes.sum(axis=1, keepdims=True)
    return count * codes - total, count * (codes * codes).sum(axis=1, keepdims=True) - total * total, count


def _stage(trial: Trial, name: str, got: Array, low: Array, high: Array, made_of: str) -> Verdict:
    return judge_codes(CHECK, trial, Allowed(low, high, made_of=made_of), got=got, tensor=name)


def _rounded_stage(
    trial: Trial, name: str, got: Array, value: Array, exact: Exact, ends: tuple[int, int], made_of: str
) -> Verdict:
    """Judge a stage that rounds *value* once in the platform's mode and clamps it."""
    mode = trial.target.platform.rounding
    low, high = code_interval(value, qmin=ends[0], qmax=ends[1], rounding=mode, exact=exact)
    return _stage(trial, name, got, low, high, f"{mode} of {made_of}")


def _exact_platform(trial: Trial, stages: dict[str, Array]) -> Verdict:
    """Judge root, quotient and output: floored to 32 significant bits, rounded to 2**-30, and rounded to a code."""
    deviation, spread, count = _moments(trial)
    scale, epsilon = Fraction(float(trial.parameters.inputs["x"].scale)), Fraction(float(trial.bound["epsilon"]))
    offset = epsilon * count * count / scale**2
    # many rows of a large tensor have the same spread
    known = {value: _floored_root(int(value) + offset) for value in set(spread.ravel().tolist())}
    roots = [known[value] for value in spread.ravel().tolist()]
    # the exponent first, because the root depends on it
    for place, name in enumerate(("exponent", "root")):
        wanted = np.array([pair[1 - place] for pair in roots], dtype=np.int64).reshape(spread.shape)
        made_of = f"sqrt(N**2 * (variance + epsilon)) in steps of x, {ROOT_BITS} bits, down"
        verdict = _stage(trial, name, stages[name], wanted, wanted, made_of)
        if verdict.failing:
            return verdict
    root, exponent = (np.broadcast_to(stages[name], deviation.shape) for name in ("root", "exponent"))
    value = deviation * np.exp2(exponent + float(UNIT_BITS)) / np.maximum(root, 1) * (root > 0)

    def exact(index: tuple[int, ...]) -> Fraction:
        places = Fraction(2) ** int(exponent[index] + UNIT_BITS)
        return Fraction(int(deviation[index])) * places / max(int(root[index]), 1) * int(root[index] > 0)

    ends = (-CODE_LIMIT, CODE_LIMIT)
    verdict = _rounded_stage(trial, "normalized", stages["normalized"], value, exact, ends, "deviation / root * 2**30")
    return verdict if verdict.failing else _exact_output(trial, stages["normalized"])


def _floored_root(square: Fraction) -> tuple[int, int]:
    """Return (mantissa, places) of sqrt(square): floor(sqrt(square) * 2**places) in [2**31, 2**32); (0, 0) of 0."""
    if square == 0:
        return 0, 0
    # a guess from the bit lengths; the loops correct it
    places = ROOT_BITS + (square.denominator.bit_length() - square.numerator.bit_length()) // 2
    while (root := math.isqrt(math.floor(square * Fraction(4) ** places))) >= 1 << ROOT_BITS:
        places -= 1
    while root < 1 << (ROOT_BITS - 1):
        places += 1
        root = math.isqrt(math.floor(square * Fraction(4) ** places))
    return root, places


def _exact_output(trial: Trial, normalized: Array) -> Verdict:
    scale = Fraction(float(trial.output.scale))
    normalized = normalized.reshape(trial.output_shape)
    gamma, gamma_scale = affine(trial, "gamma", normalized.shape)
    beta, beta_scale = affine(trial, "beta", normalized.shape)
    first = normalized * gamma * gamma_scale * (2.0**-UNIT_BITS / float(scale))
    second = beta * beta_scale / float(scale)

    def exact(index: tuple[int, ...]) -> Fraction:
        product = Fraction(int(normalized[index]) * int(gamma[index])) * Fraction(float(gamma_scale[index]))
        total: Fraction = product / 2**UNIT_BITS + int(beta[index]) * Fraction(float(beta_scale[index]))
        return total / scale

    made_of = f"{trial.target.platform.rounding} of (normalized * gamma + beta) / s_y"
    return final_codes(trial, first + second, 0.0, exact, made_of, np.abs(first) + np.abs(second))


@dataclass(frozen=True)
class _ByTable:
    """Stages of integers: mean, shifted or divided variance, inverse root in units of 2**-15, normalised codes."""

    trial: Trial
    stages: dict[str, Array]

    @cached_property
    def codes(self) -> Array:
        return row_codes(self.trial)

    @cached_property
    def centre(self) -> Array:
        """The provided mean; 0 if the operator does not subtract it."""
        return self.stages["mean"] if self.centred else np.zeros((len(self.codes), 1), dtype=np.int64)

    @property
    def centred(self) -> bool:
        return self.trial.spec.error_model.centred

    @property
    def narrow(self) -> bool:
        """Whether squares are shifted before they are summed: with 8 bits, except in a root mean square."""
        return self.centred and self.trial.target.scheme.activation.bits <= 8

    @property
    def numbers(self) -> tuple[int, int, int]:
        provided = self.trial.parameters.numbers
        return provided.get("variance_shift", 0), provided["norm_multiplier"], provided["norm_shift"]

    def verdict(self) -> Verdict:
        """Return the verdict of the first stage that fails, or the verdict of the output."""
        if not has(self.trial.parameters, "inverse_root") or not has(self.trial.parameters, "scaled_deviations"):
            return inconclusive(CHECK, "no table of inverse roots or no shifts were provided")
        own = [] if self.narrow else [self.factor, self.deviation] if self.centred else [self.factor]
        judges = [*([self.mean] if self.centred else []), self.variance, self.root, *own, self.normalized]
        for judge in judges:
            if (verdict := judge()).failing:
                return verdict
        return self.output()

    def mean(self) -> Verdict:
        """Judge the mean of the codes, an integer."""
        count, total = self.codes.shape[1], self.codes.sum(axis=1, keepdims=True)
        params = self.trial.parameters.inputs["x"]
        return _rounded_stage(
            self.trial,
            "mean",
            self.stages["mean"],
            total / count,
            lambda i: Fraction(int(total[i]), count),
            (params.qmin, params.qmax),
            "the mean of the codes",
        )

    def variance(self) -> Verdict:
        """Judge the squares of deviations from the provided mean: 8 bits shift their sum, 16 bits floor their mean."""
        deviation = self.codes - self.centre
        squares = (deviation * deviation).sum(axis=1, keepdims=True)
        shift = self.numbers[0]
        if self.narrow:
            wanted = squares >> shift if shift >= 0 else squares << -shift
            return _stage(
                self.trial, "variance", self.stages["variance"], wanted, wanted, f"sum of squares * 2**-{shift}, down"
            )
        wanted = squares // self.codes.shape[1]
        return _stage(self.trial, "variance", self.stages["variance"], wanted, wanted, "mean of squares, down")

    def root(self) -> Verdict:
        """Judge the root: the provided table at variance / 4**k, interpolated at 15 binary places, shifted by k.

        Lower bits of the place are dropped, which raises the value by less than 2**-15 of the difference of two
        entries. Where the platform declares significant bits, an integer in units of 2**-15 must have them as well.
        """
        variance, entries = self.stages["variance"], self.trial.parameters.tables["inverse_root"].entries.numpy()
        first = self.trial.parameters.tables["inverse_root"].first
        halves = (np.frexp(np.maximum(variance, 1).astype(np.float64))[1] - 1) // 2
        place = np.maximum(variance, 1) / 4.0**halves * first
        index = np.clip(np.floor(place).astype(np.int64) - first, 0, entries.size - 2)
        drop = entries[index] - entries[index + 1]
        value = (entries[index] - drop * (place - index - first)) / 2.0**halves
        # nothing is dropped if the place has no more than 15 bits
        spare = np.where(np.exp2(15.0) * place % 1 == 0, 0.0, drop * 2.0**-15 / 2.0**halves)
        low, high = (np.floor(end + 0.5).astype(np.int64) for end in (value, value + spare))
        verdict = _stage(
            self.trial, "root", self.stages["root"], low, high, "the provided table at the variance, half up"
        )
        return verdict if verdict.failing else self.significance(value, spare) or verdict

    def significance(self, value: Array, spare: Array) -> Verdict | None:
        """Judge that the root has as many significant bits as the platform declares, in any unit."""
        declared = self.trial.target.platform.significant_bits.get("inverse_root")
        if declared is None:
            return None
        bits, root = int(declared({"activation_bits": self.trial.target.scheme.activation.bits})), self.stages["root"]
        away = np.maximum(value - root, root - value - spare) / (value * 2.0**-bits) * (self.stages["variance"] > 0)
        if not away.size or float(away.max()) <= 1.0:
            return None
        index = place_of_largest(away)
        worst = Worst(
            "root",
            index,
            f"{value[index]:.6g} * 2**-15",
            f"{int(root[index])} * 2**-15",
            f"{bits} significant bits, the format that the platform declares",
        )
        failed = int(np.count_nonzero(away > 1.0))
        return Verdict(CHECK, "fail", ratio=float(away.max()), elements=away.size, failed=failed, worst=worst)

    def factor(self) -> Verdict:
        """Judge the factor of 16 bits: the provided root times the provided multiplier."""
        root, (_, multiplier, shift) = self.stages["root"], self.numbers
        return _rounded_stage(
            self.trial,
            "factor",
            self.stages["factor"],
            root * float(multiplier) * 2.0**-shift,
            lambda i: Fraction(int(root[i]) * multiplier) / Fraction(2) ** shift,
            (0, (1 << 16) - 1),
            "root * m * 2**-n",
        )

    def deviation(self) -> Verdict:
        """Judge the deviation of 16 bits: half of the distance from the provided mean, floored."""
        wanted = (self.codes - self.centre) >> 1
        return _stage(self.trial, "deviation", self.stages["deviation"], wanted, wanted, "(x - mean) / 2, down")

    def normalized(self) -> Verdict:
        """Judge the deviation times the provided root or factor: shifted, clamped to codes of the output's width."""
        _, multiplier, shift = self.numbers
        if self.narrow:
            product, places = (
                (self.codes - self.centre) * self.stages["root"] * multiplier,
                NORMAL_PLACES + shift,
            )
        elif not self.centred:
            return self.half_up()
        else:
            product, places = self.stages["deviation"] * self.stages["factor"], NORMAL_PLACES - 1
        end = 1 << (self.trial.output.dtype.bits - 1)
        return _rounded_stage(
            self.trial,
            "normalized",
            self.stages["normalized"],
            product * 2.0**-places,
            lambda i: Fraction(int(product[i])) / Fraction(2) ** places,
            (-end, end - 1),
            f"deviation * root * 2**-{places}",
        )

    def half_up(self) -> Verdict:
        """Judge a root mean square: the value times the provided factor, shifted half up, clamped."""
        wanted = (self.codes * self.stages["factor"] + (1 << (NORMAL_PLACES - 1))) >> NORMAL_PLACES
        end = 1 << (self.trial.output.dtype.bits - 1)
        wanted = wanted.clip(-end, end - 1)
        made_of = f"x * factor * 2**-{NORMAL_PLACES}, half up"
        return _stage(self.trial, "normalized", self.stages["normalized"], wanted, wanted, made_of)

    def output(self) -> Verdict:
        """Judge the output: (normalized * gamma + beta) * m * 2**-n, from the provided codes."""
        trial, rescale = self.trial, self.trial.parameters.rescale
        if rescale is None:
            return inconclusive(CHECK, "no multiplier was provided")
        shape, normalized = trial.output_shape, self.stages["normalized"].reshape(trial.output_shape)
        gamma, beta = affine(trial, "gamma", shape)[0], effective_beta(trial, shape)
        acc = normalized * gamma + beta
        mantissa, shift = (
            np.broadcast_to(neighbours_of(trial, "gamma", part.numpy()) if part.dim() else part.numpy(), shape)
            for part in (rescale.mantissa, rescale.shift)
        )
        return final_codes(
            trial,
            acc * (mantissa * np.exp2(-shift.astype(np.float64))),
            0.0,
            lambda i: Fraction(int(acc[i]) * int(mantissa[i])) / Fraction(2) ** int(shift[i]),
            f"{trial.target.platform.rounding} of (normalized * gamma + beta) * m * 2**-n",
        )


def _without_stages(trial: Trial) -> Verdict:
    """Judge an engine that shows no stages by the sum of their errors; integer platforms may leave epsilon out."""
    if is_integer(trial):
        low, high = final_interval(trial, declared=False, epsilon=float(trial.bound["epsilon"]))
        value, extra = (low + high) / 2, (high - low) / 2
    else:
        value, extra = trial.y_hat / float(trial.output.scale), exact_error(trial)
    made_of = "(normalized * gamma + beta) / s_y, all stages"
    return final_codes(trial, value, extra, lambda i: Fraction(float(value[i])), made_of)
