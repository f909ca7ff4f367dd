"""Checks `tiled` and `repeat`: several runs of one case whose results must agree."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from quantizer.conformance.checks.arithmetic import of_codes
from quantizer.conformance.checks.float_forward import float_radius, left_open
from quantizer.conformance.trials.elements import ALLOWED, Allowed, judge_codes, judge_equal, judge_reals
from quantizer.conformance.trials.provided import copies
from quantizer.conformance.trials.together import mixed_batch
from quantizer.conformance.trials.trial import TILED, Trial
from quantizer.core.case import TilePlan
from quantizer.core.errors import FunctionError, RefusedError
from quantizer.core.platforms import computed_activation
from quantizer.core.shapes import channel_axis
from quantizer.core.spec import NoTiling
from quantizer.core.verdict import Verdict, Worst, failure, inconclusive, passed
from quantizer.ir.graph import Tensor as GraphTensor
from quantizer.numerics.activations import activate, activate_codes
from quantizer.numerics.bitwise import bitwise_equal
from quantizer.numerics.qparams import Parameters
from quantizer.numerics.requantize_accumulator import requantize_accumulator
from quantizer.ops import REGISTRY
from quantizer.ops.registry import BUILT_IN
from quantizer.plugins.layer_multipliers import SCALE, SHIFT
from quantizer.runtime.engines.builtin import BuiltinEngine
from quantizer.runtime.engines.protocol import Asked
from quantizer.tiling.operands import UnfitError, cut, cut_parameters, padded_with, stitch
from quantizer.tiling.windows import Tile, slices, tileable_axes, tiles
from quantizer.tiling.windows import part as tile_of

Array = NDArray[Any]


def tiled(trial: Trial) -> Verdict | None:
    """Judge the tiled run: codes equal the untiled ones; a tiled float forward stays within the `float` bound.

    None for a case without tiles.
    """
    if isinstance(trial.spec.tiling, NoTiling):
        return inconclusive("tiled", trial.spec.tiling.none)
    if not trial.case.tiles.sizes:
        return None
    plan = planned(trial, trial.case.tiles)
    is_whole = len(plan) == 1 and math.prod(stop - start for start, stop in plan[0].output) == trial.got.size
    if is_whole and len(tiles(trial.spec, trial.case.shapes, trial.case.attrs, trial.case.tiles)) > 1:
        return inconclusive("tiled", "the registered tiling function leaves the output whole: no part of it was run")
    # the judge adds up the parts of a split sum, so the engine must show them
    if any(tile.parts > 1 for tile in plan) and trial.accumulate(trial.call, trial.codes, trial.parameters) is None:
        return inconclusive("tiled", f"engine {trial.engine.name} shows no accumulators to split")
    if any(tile.parts > 1 for tile in plan) and _brings_sums_to_codes_itself(trial):
        # tiles along other axes need no sums and are still judged
        plan = planned(trial, _unsplit(trial))
        if len(plan) == 1:
            return inconclusive("tiled", "the platform's own function takes no sums: nothing says how to split them")
    if own := _uncut(trial, plan):
        return inconclusive(
            "tiled", f"constant {own!r} is the plugin's own, with a number per channel: no rule cuts it for tiles"
        )
    try:
        codes = tiled_codes(trial, plan)
    except UnfitError as err:
        return failure("tiled", str(err))
    low, high = owed(trial)
    verdict = judge_codes("tiled", trial, Allowed(low, high, made_of="the untiled codes"), got=codes)
    if verdict.failing:
        return _with_tile(verdict, plan)
    floats = tiled_float(trial, plan)
    return floats if floats.failing else replace(verdict, ratio=max(verdict.ratio, floats.ratio))


def owed(trial: Trial) -> tuple[Array, Array]:
    """Return the codes of the first run: a run of the same numbers in another shape or order must give them too.

    An enclosing arithmetic promises no order, nor does a platform for float32 sums of a plugin: return all codes that
    `arithmetic` allows.
    """
    any_order = trial.target.platform.enclosing is not None or trial.any_order
    if not any_order or trial.spec.error_model.kind == "index":
        return trial.got, trial.got
    if not set(ALLOWED) <= trial.shared.keys():
        # judging stores the limits of each element
        of_codes(trial)
    low, high = (trial.shared.get(name, trial.got) for name in ALLOWED)
    return low, high


def _brings_sums_to_codes_itself(trial: Trial) -> bool:
    """Return whether the platform registered a forward that requantizes differently from the generic arithmetic."""
    forward = REGISTRY.find(trial.spec.op, "quantized", trial.target.platform.places)
    if forward is None or forward.platform is None or forward.origin != BUILT_IN:
        return False
    if trial.parameters.rescale is None:
        return True
    sums = trial.accumulate(trial.call, trial.codes, trial.parameters)
    if sums is None:
        return False
    own = BuiltinEngine().run(trial.call, trial.codes, trial.parameters).codes  # whatever engine is tested
    return not torch.equal(_finished(trial, sums, trial.parameters), own)


def _unsplit(trial: Trial) -> TilePlan:
    rules = trial.spec.tiling
    assert not isinstance(rules, NoTiling), "it has tiles"
    sizes = trial.case.tiles.sizes.items()
    return TilePlan({name: size for name, size in sizes if name not in rules or rules[name].rule != "accumulate"})


def _uncut(trial: Trial, plan: list[Tile]) -> str | None:
    """Return the name of a plugin's extra constant that tiles of *plan* would have to cut along channels, or None."""
    channel = channel_axis(trial.spec, trial.bound, len(trial.output_shape))
    cut_there = channel is not None and len({tile.output[channel] for tile in plan}) > 1
    return own_per_channel(trial, channel) if cut_there else None


