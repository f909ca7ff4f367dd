"""Shows one output element of a failure: the operands in its window, provided numbers, and its accumulator's terms."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from quantizer.conformance.checks.accumulators import held_sums
from quantizer.conformance.checks.blocks import columns_of, weight_in_blocks
from quantizer.conformance.checks.multiplier_rules import OF_AREAS
from quantizer.conformance.trials.provided import copies
from quantizer.conformance.trials.trial import Trial
from quantizer.core.dtypes import DType
from quantizer.core.sum_bits import accumulator_bits, is_narrow
from quantizer.numerics.qparams import QParams
from quantizer.tiling.windows import Box, needed, slices

MAX_SHOWN = 12
"""The largest number of values of an operand, or terms of a sum, that a failure prints."""
MAX_CALLS = 1024
"""The most calls of a plugin's reference for the terms of one sum. A shrunk case rarely needs more than ten."""
SUMS = ("linear", "bilinear", "mean")
"""Error models of operators whose reference gives the accumulator when it runs on centred codes."""


def element_lines(trial: Trial, index: Sequence[int]) -> list[str]:
    """Return the lines about the output element at *index*, in the operator's own axis order."""
    boxes = needed(trial.spec, trial.case.shapes, trial.case.attrs, index)
    lines = [line for name, box in boxes.items() for line in _operand(trial, name, box)]
    lines += [*_stages(trial, index), *_multiplier(trial, index), *_numbers(trial), *_table(trial, boxes)]
    lines += _accumulator(trial, index)
    return lines


def _operand(trial: Trial, name: str, box: Box) -> Iterator[str]:
    """Yield the lines of an operand's window: its place and parameters, then its codes, then its real values."""
    window = slices(box)
    reals = trial.tensors[name][window].reshape(-1)
    place = ",".join(f"{start}" if stop == start + 1 else f"{start}:{stop}" for start, stop in box)
    where = f"{name}[{place}]" if box else name
    if not reals.numel():
        yield row(name, f"{where}, wholly in the padding")
        return
    codes = trial.codes[name]
    if codes.is_floating_point() or (name not in trial.parameters.constants and name not in trial.parameters.inputs):
        kind = "real values" if codes.is_floating_point() else "indices"
        yield row(name, f"{where}, {kind}")
        yield row("", _aligned([codes[window].reshape(-1)])[0])
        return
    yield row(name, f"{where}, {grid(trial.qparams(name), box)}")
    shown = _aligned([codes[window].reshape(-1), reals])
    yield row("  code", shown[0])
    yield row("  real", shown[1])


def _stages(trial: Trial, index: Sequence[int]) -> Iterator[str]:
    """Yield the lines of each declared stage that the function under test shows, with its code at the element."""
    for name, params in trial.parameters.stages.items():
        shown = trial.outcome.stages.get(name)
        # a stage may be broadcast against the output, but a stage of another rank has no element of this place
        if shown is None or shown.dim() != len(index) or not all(size in (1, n) for size, n in _sizes(trial, shown)):
            continue
        place = tuple(0 if size == 1 else i for i, size in zip(index, shown.shape, strict=True))
        code = int(shown[place])
        yield row(name, f"{name}[{','.join(map(str, place))}], {grid(params)}, a stage as the function shows it")
        yield row("  code", f"{code}")
        yield row("  real", _text(float(params.scale) * (code - int(params.zero_point))))


def _sizes(trial: Trial, shown: Tensor) -> Iterator[tuple[int, int]]:
    return zip(shown.shape, trial.output_shape, strict=True)


def grid(params: QParams, box: Box = ()) -> str:
    """Return dtype, scale and zero point.

    Parameters per slice are those of the slice in *box*, or the largest if *box* covers several slices.
    """
    dtype: DType = params.dtype
    scale, zero, place = params.scale.reshape(-1), params.zero_point.reshape(-1), ""
    if params.blocks is not None:
        place = f" at most, {scale.numel()} blocks of {params.blocks.size}"
    elif params.axis is not None and scale.numel() > 1:
        start, stop = box[params.axis] if box else (0, 0)
        if stop == start + 1 and stop <= scale.numel():
            scale, zero, place = scale[start:stop], zero[start:stop], f" of slice {start}"
        else:
            place = f" at most, {scale.numel()} slices"
    return f"{dtype} scale {float(scale.max()):.9g} zero point {int(zero.max())}{place}"


def _aligned(columns: Sequence[Tensor]) -> list[str]:
    """Return the first values of each column as an aligned row. The last row says how many are left out."""
    texts = [[_text(value) for value in values[:MAX_SHOWN].tolist()] for values in columns]
    widths = [max(map(len, cells)) for cells in zip(*texts, strict=True)]
    rows = ["  ".join(f"{cell:>{width}}" for cell, width in zip(cells, widths, strict=True)) for cells in texts]
    left = columns[0].numel() - MAX_SHOWN
    return [*rows[:-1], f"{rows[-1]}  ... {left:,} more"] if left > 0 else rows


