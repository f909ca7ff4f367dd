"""Several data sets as one case: each part is what it is alone, a fault in one part is found and named, bounds stay as sharp."""

from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest
import torch

from quantizer.conformance.failures.shrink import shrink
from quantizer.conformance.generation.batches import member
from quantizer.conformance.generation.builder import build_case, coverage, covering_rows_of
from quantizer.conformance.generation.choice_sources import HashChoices
from quantizer.conformance.generation.datasets import materialise
from quantizer.conformance.generation.hashing import key
from quantizer.conformance.generation.stacks import row_case, stacked
from quantizer.conformance.judging.dataset_assertions import missed_targets
from quantizer.conformance.judging.judge import is_constant, judge, judged
from quantizer.conformance.setup.options import Options
from quantizer.conformance.setup.session import open_session
from quantizer.conformance.stored.fitting import check_case
from quantizer.conformance.trials.parts import part_of
from quantizer.conformance.trials.trial import Trial
from quantizer.core.case import Case, Stack
from quantizer.core.errors import CaseError
from quantizer.core.verdict import EVERY
from quantizer.numerics.qparams import Staged
from quantizer.runtime.engines.builtin import BuiltinEngine
from quantizer.tiling.stacks import parts, stacked_shapes

SESSION = open_session(Options(root=Path.cwd()))
SPECS = SESSION.library.specs
OPS = [
    "conv2d",
    "depthwise_conv2d",
    "matmul",
    "fully_connected",
    "add",
    "sigmoid",
    "softmax",
    "layer_norm",
    "avg_pool2d",
    "concat",
]
SHARES = ("float", "arithmetic", "accuracy")
"""Checks that judge the output element by element."""


def stacks_of(op, count, data=None):
    """Stacks of *op*, of one target after another."""
    everything = SESSION.all_targets(SPECS[op])
    rows = (
        (target, row_case(target, index, row))
        for target in everything
        for index, row in enumerate(covering_rows_of(everything, target))
        if data is None or row.get("data") == data
    )
    return list(islice(((t, c) for t, c in rows if c.data.stack is not None), 0, 5 * count, 5))


@pytest.mark.parametrize("op", OPS)
def test_each_part_of_a_stack_equals_its_single_run(op):
    found = stacks_of(op, 2)
    assert found
    for target, case in found:
        whole = Trial(target, case, SESSION.engine)
        for place, piece in enumerate(parts(target.spec, case)):
            part, alone = part_of(whole, place), Trial(target, piece.case, SESSION.engine)
            assert part.tensors.keys() == alone.tensors.keys()
            for name, values in alone.tensors.items():
                assert torch.equal(values, part.tensors[name]), (target.id, place, name)
                assert torch.equal(alone.codes[name], part.codes[name]), (target.id, place, name)
            assert alone.parameters.outputs["y"].scale == whole.output.scale
            assert torch.equal(alone.outcome.codes, part.outcome.codes), (target.id, place)


@pytest.mark.parametrize("op", OPS)
def test_a_stack_is_judged_as_sharply_as_its_parts(op):
    for target, case in stacks_of(op, 1):
        whole = {v.check: v for v in judge(Trial(target, case, SESSION.engine))}
        alone = [{v.check: v for v in judge(Trial(target, p.case, SESSION.engine))} for p in parts(target.spec, case)]
        for check in SHARES:
            if check in whole and whole[check].status == "pass":
                assert whole[check].width == max(found[check].width for found in alone), (target.id, check)
                assert whole[check].elements == sum(found[check].elements for found in alone)
                assert whole[check].vacuous == sum(found[check].vacuous for found in alone)


@pytest.mark.parametrize("op", OPS)
def test_a_stack_covers_what_its_first_part_covers(op):
    everything = SESSION.all_targets(SPECS[op])
    for target in everything[::25]:
        for index, row in enumerate(covering_rows_of(everything, target)):
            chooser = HashChoices(key(index, target.id), row)
            case = build_case(target, chooser)
            whole = stacked(target, case, chooser)
            assert coverage(target, case) <= coverage(target, whole)
            assert whole.ranges == case.ranges
            check_case(target.spec, whole)


