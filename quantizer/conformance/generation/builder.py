"""One case from one sequence of choices: structure, ranges, data, tiles; valid by construction."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from quantizer.conformance.generation.choice_sources import ChoiceSource, HashChoices
from quantizer.conformance.generation.covering import covering_rows
from quantizer.conformance.generation.datasets import materialise
from quantizer.conformance.generation.domains import bins_of, draw
from quantizer.conformance.generation.hashing import key
from quantizer.conformance.generation.ranges import (
    Change,
    activation_of,
    changed_range,
    constant_range,
    input_range,
    output_range,
    ranges_within,
)
from quantizer.conformance.generation.staged_ties import tied_ranges
from quantizer.conformance.generation.ties import mean_terms
from quantizer.conformance.generation.weight_blocks import in_blocks
from quantizer.conformance.target import Target
from quantizer.core.case import AxisOrder, Case, DataRecipe, Range, TilePlan
from quantizer.core.domains import draw_order
from quantizer.core.platforms import Platform
from quantizer.core.shapes import Shape, evaluate, variables
from quantizer.core.spec import NoTiling, Output, Spec
from quantizer.numerics.rules import weight_params
from quantizer.ops import REGISTRY
from quantizer.tiling.windows import tileable_axes

TILE_BINS = ("untiled", "ones", "prime", "below", "whole", "above", "mixed", "split")
MAX_TILES = 6
ATTEMPTS = 6
"""After this many cases that miss the aim of a data set, the aim is inconclusive."""
SEARCHED = 256
"""After this many structures without a bin, the bin is inconclusive."""
SEED_BITS = 32
MOST_PLACES = 126
"""The largest number of binary places of a product's step: with more, products and ranges are not exact in float32."""
BY_STEP = ("ties", "near_ties")
"""Data sets whose output range is derived from the unit of the accumulator."""
UNIT = 2.0**-7
"""Step of the output for ties where no operand's step determines it, since all operands are real numbers."""
EMPHASIS: tuple[Mapping[str, str], ...] = (
    {"data": "ties"},
    {"data": "ties"},
    {"data": "ties", "tiles": "prime"},
    {"tiles": "ones"},
    {"tiles": "prime"},
    {"activation": "relu6", "data": "corners"},
)
"""Properties that need more than one row in a target: rounding shows only at ties, windows only at seams."""


def factors(spec: Spec, targets: Sequence[str]) -> dict[str, list[str]]:
    """Return the coverage factors of an operator: targets, data sets, axis orders, tile bins, operands, bins."""
    found: dict[str, list[str]] = {"target": list(targets), "data": list(spec.data)}
    if spec.fuses:
        found["activation"] = ["none", *spec.fuses]
    if any(item.spatial for item in spec.inputs.values()):
        found["order"] = ["channels_first", "channels_last"]
    if not isinstance(spec.tiling, NoTiling):
        reduced = [name for name, rule in spec.tiling.items() if rule.rule == "accumulate"]
        several = "*" in spec.tiling or len(spec.tiling) - len(reduced) > 1
        legal = {"split": bool(reduced), "mixed": several}
        found["tiles"] = [name for name in TILE_BINS if legal.get(name, True)]
    for name, item in spec.inputs.items():
        if item.optional:
            found[f"with_{name}"] = ["yes", "no"]
    for name, domain in {**spec.dims, **spec.attrs}.items():
        if domain.bins:
            found[name] = list(domain.bins)
    return found


def covering_rows_by_id(spec: Spec, targets: Sequence[str], target: str) -> list[Mapping[str, str]]:
    """Return the rows of the operator's covering array that belong to *target*, then the rows that EMPHASIS repeats."""
    found = factors(spec, targets)
    own = [row for row in covering_rows(found) if row["target"] == target]
    return own + [row for row in EMPHASIS if all(value in found.get(name, ()) for name, value in row.items())]


def covering_rows_of(targets: Sequence[Target], target: Target) -> list[Mapping[str, str]]:
    """Return the rows of *target* among *targets*.

    Each platform with its own code has a separate covering array, and so has each of its schemes' kinds of grid.
    """
    return covering_rows_by_id(target.spec, [t.id for t in targets if t.deal == target.deal], target.id)