def _text(value: float) -> str:
    return f"{value}" if isinstance(value, int) else f"{value:.6g}"


def _multiplier(trial: Trial, index: Sequence[int]) -> Iterator[str]:
    """Yield the multiplier and shift provided for the element, and the factors of its operands."""
    rescale = trial.parameters.rescale
    if rescale is None:
        return
    if rescale.variant in OF_AREAS:
        yield row("multiplier", f"that of the number of terms, {rescale.variant}")
        return
    if rescale.pairs:
        pairs = (f"{name} {mantissa} * 2**{-shift}" for name, (mantissa, shift) in rescale.pairs.items())
        yield row("multipliers", f"{', '.join(pairs)}, {rescale.variant}")
        return
    if rescale.mantissa.dim() > 1:
        yield row("multipliers", f"{rescale.mantissa.shape[1]} for each channel, {rescale.variant}")
        return
    mantissa, shift = (_at(trial.per_channel(values), index) for values in (rescale.mantissa, rescale.shift))
    divided = f" / {rescale.divisor:.9g}" if rescale.divisor != 1.0 else ""
    shifted = f" * 2**{-int(shift)}" if shift else ""
    ratio = mantissa * 2.0 ** -float(shift) / rescale.divisor
    product = f"{mantissa:.17g}{shifted}{divided} = " if shifted or divided else ""
    yield row("multiplier", f"{product}{ratio:.9g}, {rescale.variant}")
    if any(factor != 1 for factor in rescale.factors.values()):
        yield row("factors", ", ".join(f"{name} {factor:.9g}" for name, factor in rescale.factors.items()))


def _numbers(trial: Trial) -> Iterator[str]:
    """Yield the further integers that the rule provided, where one line holds them."""
    numbers = trial.parameters.numbers
    if 0 < len(numbers) <= MAX_SHOWN:
        yield row("numbers", ", ".join(f"{name} {number}" for name, number in numbers.items()))


def _at(values: Any, index: Sequence[int]) -> float:
    """Return the value for the element at *index* of an array that broadcasts against the output."""
    if not values.ndim:
        return float(values)
    if values.ndim != len(index):
        return float(values.max())
    return float(values[tuple(0 if size == 1 else i for i, size in zip(index, values.shape, strict=True))])


def _table(trial: Trial, boxes: dict[str, Box]) -> Iterator[str]:
    """Yield the table entries used for the single code of a function of one input."""
    (name, box), *others = boxes.items()
    if others or any(stop != start + 1 for start, stop in box) or trial.codes[name].is_floating_point():
        return
    code = int(trial.codes[name][slices(box)])
    for label, table in trial.parameters.tables.items():
        # the entry before the code, and the place between it and the next one
        entry, rest = divmod(code - table.first, table.step)
        if 0 <= entry < table.entries.numel():
            found = table.entries.reshape(-1)[entry : entry + (2 if rest else 1)].tolist()
            between = f", {rest}/{table.step} of the way" if rest else ""
            said = f"{label}[{entry}] for code {code}: {' .. '.join(map(str, found))}{between}, unit {table.unit:.9g}"
            yield row("table", said)


def _accumulator(trial: Trial, index: Sequence[int]) -> Iterator[str]:
    """Yield the accumulator as a sum of products of centred codes, and the function's own if it differs."""
    if trial.spec.error_model.kind not in SUMS:
        return
    if (name := weight_in_blocks(trial)) is not None:
        sums = [str(int(column[tuple(index)])) for column, _ in columns_of(trial, name)]
        yield row("sums of blocks", f"{', '.join(sums[:-1])}, constant {sums[-1]}")
        return
    if (found := _terms(trial, tuple(index))) is None:
        yield row("accumulator", f"not shown: the plugin's reference would be called more than {MAX_CALLS:,} times")
        return
    terms, zeros, divisor = found
    total = sum(value for value, _ in terms)
    written = f"{total:.9g}" if isinstance(total, float) and not total.is_integer() else f"{int(total)}"
    shown = " + ".join(text for _, text in terms[:MAX_SHOWN])
    left = f" + ... {len(terms) - MAX_SHOWN:,} more terms" if len(terms) > MAX_SHOWN else ""
    none = f" ({zeros:,} more of 0)" if zeros and terms else ""
    if not terms:
        shown = f"sum of {zeros:,} terms, all 0" if zeros else "0, no term"
    over = f", then / {divisor}" if divisor != 1 else ""
    yield row("accumulator", f"{written} = {shown}{left}{none}{over}")
    yield from _register(trial, total, sum(abs(value) for value, _ in terms))
    own = trial.accumulate(trial.call, trial.codes, trial.parameters)
    if own is not None and tuple(own.shape) == trial.output_shape and (got := int(own[tuple(index)])) != total:
        yield row("", f"the function under test accumulates {got}")