def own_per_channel(trial: Trial, channel: int | None) -> str | None:
    """Return the name of a plugin's extra constant with an axis as long as the channels, or None."""
    count = 1 if channel is None else trial.output_shape[channel]
    for name, value in trial.parameters.extra.items():
        data = value.data if isinstance(value, GraphTensor) and name not in (SCALE, SHIFT) else None
        if count > 1 and data is not None and count in data.shape:
            return name
    return None


def planned(trial: Trial, plan: TilePlan) -> list[Tile]:
    """Return the tiles of *plan*, from the operator's registered tiling function if it has one, else from the spec."""
    entry = REGISTRY.find(trial.spec.op, "tile", trial.target.platform.places)
    function = entry.function if entry else tiles
    found: list[Tile] = function(trial.spec, trial.case.shapes, trial.case.attrs, plan)
    if not isinstance(found, list) or not found or not all(isinstance(tile, Tile) for tile in found):
        raise FunctionError("the registered tiling function gave no list of tiles.")
    return found


def tiled_codes(trial: Trial, plan: list[Tile]) -> Array:
    """Run the tiles of the case's own *plan* once and return their codes, joined."""
    if TILED not in trial.shared:
        trial.shared[TILED] = stitched(trial, plan)
    return trial.shared[TILED]


def stitched(trial: Trial, plan: list[Tile]) -> Array:
    """Return the joined codes of all tiles; UnfitError if the tiles do not fit together."""
    codes: Array = stitch(trial.output_shape, [*_tile_codes(trial, plan)], torch.int64).numpy()
    return codes


def _tile_codes(trial: Trial, plan: list[Tile]) -> Iterator[tuple[Tile, Tensor]]:
    sums: dict[tuple[tuple[int, int], ...], Tensor] = {}
    asked = [_of_tile(trial, tile) for tile in plan]
    whole = trial.results(replace(one, operands=copies(one.operands)) for tile, one in asked if tile.parts == 1)
    for tile, one in asked:
        if tile.parts == 1:
            yield tile, next(whole)
            continue
        parameters, operands = one.parameters, one.operands
        assert parameters is not None, "an integer forward"
        # the bias belongs to the first slice only
        if tile.part:
            operands = {name: values for name, values in operands.items() if trial.spec.inputs[name].role != "bias"}
        part = trial.accumulate(one.call, operands, parameters)
        if part is None:
            raise UnfitError("the engine shows no accumulators")
        total = sums.get(tile.output)
        sums[tile.output] = part if total is None else total + part
        if tile.part == tile.parts - 1:
            yield tile, _finished(trial, sums[tile.output], parameters)