def single_bin_choices(target: Target, entry: str) -> Iterator[HashChoices]:
    """Yield choices that aim at a single coverage entry, for entries that no row could combine with its other entries.

    For a data set, there are several cases, since a single case may miss its property. For any other entry, there is
    one: the first case that has it.
    """
    factor, value = entry.split("=", 1)
    seeds = (key(attempt, target.id, entry) for attempt in range(ATTEMPTS if factor == "data" else SEARCHED))
    choosers = (HashChoices(seed, {factor: value}) for seed in seeds)
    if factor == "data":
        yield from choosers
    else:
        yield from itertools.islice((c for c in choosers if entry in coverage(target, outline(target, c))), 1)


def build_case(target: Target, chooser: ChoiceSource, change: Change | None = None) -> Case:
    """Return one legal case, its ranges as drawn or as *change* makes them; equal choices give equal cases."""
    bound, present, data = drawn(target, chooser)
    seed = chooser.integer("seed", 0, (1 << SEED_BITS) - 1)
    # None without a change, so that `complete` draws the ranges itself
    given = change and {name: changed_range(target, name, data, chooser, bound, change) for name in present}
    return complete(target, bound, present, data, seed, chooser, given)


def outline(target: Target, chooser: HashChoices) -> Case:
    """Return the case without ranges and data, from the same choices: enough for coverage, at a tenth of the cost."""
    spec = target.spec
    bound, present, data = drawn(target, chooser)
    case = _structure(target, bound, present, DataRecipe(data, 0))
    case = case.but(order=_order(spec, chooser), activation=_activation(target, chooser))
    return case.but(tiles=tile_plan(target, case, chooser))


def drawn(target: Target, chooser: ChoiceSource) -> tuple[dict[str, Any], list[str], str]:
    """Return dimensions and attributes by name, the operands that are present, and the data set."""
    spec = target.spec
    bound: dict[str, Any] = {}
    for name in draw_order(spec):
        value = draw(name, spec.dims.get(name) or spec.attrs[name], chooser, bound)
        bound[name] = in_blocks(target, name, value, chooser)
    present: list[str] = []
    for name, item in spec.inputs.items():
        # an operand that needs another one is left out together with it: `present` holds the operands decided so far
        if not item.optional or (item.needs in (None, *present) and _present(name, chooser)):
            present.append(name)
    return bound, present, chooser.bin("data") or chooser.option("data", spec.data)


def _structure(target: Target, bound: Mapping[str, Any], present: Sequence[str], data: DataRecipe) -> Case:
    spec = target.spec
    shapes = {name: evaluate(spec.inputs[name].axes, bound) for name in present}
    attrs = {name: bound[name] for name in spec.attrs}
    return Case(
        spec.op, target.scheme.name, target.platform.platform, shapes, attrs, {}, "channels_first", TilePlan({}), data
    )


def _order(spec: Spec, chooser: ChoiceSource) -> AxisOrder:
    if not any(item.spatial for item in spec.inputs.values()):
        return "channels_first"
    orders: list[AxisOrder] = ["channels_first", "channels_last"]
    return chooser.bin("order") or chooser.option("order", orders)  # type: ignore[return-value]


def _present(name: str, chooser: ChoiceSource) -> bool:
    asked = chooser.bin(f"with_{name}")
    return asked == "yes" if asked else bool(chooser.integer(f"with_{name}", 0, 1))


def complete(
    target: Target,
    bound: Mapping[str, Any],
    present: Sequence[str],
    data: str,
    seed: int,
    chooser: ChoiceSource,
    given: Mapping[str, Range] | None = None,
) -> Case:
    """Return the case of a structure that is already chosen: ranges (*given* or drawn), outputs, order and tiles."""
    spec = target.spec
    ranges: dict[str, Range] = {}
    for name in present:
        activation = spec.inputs[name].role == "activation"
        ranges[name] = (given or {}).get(name) or (
            input_range(target, name, data, chooser, bound)
            if activation
            else constant_range(target, name, data, chooser)
        )
    ranges |= _shared(target, ranges)
    case = _structure(target, bound, present, DataRecipe(data, seed)).but(ranges=ranges)
    case = case.but(order=_order(spec, chooser), activation=_activation(target, chooser))
    # requested ranges are kept as they are: those of outputs replace calibrated ones, and no ties are searched
    fixed = {name: span for name, span in (given or {}).items() if name in spec.outputs}
    tied = {} if given or case.data.set != "ties" else _tied(target, case, chooser)
    case = case.but(ranges={**_calibrated(target, case, chooser), **tied, **fixed})
    return case.but(tiles=tile_plan(target, case, chooser))