def _register(trial: Trial, total: float, magnitude: float) -> Iterator[str]:
    """Yield what the declared accumulator holds, if that is not the sum or depends on the order of additions."""
    target = trial.target
    if not is_narrow(target.platform, target.spec, target.scheme):
        return
    least, most, _ = held_sums(trial, np.array([total]), np.array([magnitude]))
    bits, does = accumulator_bits(target.platform, target.scheme), target.platform.accumulator.overflow + "s"
    if least[0] != most[0]:
        said = f"{int(least[0])}..{int(most[0])}, by the order of additions"
    elif least[0] != total:
        said = f"{int(least[0])}"
    else:
        return
    yield row("", f"in {bits} bits it {does}: {said}")


def _terms(trial: Trial, index: tuple[int, ...]) -> tuple[list[tuple[float, str]], int, int] | None:
    """Return the nonzero terms with their texts, the number of zero terms, and the divisor; None if there are too many.

    The reference is linear in each operand, so its derivative by an operand is the factor of every code of that
    operand. This is exact on centred codes, and no operator needs a description of its windows. The bias is a separate
    term.
    """
    spec, operands = trial.spec, copies(trial.centred)
    biases = [name for name in operands if spec.inputs[name].role == "bias"]
    added = [name for name in operands if spec.inputs[name].kind == "value" and name not in biases]
    bilinear = spec.error_model.kind == "bilinear"
    # of a product, the derivative by the first factor is the second one; each term is counted once
    varied = [*added[:1], *biases] if bilinear else added
    if (by := _derivatives(trial, operands, varied, index)) is None:
        return None
    rescale = trial.parameters.rescale
    gains = rescale.factors if rescale is not None and spec.error_model.kind == "linear" else {}
    terms: list[tuple[float, str]] = []
    zeros, divisor = 0, 1
    for name, factors in zip(varied, by, strict=True):
        values, weights = operands[name].detach().reshape(-1), factors.reshape(-1)
        if spec.error_model.kind == "mean" and (nonzero := weights[weights != 0]).numel():
            # a mean has the factor 1 / n: terms are shown as whole numbers, and n apart
            divisor = round(1 / float(nonzero.min()))
            weights = weights * divisor
        label = f" ({name})" if name in biases or (not bilinear and len(operands) > 1) else ""
        gain = gains.get(name, 1.0)
        # codes outside the element's window have the factor 0
        touched = weights != 0
        for value, weight in zip(values[touched].tolist(), weights[touched].tolist(), strict=True):
            whole, by_whole = round(value), round(weight)
            term: float = whole * by_whole
            text = f"{whole}*{by_whole}" if by_whole != 1 else f"{whole}"
            if gain != 1:
                term, text = term * gain, f"{text}*{gain:.9g}"
            terms += [(term, text + label)] if whole else []
            zeros += not whole
    return terms, zeros, divisor


def _derivatives(
    trial: Trial, operands: dict[str, Tensor], varied: Sequence[str], index: tuple[int, ...]
) -> list[Tensor] | None:
    """Return, for the operands *varied*, the factor of each code in the reference at the element.

    A plugin's reference runs in another process, where autograd cannot follow it. There, a factor is the result on
    operands that are 1 at one element of the window and 0 elsewhere, because the reference is linear in each operand.
    None if that takes more than MAX_CALLS calls.
    """

    def element(values: dict[str, Tensor]) -> Tensor:
        return trial.target.reference(values, trial.case)[index]

    with torch.enable_grad():
        followed = operands | {name: operands[name].requires_grad_() for name in varied}
        if (made := element(followed)).requires_grad:
            inputs = [followed[name] for name in varied]
            return list(torch.autograd.grad(made, inputs, allow_unused=True, materialize_grads=True))
    boxes = needed(trial.spec, trial.case.shapes, trial.case.attrs, index)
    if sum(math.prod(stop - start for start, stop in boxes[name]) for name in varied) > MAX_CALLS:
        return None
    zeros = operands | {name: torch.zeros_like(operands[name], requires_grad=False) for name in varied}
    found = [torch.zeros_like(zeros[name]) for name in varied]
    for name, factors in zip(varied, found, strict=True):
        for place in itertools.product(*(range(*extent) for extent in boxes[name])):
            one = torch.zeros_like(zeros[name])
            one[place] = 1
            factors[place] = element({**zeros, name: one})
    return found


def row(name: str, text: str) -> str:
    """Return one line of a failure, with its label in the first column."""
    return f"  {name:<11} {text}"