def _finished(trial: Trial, sums: Tensor, parameters: Parameters) -> Tensor:
    """Return the codes of complete sums under the generic arithmetic, after the fused activation."""
    codes = requantize_accumulator(sums, parameters)
    if (name := trial.case.activation) == "none":
        return codes
    return activate_codes(codes, trial.output, computed_activation(parameters.platform, name), parameters)


def _of_tile(trial: Trial, tile: Tile) -> tuple[Tile, Asked]:
    """Return a tile, padded where the platform pads its tiles, and the integer forward that gives its codes."""
    operands = cut(trial.codes, tile)
    parameters = cut_parameters(trial.parameters, trial.spec, tile)
    code = trial.target.platform.padded_tiles.get(trial.spec.op)
    if code is not None and {"oh", "ow"} & trial.case.tiles.sizes.keys():
        operands, tile = padded_with(operands, trial.spec, tile, code)
    return tile, Asked(trial.call.but(attrs=tile.attrs), operands, parameters)


def tiled_float(trial: Trial, plan: list[Tile], *, off_by: Array | float = 0.0) -> Verdict:
    """Judge the first and the last tile of the float forward, each with all slices of a split sum.

    The codes show whether each window is right; what remains is whether the float sums of a part stay within their
    bound. An engine without the check `float` passes. off_by: what a declared defect adds to the error of each element.
    """
    verdict = passed("tiled")
    if "float" not in trial.engine.checks:
        return verdict
    # the first and the last tile hold the borders, where windows meet the padding
    ends = {plan[0].output, plan[-1].output}
    parts: dict[tuple[tuple[int, int], ...], tuple[Tile, Tensor]] = {}
    chosen = [tile for tile in plan if tile.output in ends]
    for tile, result in zip(chosen, trial.results(_float_of_tile(trial, tile) for tile in chosen), strict=True):
        known = parts.get(tile.output)
        parts[tile.output] = (tile, result if known is None else known[1] + result)
    off_by = np.broadcast_to(np.asarray(off_by), trial.output_shape)
    radius = float_radius(trial) + off_by
    for tile, result in parts.values():
        box = slices(tile.output)
        y, allowed = trial.y[box], radius[box]
        got = left_open(activate(result, trial.case.activation).double().numpy(), y, off_by[box])
        found = judge_reals("tiled", got, y - allowed, y + allowed, y, made_of="the float check's bound, in one tile")
        if found.failing:
            return found
        verdict = replace(verdict, ratio=max(verdict.ratio, found.ratio))
    return verdict


def _float_of_tile(trial: Trial, tile: Tile) -> Asked:
    """Return the float forward of a tile; a bias is added once, by the first slice of a split sum."""
    operands = copies(cut(trial.tensors, tile))
    if tile.part:
        operands = {name: values for name, values in operands.items() if trial.spec.inputs[name].role != "bias"}
    return Asked(trial.call.but(attrs=tile.attrs, activation="none"), operands, None)


def _with_tile(verdict: Verdict, plan: list[Tile]) -> Verdict:
    if verdict.worst is None:
        return verdict
    index = verdict.worst.index
    for tile in plan:
        if all(start <= i < stop for i, (start, stop) in zip(index, tile.output, strict=True)):
            # a wrong halo shows at the edge of a tile
            seam = min(min(i - start, stop - 1 - i) for i, (start, stop) in zip(index, tile.output, strict=True))
            detail = {"tile": str(list(tile.output)), "distance to its edge": str(seam)}
            return replace(verdict, worst=replace(verdict.worst, detail=detail))
    return verdict


