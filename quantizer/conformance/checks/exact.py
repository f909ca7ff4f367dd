"""exact: accumulators equal a plain int64 sum over explicit windows, one function per operator family."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quantizer.conformance.checks.elements import judge_equal
from quantizer.conformance.trial import Trial
from quantizer.core.verdict import Verdict, hole

Array = NDArray[Any]
CHECK = "exact"


def exact(trial: Trial) -> Verdict | None:
    """Judge the engine's accumulators; None for an operator without sums, a hole where sums cannot be judged."""
    sums = WINDOWS.get(trial.spec.quantization.family)
    if sums is None:
        if trial.spec.error_model.kind == "bilinear":
            return hole(CHECK, f"family {trial.spec.quantization.family} has no window sum to compare with")
        return None
    acc = trial.accumulate(trial.call, trial.codes, trial.parameters)
    if acc is None:
        return hole(CHECK, f"engine {trial.engine.name} shows no accumulators")
    return judge_equal(
        CHECK, trial, acc.numpy(), sums(trial), "the int64 sum over explicit windows", tensor="accumulator"
    )


def convolution(trial: Trial) -> Array:
    """Return sum over windows of (x - z_x) * (w - z_w), plus the bias; int64, channels first, any rank."""
    operands = {name: values.numpy().astype(np.int64) for name, values in trial.centred.items()}
    x, w = operands["x"], operands["weight"]
    attrs: Mapping[str, Any] = trial.case.attrs
    rank = w.ndim - 2
    stride, dilation, groups = attrs["stride"], attrs["dilation"], int(attrs["groups"])
    before, after = attrs["padding"][:rank], attrs["padding"][rank:]
    x = np.pad(x, [(0, 0), (0, 0), *zip(before, after, strict=True)])
    sizes = [(x.shape[2 + i] - dilation[i] * (w.shape[2 + i] - 1) - 1) // stride[i] + 1 for i in range(rank)]
    out = np.zeros((x.shape[0], w.shape[0], *sizes), dtype=np.int64)
    per_group, inputs = w.shape[0] // groups, w.shape[1]
    for offset in np.ndindex(*w.shape[2:]):
        window = tuple(
            slice(o * d, o * d + s * (n - 1) + 1, s) for o, d, s, n in zip(offset, dilation, stride, sizes, strict=True)
        )
        seen = x[(slice(None), slice(None), *window)]
        for group in range(groups):
            rows = slice(group * per_group, (group + 1) * per_group)
            part = seen[:, group * inputs : (group + 1) * inputs]
            out[:, rows] += np.einsum("nc...,oc->no...", part, w[(rows, slice(None), *offset)])
    if "bias" in operands:
        out += operands["bias"].reshape([-1] + [1] * rank)
    return out


WINDOWS: Mapping[str, Callable[[Trial], Array]] = {"convolution": convolution}
