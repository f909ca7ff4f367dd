"""Sums of products of weights with a scale for each block, in numpy and rationals, without code of any kernel."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from fractions import Fraction

import numpy as np
import torch

from quantizer.conformance.checks.accumulators import held_sums
from quantizer.conformance.checks.multiplier_rules import equal
from quantizer.conformance.checks.requantized import CHECK, DECLARED, Array, Real, rounded_once
from quantizer.conformance.expected.parameters import Expected
from quantizer.conformance.trials.finding import Finding
from quantizer.conformance.trials.trial import Trial
from quantizer.core.verdict import Verdict, inconclusive
from quantizer.numerics.qparams import Rescale

EXACT_LIMIT = 2.0**53
"""Whole numbers up to here are float64 numbers."""


def weight_in_blocks(trial: Trial) -> str | None:
    """Return the weight that the scheme stores in blocks, or None."""
    if trial.target.scheme.grid != "blocks":
        return None
    return next(
        name for name, item in trial.spec.inputs.items() if item.role == "weight" and item.block_axis is not None
    )


def one_block(trial: Trial, name: str, block: int) -> Trial:
    """Return *trial* with all centred codes of the weight outside *block* 0, and without a constant."""
    size, item = trial.target.scheme.weight.block or 1, trial.spec.inputs[name]  # type: ignore[union-attr]
    codes = trial.centred[name]
    axis = (item.block_axis or 0) % codes.dim()
    place = torch.arange(codes.shape[axis]) // size
    kept = (place == block).reshape([-1 if i == axis else 1 for i in range(codes.dim())])
    other = copy.copy(trial)
    # the copy shares the cached sums of the whole weight
    other.__dict__.pop("sums", None)
    other.__dict__.pop("sum_magnitudes", None)
    biases = [n for n, operand in trial.spec.inputs.items() if operand.role == "bias"]
    other.centred = {n: v for n, v in trial.centred.items() if n not in biases} | {name: codes * kept}
    return other


def columns_of(trial: Trial, name: str) -> list[tuple[Array, Array]]:
    """Return the exact sum of each block, the sum of |terms|, and the codes of the constant (0 without a constant)."""
    size, item = trial.target.scheme.weight.block or 1, trial.spec.inputs[name]  # type: ignore[union-attr]
    length = trial.centred[name].shape[item.block_axis or 0]
    alone = [one_block(trial, name, block) for block in range(-(-length // size))]
    found = [(part.sums, part.sum_magnitudes) for part in alone]
    biases = [values for n, values in trial.centred.items() if trial.spec.inputs[n].role == "bias"]
    constant = trial.per_channel(biases[0]) if biases else np.zeros(())
    constant = np.broadcast_to(constant, trial.output_shape)
    return [*found, (constant, np.abs(constant))]


def judge_blocks(trial: Trial, name: str, rescale: Rescale) -> Verdict:
    """Judge codes by the exact number, rounded once: the blocks' sums times their multipliers, plus the constant."""
    exactly = columns_of(trial, name)
    # `parameters` fails such multipliers; nothing can be judged with them here
    if rescale.mantissa.dim() != 2 or rescale.mantissa.shape[1] != len(exactly):
        return inconclusive(
            CHECK, f"multipliers of shape {list(rescale.mantissa.shape)} for {len(exactly)} sums: parameters fails"
        )
    held = [held_sums(trial, acc, magnitude) for acc, magnitude in exactly]
    if (refusal := next((verdict for *_, verdict in held if verdict is not None), None)) is not None:
        return refusal
    columns, most = [column for column, *_ in held], [column for _, column, _ in held]
    numbers = [trial.per_channel(column) for column in rescale.mantissa.unbind(1)]
    if trial.sum_magnitudes.max(initial=0.0) >= EXACT_LIMIT:
        return inconclusive(CHECK, "the accumulator leaves the integers that float64 holds")
    wide = [np.broadcast_to(number, trial.output_shape) for number in numbers]

    def summed(parts: list[Array]) -> tuple[list[Array], Callable[[tuple[int, ...]], Fraction]]:
        def exact(index: tuple[int, ...]) -> Fraction:
            pairs = zip(parts, wide, strict=True)
            total = sum((int(c[index]) * Fraction(float(m[index])) for c, m in pairs), Fraction(0))
            return total / Fraction(rescale.divisor)

        return [part * (number / rescale.divisor) for part, number in zip(parts, numbers, strict=True)], exact

    terms, exact = summed(columns)
    value = np.sum(terms, axis=0)
    tops, top_exact = summed(most)
    # where an accumulator may saturate, any sum between both ends is possible
    cut = not all(map(np.array_equal, columns, most))
    return rounded_once(
        trial,
        Real(value, exact, np.sum(np.abs(terms), axis=0)),
        DECLARED[rescale.variant],
        what="the sums of blocks under their scales",
        top=Real(np.sum(tops, axis=0), top_exact) if cut else None,
    )


def multiplier_findings(trial: Trial, factors: list[Expected]) -> Iterator[Finding]:
    """Judge multipliers: a block's is its scale times the activation's; the constant's is its channel's largest."""
    rescale = trial.parameters.rescale
    assert rescale is not None
    activation, weight = factors
    wanted = np.concatenate([weight.scale, weight.scale.max(axis=1, keepdims=True)], axis=1) * activation.scale
    got = rescale.mantissa.numpy()
    yield equal("variant", trial.variant, rescale.variant, "the platform's variant for the operator's family")
    yield equal("divisor", float(trial.output.scale), rescale.divisor, "the output's scale")
    if got.shape != wanted.shape:
        yield equal(
            "multiplier",
            wanted.shape,
            got.shape,
            "a multiplier for each block of each channel, and one for the constant",
        )
        return
    wrong = [tuple(int(i) for i in index) for index in np.argwhere((got != wanted) | (rescale.shift.numpy() != 0))]
    for index in wrong[:1]:
        text = "the product of the scales of the activation and of the block"
        yield Finding("multiplier", float("inf"), f"{wanted[index]!r}", f"{got[index]!r}", text, index)
    yield Finding("multiplier", 0.0, "products", "products", "the products of scales")
