"""Tiles of split sums: finished as the generic arithmetic does, unless the platform's function has its own way."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from quantizer.conformance.checks.invariance import tiled
from quantizer.conformance.generation.builder import build_case
from quantizer.conformance.generation.choice_sources import HashChoices
from quantizer.conformance.generation.hashing import key
from quantizer.conformance.setup.options import Options
from quantizer.conformance.setup.session import open_session
from quantizer.conformance.target import Target
from quantizer.conformance.trials.trial import Trial
from quantizer.core.case import Case
from quantizer.core.verdict import Verdict
from quantizer.ops import REGISTRY, load_built_ins
from quantizer.ops.registry import BUILT_IN
from quantizer.runtime.engines.builtin import BuiltinEngine

SESSION = open_session(Options(root=Path.cwd()))
load_built_ins()
TARGET = Target(
    SESSION.library.spec("fully_connected"), SESSION.library.schemes["w8a8"], SESSION.library.platforms["ideal"]
)


class Summing(BuiltinEngine):
    """An engine that shows its own sums, which are *off* the right ones."""

    def __init__(self, off: int = 0) -> None:
        self.off, self.asked = off, 0

    def accumulate(self, call, codes, parameters):
        self.asked += 1
        sums = super().accumulate(call, codes, parameters)
        return None if sums is None else sums + self.off


def split_case() -> Case:
    for index in range(64):
        row = {"data": "random", "tiles": "split", "activation": "none"}
        case = build_case(TARGET, HashChoices(key(index, "split"), row))
        if case.tiles.sizes.keys() >= {"c_in"} and case.shapes["x"][0] > 1:
            return case.but(tiles=replace(case.tiles, sizes={**case.tiles.sizes, "n": 1}))
    raise AssertionError("no case splits its sums")


def truncated(x, weight, bias=None, *, parameters):
    """The function of a room: sums become codes toward zero."""
    sums = ((x - parameters.inputs["x"].zero_point) @ weight.T).double()
    sums = sums if bias is None else sums + bias
    out = parameters.outputs["y"]
    ratio = parameters.inputs["x"].scale * parameters.constants["weight"].params.scale / out.scale
    return ((sums * ratio).trunc().long() + out.zero_point).clamp(out.qmin, out.qmax)


def verdict(engine: Summing) -> Verdict:
    found = tiled(Trial(TARGET, split_case(), engine))
    assert found is not None
    return found


def test_engine_sums_are_requantized_by_the_generic_arithmetic():
    engine = Summing()
    assert verdict(engine).status == "pass"
    assert engine.asked > 1


def test_an_engines_wrong_sums_fail():
    assert verdict(Summing(off=1 << 12)).failing


def test_sums_are_not_split_if_the_platform_function_requantizes_differently():
    """The rest of the plan is judged, and the engine's sums, right or wrong, choose no judge."""
    with REGISTRY.overridden("fully_connected", "quantized", truncated, "ideal", origin=BUILT_IN):
        for off in (0, 1 << 12):
            engine = Summing(off)
            assert verdict(engine).status == "pass"
            assert engine.asked <= 2  # to be compared, not to be stitched