def _shared(target: Target, ranges: Mapping[str, Range]) -> dict[str, Range]:
    """Return the joint range of all activations for each, where the platform has one set of parameters for them."""
    spec = target.spec
    if spec.quantization.family not in target.platform.shared_parameters:
        return {}
    names = [name for name in spec.activations if name in ranges]
    lows, highs = zip(*(ranges[name] for name in names), strict=True)
    return dict.fromkeys(names, (min(lows), max(highs)))


def _tied(target: Target, case: Case, chooser: ChoiceSource) -> Mapping[str, Range]:
    """Return the ranges of ties of declared stages, or where the platform clamps the output's range."""
    spec = target.spec
    if spec.quantization.family not in target.platform.clamp_range_to_output_limits:
        return tied_ranges(target, case, chooser)
    limits = _limits(spec.outputs["y"], variables(spec, case.shapes, case.attrs))
    return ranges_within(target, spec.activations[0], limits, chooser)


def activations(spec: Spec, platform: Platform) -> list[str]:
    """Return the activations that can be fused into the operator on the platform, `none` first."""
    return ["none", *(name for name in spec.fuses if name in platform.activations)]


def runnable_activations(target: Target) -> list[str]:
    """Return the activations that cases of *target* may have, without those that a plugin does not support."""
    legal = activations(target.spec, target.platform)
    return legal if REGISTRY.fuses(target.spec.op, target.platform.places) else ["none"]


def _activation(target: Target, chooser: ChoiceSource) -> str:
    legal = runnable_activations(target)
    asked = chooser.bin("activation")
    # a row's activation may be one that only other platforms of the operator fuse
    return asked if asked in legal else chooser.option("activation", legal)


def _calibrated(target: Target, case: Case, chooser: ChoiceSource) -> dict[str, Range]:
    """Return the case's ranges, and for outputs the ranges of the reference's results on the case's own data."""
    spec = target.spec
    rules = {name: spec.quantization.outputs.get(name, "calibrated") for name in spec.outputs}
    calibrated = [name for name, rule in rules.items() if rule == "calibrated"]
    if not calibrated:
        return dict(case.ranges)
    tensors = materialise(target, case)
    y = target.real({name: values.double() for name, values in tensors.items()}, case).numpy()
    hints = output_hints(target, case, tensors) if case.data.set in BY_STEP else {}
    bound = variables(spec, case.shapes, case.attrs)
    found = {
        name: output_range(target, case.data.set, y, chooser, hints, _limits(spec.outputs[name], bound))
        for name in calibrated
    }
    return {**case.ranges, **found}


def output_hints(target: Target, case: Case, tensors: Mapping[str, Any]) -> dict[str, float]:
    """Return the numbers behind the output range of data next to ties: accumulator units, and the number of terms."""
    spec = target.spec
    hints = {"step": _accumulator_step(target, case, tensors)}
    if spec.error_model.kind == "product":
        # a product of n factors has the unit step**n; its binary places are limited to exponents of float32
        places = math.log2(hints["step"]) * mean_terms(target, case)
        hints["step"] = 2.0 ** min(max(places, -MOST_PLACES), MOST_PLACES)
    if spec.error_model.kind == "mean":
        terms = mean_terms(target, case)
        # half of this output step is the odd part of the number of terms: see `ties._one_of_each_sum`
        hints["mean_step"] = 2.0 * hints["step"] / (terms & -terms)
    if spec.error_model.terms is not None:
        hints["terms"] = float(spec.error_model.terms(variables(spec, case.shapes, case.attrs)))
    return hints


def _limits(output: Output, bound: Mapping[str, Any]) -> Range:
    """Return the smallest and the largest value that a calibration run could see, 0 included."""
    low = -math.inf if output.min is None else float(output.min(bound))
    high = math.inf if output.max is None else float(output.max(bound))
    return min(low, 0.0), max(high, 0.0)


def _accumulator_step(target: Target, case: Case, tensors: Mapping[str, Any]) -> float:
    """Return the real value of one accumulator unit (the smallest of all channels); without weights, an input step."""
    items = target.spec.inputs
    names = [name for name in target.spec.activations if name in case.shapes and items[name].kind == "value"]
    step = min((float(activation_of(target, case, name).scale) for name in names), default=UNIT)
    for name, item in target.spec.inputs.items():
        if item.role == "weight" and target.weight is not None and name in tensors:
            params = weight_params(
                tensors[name], target.weight, target.platform.parameters, item.channel_axis, block_axis=item.block_axis
            )
            step *= float(params.scale.min())
    return step