def repeat(trial: Trial) -> Verdict:
    """Judge repeated runs: a smaller batch and a second run give the same codes, and operands are not modified."""
    before, parameters = trial.got, trial.parameters
    if (written := trial.damaged()) is not None:
        return failure("repeat", f"the engine wrote into {written}")
    first = [*_first_slices(trial)]
    operands = copies(trial.codes)
    results = trial.results([*(_of_slice(trial, tile) for _, tile in first), Asked(trial.call, operands, parameters)])
    for axis, tile in first:
        part = next(results).numpy()
        low, high = (codes[slices(tile.output)] for codes in owed(trial))
        made_of = f"the first slice along {axis} of the whole run"
        verdict = judge_codes("repeat", trial, Allowed(low, high, made_of=made_of), got=part)
        if verdict.failing:
            return verdict
    try:
        again = next(results).numpy()
    except RefusedError as err:
        return failure("repeat", f"the engine refused the case that it ran before: {err}")
    for name, values in operands.items():
        if not bitwise_equal(values, trial.codes[name]):
            index = tuple(int(i) for i in (values != trial.codes[name]).nonzero()[0])
            worst = Worst(
                name, index, str(int(trial.codes[name][index])), str(int(values[index])), "unchanged operands"
            )
            return failure("repeat", f"the engine wrote into operand {name}", worst)
    if (written := trial.damaged()) is not None:
        return failure("repeat", f"the engine wrote into {written}")
    if (mixed := _in_a_batch(trial)) is not None:
        return mixed
    verdict = judge_equal("repeat", trial, again, before, "the codes of the first run")
    return verdict if verdict.failing else _on_threads(trial) or verdict


def _in_a_batch(trial: Trial) -> Verdict | None:
    """Return the failure of a batch of the case and others: each must have the codes that it has alone."""
    several = mixed_batch(trial)
    for place, (one, codes) in enumerate(several):
        made_of = f"the codes of trial {place} alone, which is one of a batch of {len(several)}"
        verdict = judge_codes("repeat", one, Allowed(*owed(one), made_of=made_of), got=codes.numpy())
        if verdict.failing:
            worst = verdict.worst and replace(verdict.worst, elsewhere=one is not trial)
            reason = f"trial {place} of a batch of {len(several)} has other codes than alone"
            return replace(verdict, reason=reason, worst=worst)
    return None


def _on_threads(trial: Trial) -> Verdict | None:
    """Return the failure of a run on several threads, where the engine has them: the codes are those of one."""
    counts = trial.engine.threads
    asked = [Asked(trial.call, copies(trial.codes), trial.parameters, threads=count) for count in counts]
    for count, codes in zip(counts, trial.results(asked) if asked else (), strict=True):
        made_of = f"the codes of one thread; got on {count}"
        verdict = judge_equal("repeat", trial, codes.numpy(), trial.got, made_of)
        if verdict.failing:
            return verdict
    return None


def _of_slice(trial: Trial, tile: Tile) -> Asked:
    """Return the integer forward of a slice of the case."""
    parameters = cut_parameters(trial.parameters, trial.spec, tile)
    return Asked(trial.call.but(attrs=tile.attrs), copies(cut(trial.codes, tile)), parameters)


def _first_slices(trial: Trial) -> Iterator[tuple[str, Tile]]:
    """Yield the first axis, longer than 1, along which outputs are independent, and the first slice along it."""
    if isinstance(trial.spec.tiling, NoTiling):
        return
    rules = trial.spec.tiling
    for name, size in tileable_axes(trial.spec, trial.case.shapes, trial.case.attrs).items():
        rule = rules[name] if name in rules else rules["*"]
        if rule.rule == "independent" and size > 1:
            ends = _ends(trial, name, size)
            if not _uncut(trial, ends):
                yield name, ends[0]
                return


def _ends(trial: Trial, axis: str, size: int) -> list[Tile]:
    """Return slices of size one along an axis: the first and the last, or all that a tiling function makes."""
    if REGISTRY.find(trial.spec.op, "tile", trial.target.platform.places) is not None:
        return planned(trial, TilePlan({axis: 1}))
    shapes, attrs = trial.case.shapes, trial.case.attrs
    return [tile_of(trial.spec, shapes, attrs, {axis: (at, at + 1)}) for at in (0, size - 1)]
