"""Variants whose float32 steps are declared one by one: each step is replayed, so that exactly one code is right.

`core.variants.Variant` states the orders of operations. This code shares nothing with the integer forward.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping

import numpy as np

from quantizer.conformance.checks.float32_codes import (
    CHECK,
    F32,
    UNIT,
    Array,
    bounded,
    ended,
    fused,
    numbers,
    one_code,
    quantized,
    short,
)
from quantizer.conformance.checks.float32_means import replayed_mean
from quantizer.conformance.trials.elements import judge_equal
from quantizer.conformance.trials.trial import Trial
from quantizer.core.shapes import channel_axis
from quantizer.core.variants import Variant
from quantizer.core.verdict import Verdict, inconclusive
from quantizer.numerics.qparams import Rescale


def replayed(trial: Trial) -> Verdict | None:
    """Return the verdict for a variant that this module replays, else None."""
    rescale = trial.parameters.rescale
    if rescale is None:
        return None
    replay = REPLAYS.get(rescale.variant)
    return None if replay is None else replay(trial, rescale)


def product_error(trial: Trial) -> Array:
    """Return the error of a product's float32 steps, in output codes: 8 roundings, and one more per float32 term."""
    axis = channel_axis(trial.spec, trial.bound, len(trial.output_shape))
    channels = 0 if axis is None else trial.output_shape[axis]
    gain: Array = np.ones(()) / float(trial.output.scale)
    for name in (name for name in trial.tensors if trial.spec.inputs[name].role != "bias"):
        gain = gain * trial.per_channel(trial.qparams(name).repeated(channels).scale)
    terms, rescale = trial.spec.error_model.terms, trial.parameters.rescale
    added = int(terms(trial.bound)) if terms and rescale and rescale.variant == "f32_products" else 0
    zero = abs(int(trial.output.zero_point))
    return np.asarray((trial.sum_magnitudes * gain + zero) * UNIT * (8 + added))


def in_vectors(shapes: list[tuple[int, ...]], lanes: int) -> Array:
    """Return a mask of the elements in full vectors. A row is the innermost axes contiguous in every operand."""
    shape = np.broadcast_shapes(*shapes)
    # a broadcast axis has the stride 0
    views = [np.broadcast_to(np.empty(own, np.int8), shape) for own in shapes]
    axes = [axis for axis in reversed(range(len(shape))) if shape[axis] > 1]
    row = shape[axes[0]] if axes else 1
    # axes are one row for a kernel as long as each operand is contiguous over both of them
    for inner, outer in itertools.pairwise(axes):
        if any(view.strides[outer] != view.strides[inner] * shape[inner] for view in views):
            break
        row *= shape[outer]
    place = np.arange(math.prod(shape)) % row
    return np.asarray((place < row - row % lanes).reshape(shape))


def lane_tables(trial: Trial) -> Verdict:
    """Judge codes read from two tables: one for full vectors, one for the tail of a row."""
    vector, rest = trial.parameters.tables["vector"], trial.parameters.tables["rest"]
    codes = trial.codes["x"].numpy() - vector.first
    within = in_vectors([codes.shape], trial.target.platform.vector_lanes)
    wanted = np.where(within, vector.entries.numpy()[codes], rest.entries.numpy()[codes])
    return judge_equal(CHECK, trial, trial.got, wanted, "the provided table of the element's place")


def _parts(trial: Trial) -> tuple[Array, Array | None, Array]:
    """Return sums without the bias, its float32 values and its scale, shaped like channels of the output."""
    bias = trial.parameters.constants.get("bias")
    if bias is None or "bias" not in trial.codes:
        return trial.sums, None, np.ones((), F32)
    codes, scale = trial.per_channel(trial.codes["bias"]), trial.per_channel(bias.params.scale).astype(F32)
    return trial.sums - codes, codes.astype(F32) * scale, scale


def _real_bias(trial: Trial, rescale: Rescale) -> Verdict:
    if trial.sum_magnitudes.max(initial=0.0) >= 2.0**31:
        return inconclusive(CHECK, "the accumulator may leave 32 bits")
    sums, bias, scale = _parts(trial)
    mantissa, zero = trial.per_channel(rescale.mantissa).astype(F32), int(trial.output.zero_point)
    if rescale.variant == "f32_stages_bias":
        (factor,) = rescale.factors.values()
        held = sums.astype(F32) * F32(factor) * mantissa
        held = held if bias is None else held + bias
        value = held * (F32(1) / F32(rescale.divisor)) + F32(zero)
        return one_code(trial, np.rint(value), value.astype(np.float64) - zero, "half_even of the four float32 stages")
    if rescale.variant == "f32_even_inverse":
        kept = (
            0.0 if bias is None else np.clip(np.rint(bias * (F32(1) / scale)).astype(np.float64), -(2**31), 2**31 - 1)
        )
        held = (sums + kept).astype(F32)
    elif bias is None:
        held = sums.astype(F32)
    elif rescale.mantissa.dim():
        held = sums.astype(F32) + bias / scale
    else:
        held = fused(np.broadcast_to(bias, sums.shape), F32(1) / scale, sums.astype(F32))
    value = held * mantissa
    return one_code(trial, np.rint(value) + zero, value.astype(np.float64), "half_even of the float32 product")