def tile_plan(target: Target, case: Case, chooser: ChoiceSource) -> TilePlan:
    """Return a plan of at most MAX_TILES tiles, in the size class that the chooser requests."""
    axes = tileable_axes(target.spec, case.shapes, case.attrs)
    if not axes or isinstance(target.spec.tiling, NoTiling):
        return TilePlan({})
    named = factors(target.spec, ["-"])["tiles"]
    kind = chooser.bin("tiles") or chooser.option("tiles", named)
    reductions = [name for name, rule in target.spec.tiling.items() if rule.rule == "accumulate" and name in axes]
    # partial sums saturate at other places than the whole sum, so that a cut sum may rightly give other codes
    if target.platform.accumulator.overflow == "saturate":
        axes = {name: size for name, size in axes.items() if name not in reductions}
    if kind == "untiled" or not axes:
        return TilePlan({})
    if kind == "split":
        halved = [name for name in reductions if name in axes]
        others = [name for name in axes if name not in reductions]
        if halved and others and chooser.option("tiles.beside", ("reductions", "an axis beside them")) != "reductions":
            halved.append(others[chooser.integer("tiles.axis", 0, len(others) - 1)])
        return TilePlan({name: max(1, axes[name] // 2) for name in halved})
    sizes: dict[str, int] = {}
    names = list(axes)
    start = chooser.integer("tiles.axis", 0, len(names) - 1)
    budget = MAX_TILES
    # beginning at a drawn axis, so that the first axis does not always use up the budget
    for name in names[start:] + names[:start]:
        # the size classes of a single axis stand between `untiled` and `mixed`
        size = _tile_size(kind if kind != "mixed" else chooser.option(f"tiles.{name}", TILE_BINS[1:6]), axes[name])
        count = math.ceil(axes[name] / size)
        if count <= budget and name not in reductions:
            sizes[name] = size
            budget //= max(count, 1)
    return TilePlan(sizes)


def _tile_size(kind: str, size: int) -> int:
    # 3 and 2 divide few sizes, so that a rest is left
    sizes = {"ones": 1, "prime": 3 if size > 3 else 2, "below": max(1, size - 1), "whole": size, "above": size + 1}
    return sizes[kind]


def tile_bin(plan: TilePlan, axes: Mapping[str, int], spec: Spec) -> set[str]:
    """Return the size classes that *plan* shows."""
    if not plan.sizes:
        return {"tiles=untiled"}
    rules = {} if isinstance(spec.tiling, NoTiling) else spec.tiling
    found = set()
    for name, size in plan.sizes.items():
        if name in rules and rules[name].rule == "accumulate":
            found.add("tiles=split")
        for kind in ("ones", "below", "whole", "above", "prime"):
            # one size may be in several classes: 1 of an axis of 1 is also the whole axis
            if size == _tile_size(kind, axes[name]):
                found.add(f"tiles={kind}")
    return found | ({"tiles=mixed"} if len(plan.sizes) > 1 else set())


def coverage(target: Target, case: Case) -> set[str]:
    """Return the coverage entries that *case* reaches."""
    spec = target.spec
    found = {f"order={case.order}", f"activation={case.activation}", *(f"data={name}" for name in case.data.sets)}
    found |= tile_bin(case.tiles, tileable_axes(spec, case.shapes, case.attrs), spec)
    return found | _of_structure(spec, tuple(case.shapes.items()), tuple(case.attrs.items()))


@functools.lru_cache(maxsize=4096)
def _of_structure(
    spec: Spec, sizes: tuple[tuple[str, Shape], ...], values: tuple[tuple[str, Any], ...]
) -> frozenset[str]:
    """Return the coverage entries of operands, dimensions and attributes; cached, because structures repeat."""
    shapes, found = dict(sizes), set[str]()
    bound = variables(spec, shapes, dict(values))
    for name, item in spec.inputs.items():
        if item.optional:
            found.add(f"with_{name}={'yes' if name in shapes else 'no'}")
    for name, domain in {**spec.dims, **spec.attrs}.items():
        if name in bound:
            found.update(bins_of(name, domain, bound[name], bound))
    return frozenset(found)


def wanted_coverage(spec: Spec, platform: Platform | None = None) -> set[str]:
    """Return the coverage entries that an operator's cases, on one platform or on all, together must reach."""
    wanted = {name: values for name, values in factors(spec, ["-"]).items() if name != "target"}
    if "activation" in wanted and platform is not None:
        wanted["activation"] = activations(spec, platform)
    return {f"{name}={value}" for name, values in wanted.items() for value in values}
