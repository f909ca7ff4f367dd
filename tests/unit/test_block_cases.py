"""Cases of weights in blocks, and rows whose factors do not follow the target."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
import torch
from torch import Tensor

from quantizer.conformance.faults.cases import explicit_cases
from quantizer.conformance.generation.builder import covering_rows_of, factors
from quantizer.conformance.generation.case_classes.deep import cancelling_and_wide, leaves
from quantizer.conformance.generation.case_classes.near_ties import near_ties
from quantizer.conformance.judging.judge import judge
from quantizer.conformance.setup.options import Options
from quantizer.conformance.setup.session import open_session
from quantizer.conformance.target import Target
from quantizer.conformance.trials.trial import Trial
from quantizer.core.case import Case
from quantizer.core.platforms import Accumulator

SESSION = open_session(Options(root=Path.cwd()))
BLOCKS = [
    (op, scheme, block) for op in ("fully_connected", "matmul") for scheme, block in (("w4g4a8", 4), ("w4g128a8", 128))
]


def target_of(op: str, scheme: str) -> Target:
    library = SESSION.library
    return Target(library.spec(op), library.scheme(scheme), library.platform("ideal"))


@pytest.mark.parametrize(("op", "scheme", "block"), BLOCKS)
def test_two_of_five_cases_sum_over_several_blocks(op: str, scheme: str, block: int) -> None:
    target = target_of(op, scheme)
    weight = list(target.spec.inputs)[1]
    axis = target.spec.inputs[weight].block_axis or 0
    sizes = [
        case.shapes[weight][axis] for own, case in explicit_cases(SESSION, target.spec) if own.scheme.name == scheme
    ]

    assert sum(size > block for size in sizes) > 0.4 * len(sizes)
    assert {bool(size % block) for size in sizes if size > block} == {True, False}


@pytest.mark.parametrize(("op", "scheme"), [(op, scheme) for op, scheme, _ in BLOCKS])
def test_products_of_scales_in_float32_change_a_code(op: str, scheme: str) -> None:
    """A kernel that rounds only the products of two scales to float32 is right nearly everywhere, wrong beside ties."""
    target = target_of(op, scheme)
    cases = near_ties(target)
    assert cases and not any(v.failing for case in cases for v in judge(trial_of(target, case), ("arithmetic",)))
    assert any(not torch.equal(in_float32(trial := trial_of(target, case)), trial.outcome.codes) for case in cases)


@pytest.mark.parametrize(("op", "scheme"), [(op, scheme) for op, scheme, _ in BLOCKS])
def test_sums_of_blocks_that_saturate_are_judged(op: str, scheme: str) -> None:
    """A case that shows the end of one accumulator cannot be made where each block has a sum of its own."""
    plain = target_of(op, scheme)
    narrow = Accumulator(bits=18, overflow="saturate")
    target = Target(plain.spec, plain.scheme, plain.platform.model_copy(update={"accumulator": narrow}))
    cases = cancelling_and_wide(target)
    verdicts = [v for case in cases for v in judge(trial_of(target, case), ("parameters", "arithmetic"))]
    assert leaves(target) and {v.status for v in verdicts} == {"pass"}


def trial_of(target: Target, case: Case) -> Trial:
    return Trial(target, case, SESSION.engine)


def in_float32(trial: Trial) -> Tensor:
    """Return the codes of exact sums of codes times products of scales that are rounded to float32."""
    output, values = trial.output, {}
    activation = next(iter(trial.parameters.inputs.values())).scale
    for name, codes in trial.centred.items():
        params = trial.qparams(name)
        if params.blocks is not None:
            values[name] = codes * (activation * params.spread(params.scale, codes.shape)).float().double()
        elif trial.spec.inputs[name].role == "bias":
            values[name] = codes * params.scale.float().double()
        else:
            values[name] = codes.double()
    real = torch.from_numpy(trial.reference(values)) / output.scale
    return (torch.round(real).to(torch.int64) + output.zero_point).clamp(output.qmin, output.qmax)


@pytest.mark.parametrize("op", ["conv2d", "fully_connected", "conv_transpose2d"])
def test_two_valued_factors_take_both_values_on_each_target(op: str) -> None:
    spec = SESSION.library.spec(op)
    targets = SESSION.all_targets(spec)
    two = [name for name, values in factors(spec, ["-"]).items() if len(values) == 2 and name not in ("target", "data")]
    shares = []
    for target in targets:
        rows = covering_rows_of(targets, target)
        for name in two:
            values = Counter(row[name] for row in rows if name in row)
            if values.total() >= 10:
                shares.append(min(values[value] for value in factors(spec, ["-"])[name]) / values.total())

    assert shares and sum(share >= 0.2 for share in shares) >= 0.9 * len(shares)