def _scaling(trial: Trial, rescale: Rescale) -> Verdict:
    axis = int(trial.bound["axis"])
    along = [-1 if i == axis % len(trial.output_shape) else 1 for i in range(len(trial.output_shape))]
    found = {
        name: trial.codes[name].numpy().astype(F32) * known.params.scale.numpy().astype(F32)
        for name, known in trial.parameters.constants.items()
    }
    # the kernel forms the factor in float64 and rounds it to float32 once
    factor = (found["weight"].astype(np.float64) * float(rescale.mantissa)).astype(F32).reshape(along)
    bias = found.get("bias", np.zeros(1, F32)).astype(np.float64) / float(trial.output.scale)
    constant = bias.astype(F32).reshape(along) if "bias" in found else np.zeros((), F32)
    value = fused(trial.centred["x"].numpy().astype(F32), factor, constant)
    zero = int(trial.output.zero_point)
    return one_code(
        trial, np.rint(value) + zero, value.astype(np.float64), "half_even of the fused float32 product and sum"
    )


def _products(trial: Trial, _: Rescale) -> Verdict:
    """Judge float32 sums of dequantized products in unknown order: by a bound, or exactly if nothing rounds."""
    scales = [float(params.scale) for params in trial.parameters.inputs.values()]
    gain, terms = math.prod(scales), trial.terms
    if short(trial, scales, trial.sum_magnitudes):
        return quantized(trial, (trial.sums * gain).astype(F32), "half_even of the exact product")
    return bounded(trial, trial.sums * gain, trial.sum_magnitudes * gain, terms + 3)


def _dequantized(trial: Trial, rescale: Rescale) -> dict[str, Array]:
    """Return each operand's float32 values `(code - z) * s` in the output's shape; 0 where it has no part in it."""
    zeros = {name: values * 0 for name, values in trial.centred.items()}
    return {
        name: trial.reference({**zeros, name: values}).astype(F32) * F32(rescale.factors[name])
        for name, values in trial.centred.items()
    }


def _concatenated(trial: Trial, rescale: Rescale) -> Verdict:
    return quantized(
        trial, sum(_dequantized(trial, rescale).values(), np.zeros((), F32)), "half_even of x * s_x / s_y + z_y"
    )


def _lanes(trial: Trial, rescale: Rescale) -> Verdict:
    shapes = {name: tuple(values.shape) for name, values in trial.codes.items()}
    if rescale.variant == "aligned_half_away" and len(set(shapes.values())) == 1:
        return _aligned(trial, rescale)
    plain = _dequantized(trial, rescale)
    inverse, zero = numbers(trial)
    held = []
    for name in plain:
        scale, offset = F32(rescale.factors[name]), F32(int(trial.parameters.inputs[name].zero_point))
        codes = np.broadcast_to(trial.codes[name].numpy(), trial.output_shape).astype(F32)
        # zero point times scale is rounded on its own
        held.append(fused(codes, np.asarray(scale), np.asarray(-offset * scale)))
    first, second = held
    vector = (first + second) * inverse
    a, b = plain.values()
    rest, real_rest = ended(trial, (a + b) * inverse)
    within = in_vectors(list(shapes.values()), trial.target.platform.vector_lanes)
    rounded = np.where(within, np.rint(vector) + zero, rest)
    real = np.where(within, vector, real_rest)
    return one_code(trial, rounded, real, "half_even of the dequantized sum, as the element's place has it")


def _aligned(trial: Trial, rescale: Rescale) -> Verdict:
    """Judge a sum whose ratios are integers of 22 bits under one shift, and which is rounded half away from zero."""
    ratios = {name: float(F32(factor) / F32(rescale.divisor)) for name, factor in rescale.factors.items()}
    shift = min(max(21 - math.floor(math.log2(max(ratios.values()))), 1), 52)
    total = np.zeros(trial.output_shape, dtype=np.int64)
    for name, ratio in ratios.items():
        codes = np.broadcast_to(trial.centred[name].numpy().astype(np.int64), trial.output_shape)
        total = total + codes * round(ratio * 2.0**shift)
    # half away from zero in integers
    rounded = np.sign(total) * ((2 * np.abs(total) + (1 << shift)) >> (shift + 1))
    zero = int(trial.output.zero_point)
    return one_code(trial, rounded + zero, total * 2.0**-shift, "half_away of the integer sum")


REPLAYS: Mapping[Variant, Callable[[Trial, Rescale], Verdict]] = {
    "f32_even_bias": _real_bias,
    "f32_even_inverse": _real_bias,
    "f32_stages_bias": _real_bias,
    "f32_scaling": _scaling,
    "f32_products": _products,
    "f32_mean_divided": replayed_mean,
    "f32_mean_zpin": replayed_mean,
    "f32_mean_raw": replayed_mean,
    "f32_mean_inverse": replayed_mean,
    "f32_dequantized_fused": _concatenated,
    "f32_add_in_lanes": _lanes,
    "aligned_half_away": _lanes,
}
