"""Questions about sums of products. A bias, or a row of codes, gives each sum the wanted value."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch

from quantizer.conformance.probe.aims import SOLVED, Draft, Wanted, place_of, scale_of, solved_scale, tie_of, twice_tied
from quantizer.conformance.probe.draws import Draws
from quantizer.conformance.probe.question import Array, Grids, Question
from quantizer.conformance.target import Target
from quantizer.core.case import AttrValue
from quantizer.core.dtypes import integer
from quantizer.numerics.qparams import Constant, QParams

CODE_BITS, FAR_BITS = 7, 24
"""Bits of a code without its sign, and bits of a result above which a conversion from float to integer overflows."""
MANY = 64
"""The number of terms of sums that exceed 32 bits by far."""
LARGEST_BIAS = (1 << 31) - 1
WEIGHT = 127


@dataclass(frozen=True)
class _Filters:
    """The numbers of a draft of `filters`. Each item has one product, which may be repeated, and one bias."""

    target: Target
    attrs: dict[str, AttrValue]
    grids: Grids
    x: QParams
    y: QParams
    weights: Array
    """Scales of the weights: one for each item, or a single one."""
    first: Array
    """Codes of x without the zero point: one per item for a depthwise convolution, else one."""
    taken: Array
    bias: Array
    terms: int
    aim: str

    def question(self, kept: Array) -> Question:
        """Return the question of the items *kept*."""
        part, depthwise = self.target.weight, self.target.spec.op == "depthwise_conv2d"
        each = part is not None and part.granularity == "channel"
        spatial = 0 if self.target.spec.op == "fully_connected" else 2
        shapes = _filter_shapes(len(kept), self.terms, spatial, depthwise=depthwise)
        params = QParams(
            integer(8, signed=True),
            torch.from_numpy(self.weights[kept] if each else self.weights[:1]).reshape(-1 if each else ()),
            torch.zeros(len(kept) if each else (), dtype=torch.int64),
            -WEIGHT,
            WEIGHT,
            0 if each else None,
        )
        params = params if self.x.steps is None else _with_steps(params)
        codes = torch.from_numpy(self.first[kept] if depthwise else self.first) + int(self.x.zero_point)
        repeated = torch.from_numpy(np.repeat(self.taken[kept], self.terms))
        weight = Constant(repeated.reshape(shapes["weight"]), params)
        constant = self.grids.bias(self.x, params, torch.from_numpy(self.bias[kept]))
        shown = {
            "x": np.broadcast_to(codes.numpy().reshape(-1, 1), (len(kept), self.terms)),
            "weight": repeated.numpy().reshape(-1, self.terms),
            "bias": self.bias[kept],
        }
        operand = codes.repeat_interleave(self.terms).reshape(shapes["x"])
        operands = {"x": operand, "weight": weight.codes, "bias": constant.codes}
        constants = {"weight": weight, "bias": constant}
        return Question(self.target, self.attrs, {"x": self.x}, self.y, operands, constants, self.aim, shown)


def filters(target: Target, draws: Draws, wanted: Wanted) -> Draft:
    """Return a product of one code with one weight for each item, and the bias that gives its sum the wanted value."""
    spec, depthwise = target.spec, target.spec.op == "depthwise_conv2d"
    spatial = 0 if spec.op == "fully_connected" else 2
    part = target.weight
    terms = MANY if wanted.past is not None and wanted.past > 24 else 1
    n, each = wanted.items, part is not None and part.granularity == "channel"
    attrs: dict[str, AttrValue] = {} if not spatial else {"stride": (1, 1), "padding": (0, 0, 0, 0), "dilation": (1, 1)}
    if spatial and not depthwise:
        attrs["groups"] = 1
    least = -1 if wanted.far else max(wanted.reach - FAR_BITS, -1)
    exponent = draws.integer(least, max(wanted.reach - CODE_BITS, 0) + 1)
    sx, sw = draws.integer(-6, 3), draws.integer(-8, 1)
    weights = scale_of(draws, wanted.aim, sw, n if each else None)
    grids = Grids(target, attrs, _filter_shapes(n, terms, spatial, depthwise=depthwise))
    x = grids.inputs({"x": float(scale_of(draws, wanted.aim, sx)[0])}, {"x": place_of(draws)})["x"]
    y = grids.output({"x": x}, float(scale_of(draws, wanted.aim, sx + sw + exponent)[0]), place_of(draws))
    ratio = float(x.scale) * weights / float(y.scale)
    sums = _sums(draws, wanted, np.broadcast_to(ratio, (n,)), y)
    if wanted.past is not None:
        y, weights = _past(draws, wanted, grids, x, y, weights)
    elif wanted.aim == SOLVED and each:
        ends = (y.qmin - int(y.zero_point), y.qmax - int(y.zero_point))
        ties = np.array([tie_of(draws, ends, positive=bool(total > 0)) for total in sums])
        ties = twice_tied(draws, ties, np.abs(ties / np.where(sums == 0, 1, sums)))
        solved = ties * float(y.scale) / (float(x.scale) * np.where(sums == 0, 1, sums))
        # scales far from the drawn ones would make other sums of the channel leave the codes
        usable = (solved > weights * 2.0**-6) & (solved < weights * 2.0**6)
        weights = np.where(usable, solved, weights).astype(np.float32).astype(np.float64)
    elif not each and not grids.follows:
        y = grids.grid(
            y,
            solved_scale(
                draws, wanted, float(y.scale), sums * float(x.scale) * weights[0], y, float(x.scale) * float(weights[0])
            ),
            None,
        )
    low, high = x.qmin - int(x.zero_point), x.qmax - int(x.zero_point)
    first = draws.integers(low, high + 1, n if depthwise else 1)
    taken = draws.integers(-WEIGHT, WEIGHT + 1, n)
    if wanted.past is not None:
        far = high if high >= -low else low
        # the largest products of the sign of the sum, since the bias alone has only 32 bits
        first, taken = np.full_like(first, far), np.where(sums > 0, WEIGHT, -WEIGHT) * (1 if far > 0 else -1)
    bias = np.clip(sums - terms * first * taken, -LARGEST_BIAS, LARGEST_BIAS)

    known = _Filters(target, attrs, grids, x, y, weights, first, taken, bias, terms, wanted.aim)
    return Draft(n, known.question)


def rows_of_products(target: Target, draws: Draws, wanted: Wanted) -> Draft:
    """Return products of rows with one column. Its codes are the largest, except one of 1, to reach any sum."""
    n, terms = wanted.items, draws.integer(2, 7)
    grids = Grids(target, {}, {"a": (n, terms), "b": (terms, 1)})
    e = draws.integer(-6, 3)
    scales = {name: float(scale_of(draws, wanted.aim, e)[0]) for name in "ab"}
    inputs = grids.inputs(scales, {"a": place_of(draws), "b": place_of(draws)})
    a, b = inputs["a"], inputs["b"]
    exponent = draws.integer(0, 10)
    y = grids.output(inputs, float(scale_of(draws, wanted.aim, 2 * e + exponent)[0]), place_of(draws))
    far = b.qmax if b.qmax - int(b.zero_point) >= int(b.zero_point) - b.qmin else b.qmin
    unit = int(np.clip(int(b.zero_point) + 1, b.qmin, b.qmax))
    column = np.array([far] * (terms - 1) + [unit])
    centred = column - int(b.zero_point)
    unit_of = float(a.scale) * float(b.scale)
    tied = draws.integers(-(1 << 13), 1 << 13, 1)
    if not grids.follows:
        y = grids.grid(y, solved_scale(draws, wanted, float(y.scale), tied * unit_of, y, unit_of), None)
    sums = _sums(draws, wanted, np.full(n, unit_of / float(y.scale)), y)
    sums[: n // 8] = tied * draws.integers(-3, 4, n // 8)
    rows = np.zeros((n, terms), dtype=np.int64)
    # the large codes take nearly the whole sum, and the last column, of 1, takes what is left
    for place, weight in enumerate(centred):
        left = sums - rows @ centred
        share = np.round(left / (weight or 1)).astype(np.int64)
        rows[:, place] = np.clip(share, a.qmin - int(a.zero_point), a.qmax - int(a.zero_point))
    rows += int(a.zero_point)

    def build(kept: Array) -> Question:
        codes = {"a": torch.from_numpy(rows[kept]), "b": torch.from_numpy(column).reshape(-1, 1)}
        shown = {"a": rows[kept], "b": np.broadcast_to(column, (len(kept), terms))}
        return Question(target, {}, inputs, y, codes, {}, wanted.aim, shown)

    return Draft(n, build)


def _sums(draws: Draws, wanted: Wanted, ratio: Array, y: QParams) -> Array:
    """Return sums next to breakpoints of the output's codes, or at the ends of an accumulator and beyond them."""
    n, limit = len(ratio), float((1 << wanted.reach) - 1)
    codes = draws.integers(y.qmin - 1, y.qmax + 1, n) - int(y.zero_point) + 0.5
    # most sums are the nearest to a tie; the others lie up to two units away
    beside = np.where(draws.shares(n) < 0.7, 0, draws.integers(-2, 3, n))
    found = np.round(codes / ratio) + beside
    inside = np.abs(found) <= limit
    anywhere = np.round((draws.shares(n) * 2.0 - 1.0) * limit)
    found = np.where(inside, found, anywhere)
    if wanted.past is not None:
        end = 2.0 ** (wanted.past - 1)
        beyond = _beyond(wanted.past)
        near = np.where(draws.shares(n) < 0.5, 1.0, -1.0) * (end + draws.integers(-beyond // 8, beyond, n))
        found = near
    return np.asarray(found.astype(np.int64))


def _beyond(bits: int) -> int:
    """Return how far sums exceed an accumulator of *bits*: what the products add to the largest bias."""
    return (MANY if bits > 24 else 1) << 13


def _past(draws: Draws, wanted: Wanted, grids: Grids, x: QParams, y: QParams, weights: Array) -> tuple[QParams, Array]:
    """Return scales that put the end of an accumulator next to a tie: a saturated sum and a whole one differ."""
    ends = (y.qmin - int(y.zero_point), y.qmax - int(y.zero_point))
    past = wanted.past or 1
    if draws.share() < 0.5:
        return y, (weights * (1.0 + draws.shares(len(weights)))).astype(np.float32).astype(np.float64)
    end = 2.0 ** (past - 1) + draws.integers(0, _beyond(past), len(weights))
    tie = tie_of(draws, ends, positive=True) or -tie_of(draws, ends, positive=False)
    if len(weights) > 1:
        return y, (tie * float(y.scale) / (float(x.scale) * end)).astype(np.float32).astype(np.float64)
    return grids.grid(y, float(x.scale) * float(weights[0]) * float(end[0]) / tie, None), weights


def _filter_shapes(n: int, terms: int, spatial: int, *, depthwise: bool) -> dict[str, tuple[int, ...]]:
    if depthwise:
        return {"x": (1, n, 1, terms), "weight": (n, 1, 1, terms), "bias": (n,)}
    ones = (1,) * spatial
    return {"x": (1, terms, *ones), "weight": (n, terms, *ones), "bias": (n,)}


def _with_steps(params: QParams) -> QParams:
    steps = (1.0 / params.scale).float()
    return replace(params, scale=1.0 / steps.double(), steps=steps)