def test_a_stack_is_read_back_from_its_text():
    for _, case in stacks_of("conv2d", 3):
        text = case.to_json()
        again = Case.from_json(text, "here")
        assert again == case and again.to_json() == text
    plain = case.but(data=replace(case.data, stack=None))
    assert "stack" not in plain.to_json()


def test_an_invalid_stack_is_refused():
    target, case = stacks_of("softmax", 1)[0]
    for stack in (
        Stack("n", case.data.stack.parts),
        Stack(f"d{Trial(target, case, SESSION.engine).axis}", case.data.stack.parts),
    ):
        with pytest.raises(CaseError, match="stack"):
            check_case(target.spec, case.but(data=replace(case.data, stack=stack)))
    unknown = Stack(case.data.stack.axis, (("no_such_set", 1),))
    with pytest.raises(CaseError, match="no_such_set"):
        check_case(target.spec, case.but(data=replace(case.data, stack=unknown)))


def test_channels_and_constants_are_not_stacked():
    """A stack along the channels would have other constants."""
    spec, shapes = SPECS["conv2d"], {"x": (2, 3, 4, 4), "weight": (5, 3, 1, 1)}
    attrs = {"stride": (1, 1), "padding": (0, 0, 0, 0), "dilation": (1, 1), "groups": 1}
    assert stacked_shapes(spec, shapes, attrs, "c_out", 4) is None
    assert stacked_shapes(spec, shapes, attrs, "oh", 4) is None
    assert stacked_shapes(spec, shapes, attrs, "n", 4) == {"x": (8, 3, 4, 4), "weight": (5, 3, 1, 1)}


def test_broadcast_operands_are_shared_by_all_parts():
    spec = SPECS["add"]
    assert stacked_shapes(spec, {"a": (3, 4), "b": (1, 4)}, {}, "d0", 2) == {"a": (6, 4), "b": (1, 4)}
    assert stacked_shapes(spec, {"a": (3, 4), "b": (4,)}, {}, "d0", 2) == {"a": (6, 4), "b": (4,)}
    assert stacked_shapes(spec, {"a": (1, 4), "b": (1, 4)}, {}, "d0", 2) == {"a": (2, 4), "b": (2, 4)}


class _Moved(BuiltinEngine):
    """An engine that returns one code more if *wrong* is true of a run's operands."""

    def __init__(self, wrong):
        super().__init__()
        self.wrong = wrong

    def run(self, call, operands, parameters):
        staged = super().run(call, operands, parameters)
        codes = staged.codes.clone()
        for index in self.wrong(operands, codes):
            codes[index] = codes[index] + (1 if codes[index] < parameters.outputs["y"].qmax else -1)
        return Staged(codes, staged.stages)


def _sharp_stack():
    return next((t, c) for t, c in stacks_of("conv2d", 12, "random") if t.platform.platform == "ideal")


def test_a_fault_in_one_part_fails_only_that_part():
    """The wrong code follows the data of the part into any run."""
    target, case = _sharp_stack()
    place = 4
    data = Trial(target, list(parts(target.spec, case))[place].case, SESSION.engine).codes["x"]

    def wrong(operands, codes):
        each = data.shape[0]
        rows = range(0, operands["x"].shape[0] - each + 1, each)
        return [(row, 0, 0, 0) for row in rows if torch.equal(operands["x"][row : row + each], data)]

    found = judged(Trial(target, case, _Moved(wrong)))
    failing = [trial.case for trial, verdicts in found if any(v.failing for v in verdicts)]
    assert failing == [list(parts(target.spec, case))[place].case]
    assert len(found) == len(case.data.sets)


def test_a_fault_shown_only_by_the_stack_counts_for_it():
    target, case = _sharp_stack()
    size = case.shapes["x"][0]

    def wrong(operands, codes):
        return [(size - 1, 0, 0, 0)] if codes.shape[0] == size else []

    found = judged(Trial(target, case, _Moved(wrong)))
    failing = [trial.case for trial, verdicts in found if any(v.failing for v in verdicts)]
    assert failing == [case] and len(found) == len(case.data.sets) + 1


