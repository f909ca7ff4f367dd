"""Means in declared float32 steps: sum, division, zero point, one rounding; replayed step by step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from quantizer.conformance.checks.float32_codes import CHECK, F32, Array, bounded, ended, one_code, quantized, short
from quantizer.conformance.checks.window_sums import mean_sums
from quantizer.conformance.trials.trial import Trial
from quantizer.core.verdict import Verdict, inconclusive
from quantizer.numerics.qparams import Rescale

ONE_ORDER = 2
"""The largest number of terms that have the same float32 sum in every order."""


def replayed_mean(trial: Trial, rescale: Rescale) -> Verdict:
    """Judge a mean by replaying the float32 steps of the kernel that computes it."""
    known = mean_sums(trial)
    if known is None:
        return inconclusive(CHECK, "the sums of a mean are not known")
    sums, terms = known
    zero, n = int(trial.output.zero_point), terms.astype(F32)
    variant = _mean_variant(trial, rescale.variant)
    if variant == "floating":
        scale = float(trial.output.scale)
        # few significant bits: every order of additions is exact
        if short(trial, [scale], np.abs(sums)):
            return quantized(trial, (sums * scale).astype(F32) / n, "half_even of the float32 mean")
        if terms.max(initial=1) <= ONE_ORDER:
            return quantized(trial, _added(trial, scale) / n, "half_even of the float32 mean")
        magnitude = trial.magnitude(trial.values)
        return bounded(trial, sums * scale / terms, magnitude, int(terms.max(initial=1)) + 3)
    if variant == "f32_mean_raw":
        value = (sums + terms * zero).astype(F32) * (F32(1) / n)
        return one_code(trial, np.rint(value), value.astype(np.float64) - zero, "half_even of the raw sum times 1 / n")
    if variant == "f32_mean_inverse":
        scale32 = F32(float(trial.output.scale))
        value = sums.astype(F32) * (scale32 / (scale32 * n))
        return one_code(trial, np.rint(value) + zero, value.astype(np.float64), "half_even of the sum times s / (s n)")
    held = sums.astype(F32) / n if variant == "f32_mean_divided" else sums.astype(F32) * (F32(1) / n)
    if variant == "f32_mean_zpin" and trial.output_shape[1:2] == (1,):
        return one_code(trial, *ended(trial, held), "half_even of the mean of one channel")
    value = held + F32(zero)
    return one_code(trial, np.rint(value), value.astype(np.float64) - zero, "half_even of the mean plus the zero point")


def _added(trial: Trial, scale: float) -> Array:
    """Return float32 sums of dequantized codes along the axes of the case; two terms at most have only one order."""
    attrs: Mapping[str, Any] = trial.case.attrs
    axes = tuple(int(axis) for axis in attrs["axes"])
    real = trial.centred["x"].numpy().astype(F32) * F32(scale)
    return np.asarray(real.sum(axis=axes, dtype=F32, keepdims=bool(attrs["keepdims"])))


def _mean_variant(trial: Trial, declared: str) -> str:
    """Return the variant of the kernel that computes a mean; `floating` if the axes are not the last ones.

    One channel: the windowed kernel. f32_mean_inverse: torch's own kernel computes windows that may overhang, and all
    means except over the last two of four axes.
    """
    attrs: Mapping[str, Any] = trial.case.attrs
    if declared == "f32_mean_raw":
        return declared if trial.output_shape[1] > 1 else "f32_mean_zpin"
    if "ceil_mode" in attrs:
        return "f32_mean_zpin" if declared == "f32_mean_inverse" and attrs["ceil_mode"] else declared
    if "axes" not in attrs:
        return declared
    rank, axes = len(trial.case.shapes["x"]), sorted(attrs["axes"])
    if axes != list(range(rank - len(axes), rank)):
        return "floating"
    return declared if declared == "f32_mean_inverse" and (rank, len(axes)) == (4, 2) else "f32_mean_divided"
