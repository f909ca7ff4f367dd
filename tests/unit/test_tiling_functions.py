"""A registered tiling function: `tiled` passes only where a part of the output was run."""

from pathlib import Path

from quantizer.conformance.generation.builder import covering_rows_of
from quantizer.conformance.generation.stacks import row_case
from quantizer.conformance.judging.judge import judge
from quantizer.conformance.setup.options import Options
from quantizer.conformance.setup.session import open_session
from quantizer.conformance.trials.trial import Trial
from quantizer.core.case import TilePlan
from quantizer.ops import REGISTRY
from quantizer.tiling.windows import tiles

SESSION = open_session(Options(root=Path(__file__).parents[2]))


def verdicts(function, checks=("tiled",)):
    """Return what is found on cases of relu with more than one tile, tiled by *function*."""
    targets = SESSION.all_targets(SESSION.library.spec("relu"))
    target = next(one for one in targets if one.id == "relu-a8-ideal")
    rows = enumerate(covering_rows_of(targets, target))
    cases = [row_case(target, place, row) for place, row in rows]
    cut = [case for case in cases if len(tiles(target.spec, case.shapes, case.attrs, case.tiles)) > 1]
    with REGISTRY.overridden("relu", "tile", function, "ideal"):
        return [v for case in cut for v in judge(Trial(target, case, SESSION.engine), checks)]


def statuses(function):
    return {v.status for v in verdicts(function)}


def test_a_tiling_function_that_follows_the_plan_passes():
    assert statuses(tiles) == {"pass"}


def test_a_tiling_function_that_leaves_outputs_whole_is_inconclusive():
    whole = lambda spec, shapes, attrs, _: tiles(spec, shapes, attrs, TilePlan({}))  # noqa: E731
    assert statuses(whole) == {"inconclusive"}


def test_a_tiling_function_without_tiles_fails_in_one_line():
    for given in ([], None, [1]):
        found = verdicts(lambda *_, given=given: given, ("tiled", "repeat"))
        assert {v.reason for v in found if v.failing} == {
            "raised the registered tiling function gave no list of tiles."
        }


def test_a_tiling_function_that_forgets_a_tile_fails():
    """One of two tiles is left then, which is no whole output."""
    assert statuses(lambda *asked: tiles(*asked)[:-1]) == {"fail"}
