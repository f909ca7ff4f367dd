"""Drafts of questions: grids, and items next to breakpoints.

Of a draft, the items are asked that have different codes under different hypotheses.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import torch

from quantizer.conformance.probe.aims import (
    SOLVED,
    Draft,
    Wanted,
    place_of,
    scale_of,
    solved_input,
    solved_output,
    solved_scale,
)
from quantizer.conformance.probe.draws import Draws
from quantizer.conformance.probe.filters import filters, rows_of_products
from quantizer.conformance.probe.question import Array, Grids, Question
from quantizer.conformance.target import Target
from quantizer.core.case import AttrValue

WINDOWS = (
    (1, 2),
    (1, 3),
    (2, 2),
    (2, 3),
    (1, 7),
    (2, 4),
    (3, 4),
    (2, 5),
    (2, 7),
    (3, 6),
    (4, 5),
    (5, 6),
    (2, 11),
    (2, 13),
    (7, 7),
    (2, 19),
    (2, 23),
    (3, 3),
)
"""Windows and rows of a mean. The reciprocals of some sizes are rounded up, those of others down."""


def pairs(target: Target, draws: Draws, wanted: Wanted) -> Draft:
    """Return items of two codes each, drawn from all pairs."""
    n, e, product = wanted.items, draws.integer(-6, 3), target.spec.op == "mul"
    grids = Grids(target, {}, {"a": (n,), "b": (n,)})
    apart = draws.integer(-4, 5) if not product else 0
    scales = {"a": float(scale_of(draws, wanted.aim, e)[0]), "b": float(scale_of(draws, wanted.aim, e + apart)[0])}
    inputs = grids.inputs(scales, {"a": place_of(draws), "b": place_of(draws)})
    # the output's step follows the size of the result: a product of two steps, or the larger step of a sum
    exponent = 2 * e + draws.integer(0, 10) if product else e + max(apart, 0) + draws.integer(-1, 4)
    y = grids.output(inputs, float(scale_of(draws, wanted.aim, exponent)[0]), place_of(draws))
    drawn = {name: draws.integers(params.qmin, params.qmax + 1, n) for name, params in inputs.items()}
    reals = [(drawn[name] - int(inputs[name].zero_point)) * float(inputs[name].scale) for name in "ab"]
    second = -reals[1] if target.spec.op == "sub" else reals[1]
    if not grids.follows:
        together = reals[0] * second if product else reals[0] + second
        unit = scales["a"] * scales["b"] if product else 0.0
        y = grids.grid(y, solved_scale(draws, wanted, float(y.scale), together, y, unit), None)

    def build(kept: Array) -> Question:
        shown = {name: values[kept] for name, values in drawn.items()}
        codes = {name: torch.from_numpy(values) for name, values in shown.items()}
        return Question(target, {}, inputs, y, codes, {}, wanted.aim, shown)

    return Draft(n, build)


def every_code(target: Target, draws: Draws, wanted: Wanted) -> Draft:
    """Return every code once, for operators of one input."""
    e, spec = draws.integer(-7, 0), target.spec
    known: dict[str, dict[str, AttrValue]] = {
        "leaky_relu": {"slope": 0.25},
        "clip": {"low": -1.0, "high": 6.0},
    }
    attrs = known.get(spec.op, {})
    grids = Grids(target, attrs, {"x": (256,)})
    inputs = grids.inputs({"x": float(scale_of(draws, wanted.aim, e)[0])}, {"x": place_of(draws)})
    x = inputs["x"]
    y = grids.output(inputs, float(scale_of(draws, wanted.aim, e + draws.integer(-1, 4))[0]), place_of(draws))
    every = np.arange(x.qmin, x.qmax + 1)

    def build(kept: Array) -> Question:
        codes = {"x": torch.from_numpy(every[kept])}
        return Question(target, attrs, inputs, y, codes, {}, wanted.aim, {"x": every[kept]})

    if grids.follows:
        inputs = solved_input(
            draws, wanted, grids, inputs, y, int(every[draws.integer(0, every.size)]) - int(x.zero_point)
        )
    y = solved_output(draws, wanted, grids, build(np.arange(len(every))))
    return Draft(len(every), build)


def means(target: Target, draws: Draws, wanted: Wanted) -> Draft:
    """Return rows, images or windows whose sums of codes take every value."""
    op = target.spec.op
    window = WINDOWS[draws.integer(0, len(WINDOWS))]
    terms, rows = window[0] * window[1], wanted.items // 2 * 2
    attrs: dict[str, AttrValue] = {}
    if op.startswith("reduce"):
        attrs, shape = {"axes": (1,), "keepdims": True}, [-1, terms]
    elif op == "avg_pool2d":
        attrs = {
            "kernel": window,
            "stride": window,
            "padding": (0, 0, 0, 0),
            "ceil_mode": False,
            "count_include_pad": True,
        }
        shape = [1, -1, 2, *window]
    else:
        shape = [1, -1, *window]

    def laid(values: Array) -> torch.Tensor:
        placed: Array = values.reshape(shape)
        if op == "avg_pool2d":
            placed = placed.transpose(0, 1, 3, 2, 4).reshape(1, -1, window[0], 2 * window[1])
        return torch.from_numpy(np.ascontiguousarray(placed))

    grids = Grids(target, attrs, {"x": tuple(laid(np.zeros((rows, terms), dtype=np.int64)).shape)})
    e = draws.integer(-6, 3)
    inputs = grids.inputs({"x": float(scale_of(draws, wanted.aim, e)[0])}, {"x": place_of(draws)})
    x = inputs["x"]
    grown = draws.integer(-1, 2) + (2 if op == "reduce_sum" else 0)
    y = grids.output(inputs, float(scale_of(draws, wanted.aim, e + grown)[0]), place_of(draws))
    low, high = x.qmin, x.qmax
    # sums are drawn first and then split into codes: drawn codes would rarely give a sum near its ends
    totals = draws.integers(terms * low, terms * high + 1, rows)
    codes = np.zeros((rows, terms), dtype=np.int64)
    for place in range(terms):
        left = totals - codes.sum(1)
        rest = terms - place - 1
        # the codes that are still to come can make up what is left
        codes[:, place] = np.clip(draws.integers(low, high + 1, rows), left - rest * high, left - rest * low)
    if not grids.follows:
        sums = (totals - terms * int(x.zero_point)) * float(x.scale)
        y = grids.grid(
            y, solved_scale(draws, wanted, float(y.scale), sums / (1 if op == "reduce_sum" else terms), y), None
        )

    def build(kept: Array) -> Question:
        # an image of avg_pool2d holds two windows
        kept = kept[: len(kept) // 2 * 2]
        return Question(target, attrs, inputs, y, {"x": laid(codes[kept])}, {}, wanted.aim, {"x": codes[kept]})

    return Draft(rows, build)


def rows(target: Target, draws: Draws, wanted: Wanted) -> Draft:
    """Return a softmax of random rows, 2 to 12 codes long."""
    n, width = max(wanted.items // 16, 1), draws.integer(2, 12)
    attrs: dict[str, AttrValue] = {"axis": -1}
    grids = Grids(target, attrs, {"x": (n, width)})
    inputs = grids.inputs({"x": float(scale_of(draws, wanted.aim, draws.integer(-6, 0))[0])}, {"x": place_of(draws)})
    y = grids.output(inputs, 2.0**-8, 0.0)
    codes = draws.integers(inputs["x"].qmin, inputs["x"].qmax + 1, n * width).reshape(n, width)

    def build(kept: Array) -> Question:
        shown = {"x": np.repeat(codes[kept], width, axis=0)}
        return Question(target, attrs, inputs, y, {"x": torch.from_numpy(codes[kept])}, {}, wanted.aim, shown)

    if wanted.aim == SOLVED and grids.follows:
        # a softmax of two depends on their difference only, which can be solved
        width, codes = 2, codes[:, :2]
        inputs = solved_input(draws, wanted, grids, inputs, y, int(codes[0, 0] - codes[0, 1]))
    y = solved_output(draws, wanted, grids, build(np.arange(n)))
    return Draft(n, build)


def real_numbers(target: Target, draws: Draws, wanted: Wanted) -> Draft:
    """Return float32 numbers half way between two codes, and their neighbours."""
    n = wanted.items
    grids = Grids(target, {}, {"x": (n,)})
    y = grids.output({}, float(scale_of(draws, wanted.aim, draws.integer(-8, 4))[0]), place_of(draws))
    codes = draws.integers(y.qmin - 1, y.qmax + 1, n) - int(y.zero_point)
    numbers = ((codes + 0.5) * float(y.scale)).astype(np.float32)
    # up to two neighbours away from the tie, on either side
    for _ in range(2):
        step = draws.integers(-1, 2, n)
        toward = np.where(step > 0, np.inf, -np.inf).astype(np.float32)
        numbers = np.where(step == 0, numbers, np.nextafter(numbers, toward))

    def build(kept: Array) -> Question:
        operand = {"x": torch.from_numpy(numbers[kept])}
        return Question(target, {}, {}, y, operand, {}, wanted.aim, {"x": numbers[kept]})

    return Draft(n, build)


DRAFTS: Mapping[str, Callable[[Target, Draws, Wanted], Draft]] = {
    "conv2d": filters,
    "depthwise_conv2d": filters,
    "fully_connected": filters,
    "matmul": rows_of_products,
    "mul": pairs,
    "add": pairs,
    "sub": pairs,
    "relu": every_code,
    "clip": every_code,
    "leaky_relu": every_code,
    "reduce_mean": means,
    "global_avg_pool2d": means,
    "avg_pool2d": means,
    "reduce_sum": means,
    "sigmoid": every_code,
    "tanh": every_code,
    "softmax": rows,
    "quantize": real_numbers,
}
"""Operator -> how questions to it are drafted."""