def test_a_stack_shrinks_to_one_part():
    target, case = _sharp_stack()

    def fails(candidate):
        return any(
            v.failing for v in judge(Trial(target, candidate, _Moved(lambda *_: [(0, 0, 0, 0)])), ("arithmetic",))
        )

    smallest = shrink(target, case, fails)
    assert len(smallest.data.sets) == 1 and smallest.shapes["x"][0] == 1


def test_a_single_constant_part_is_judged_separately():
    """One constant part among random ones is still reported."""
    target, case = _sharp_stack()
    last = list(parts(target.spec, case))[0].output[0][1]

    class Flat(BuiltinEngine):
        def run(self, call, operands, parameters):
            staged = super().run(call, operands, parameters)
            codes = staged.codes.clone()
            codes[:last] = parameters.outputs["y"].qmin
            return Staged(codes, staged.stages)

    trial = Trial(target, case, Flat())
    assert not is_constant(trial) and is_constant(part_of(trial, 0))
    assert case.data.sets[0] == "random"


def test_dataset_targets_are_asserted_for_each_part():
    found = stacks_of("fully_connected", 4, "saturation")
    assert found
    for target, case in found:
        trial = Trial(target, case, SESSION.engine)
        assert missed_targets(trial, set(case.data.sets)) <= set(case.data.sets)
        assert not missed_targets(trial, {"saturation"})
        assert missed_targets(trial, ()) == set()


def test_every_check_of_a_stack_runs_on_the_whole():
    target, case = _sharp_stack()
    ((trial, verdicts),) = judged(Trial(target, case, SESSION.engine), EVERY)
    assert trial.case == case
    assert materialise(target, case)["x"].shape == case.shapes["x"]
    assert {"parameters", "float", "arithmetic", "accuracy", "exact"} <= {v.check for v in verdicts}


@pytest.mark.parametrize("op", ["conv2d", "add", "sigmoid"])
def test_excused_stacks_are_judged_like_their_single_parts(op):
    """The rule runs once. What does not pass on the whole is judged of each part as of a case of its own.

    What passes on the whole passes on each part, too, and the elements of a verdict on codes add up.
    """
    shown = 0
    for target, case in stacks_of(op, 60):
        if not target.platform.defects:
            continue
        engine = _Counting()
        found = judged(Trial(target, case, engine))
        if len(found) == 1 or engine.rules > 1:
            continue
        shown += 1
        alone = [judge(Trial(target, piece.case, SESSION.engine)) for piece in parts(target.spec, case)]
        whole = {verdict.check: verdict for verdict in judge(Trial(target, case, SESSION.engine))}
        open_ = {check for check, verdict in whole.items() if verdict.status not in ("pass", "inconclusive")}
        assert open_
        for (_, verdicts), wanted in zip(found, alone, strict=True):
            said = {verdict.check: verdict for verdict in verdicts}
            assert all(said[verdict.check].status == verdict.status for verdict in wanted)
            assert all(said[verdict.check] == verdict for verdict in wanted if verdict.check in open_)
        for check in ("float", "arithmetic", "accuracy"):
            if whole[check].status != "pass":
                continue
            several = [verdict for _, verdicts in found for verdict in verdicts if verdict.check == check]
            assert sum(verdict.elements for verdict in several) == whole[check].elements
            assert sum(verdict.vacuous for verdict in several) == whole[check].vacuous
    assert shown


def test_a_part_with_possible_overflow_leaves_others_decided():
    """`arithmetic` is inconclusive only for the part that may overflow."""
    spec = SESSION.library.spec("conv1d")
    target = next(t for t in SESSION.all_targets(spec) if t.id == "conv1d-w8a8-torch_x86")
    case = member(target, 77, 20)
    (whole,) = judge(Trial(target, case, SESSION.engine), ("arithmetic",))
    assert (whole.status, whole.reason) == ("inconclusive", "the accumulator may leave 32 bits")
    alone = [judge(Trial(target, piece.case, SESSION.engine), ("arithmetic",)) for piece in parts(spec, case)]
    assert {verdict.status for (verdict,) in alone} == {"inconclusive", "pass"}
    found = judged(Trial(target, case, SESSION.engine), ("arithmetic",))
    assert [verdicts for _, verdicts in found] == alone


class _Counting(BuiltinEngine):
    rules = 0

    def quantize(self, request):
        self.rules += 1
        return super().quantize(request)
