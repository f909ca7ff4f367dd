"""Float32 sums of a plugin on platforms that declare no order: right in any memory is green, wrong memory is red."""

from dataclasses import replace
from pathlib import Path

import pytest

from quantizer.conformance.checks.arithmetic import arithmetic
from quantizer.conformance.checks.other_memory import elsewhere
from quantizer.conformance.setup.options import Options
from quantizer.conformance.setup.session import open_session
from quantizer.conformance.trials.trial import Trial
from quantizer.core.case import Case, DataRecipe, TilePlan
from quantizer.core.errors import FunctionError
from quantizer.ops import REGISTRY, load_built_ins
from quantizer.runtime.engines.child import Limits
from quantizer.runtime.isolation.host import Host
from quantizer.runtime.isolation.memory import is_due
from quantizer.runtime.isolation.plugins import CURRENT, load

SESSION = open_session(Options(root=Path(__file__).parents[2]))
PLUGIN = """
import torch
from quantizer.ops import operator

@operator("reduce_mean", version="99.0", kind="quantized")
def quantized(x, *, parameters, axes, keepdims):
    given, out, wrong = parameters.inputs["x"], parameters.outputs["y"], parameters.extra.get("wrong")
    if wrong == "dense":
        x = torch.as_strided(x, x.shape, torch.empty(x.shape).stride(), x.storage_offset())
    if wrong == "offset" and x.storage_offset() or wrong == "repeated" and not x.stride(0):
        x = x + 1
    if wrong == "threads" and torch.get_num_threads() == 3:
        x = x + 1
    if wrong == "refuses" and not (x.is_contiguous() and x.storage_offset() == 0):
        raise ValueError("dense operands only")
    if wrong == "writes" and not x.is_contiguous():
        x.zero_()
    mean = ((x - given.zero_point).float() * given.scale.float()).mean(dim=axes, keepdim=keepdims)
    if parameters.platform.platform == "ideal":
        return ((mean / out.scale).round() + out.zero_point).clamp(out.qmin, out.qmax).long()
    return torch.quantize_per_tensor(mean, float(out.scale), int(out.zero_point), torch.quint8).int_repr().long()
"""


@pytest.fixture(scope="module")
def trials(tmp_path_factory):
    """Return trials of a plugin that is wrong in this way; each is run in other memory, too."""
    plugin = tmp_path_factory.mktemp("plugin") / "means.py"
    plugin.write_text(PLUGIN)
    load_built_ins()
    before, current = {key: list(known) for key, known in REGISTRY.entries.items()}, CURRENT[:]
    host = Host([plugin], Limits())
    load(host)

    def made(wrong="", platform="torch_x86", axes=(1, 2)):
        spec = SESSION.library.spec("reduce_mean")
        target = next(t for t in SESSION.all_targets(spec) if t.platform.platform == platform)
        for seed in range(60):
            trial = Trial(target, _case(target, seed, axes), SESSION.engine)
            trial.provide(replace(trial.parameters, extra={"wrong": wrong}))
            if is_due(trial.codes):
                yield trial

    yield made
    host.close()
    REGISTRY.entries, CURRENT[:] = before, current


def _case(target, seed, axes):
    named = {"axes": axes, "keepdims": False}
    scheme, platform = target.scheme.name, target.platform.platform
    ranges, data = {"x": (-1.0, 1.0), "y": (-0.3, 0.3)}, DataRecipe("random", seed)
    return Case(
        "reduce_mean", scheme, platform, {"x": (144, 2, 5, 1)}, named, ranges, "channels_first", TilePlan({}), data
    )


def test_a_correct_sum_in_another_order_passes(trials):
    found = [(trial, arithmetic(trial)) for trial in trials()]
    assert not any(verdict.failing for _, verdict in found)
    others = [elsewhere(trial, "have their axes in the reverse order in memory") for trial, _ in found]
    assert any((one.got != trial.got).any() for one, (trial, _) in zip(others, found, strict=True))


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("dense", "where operands are not contiguous"),
        ("offset", "where operands stand inside larger buffers"),
        ("repeated", "where operands repeat a slice by a stride of 0"),
        ("threads", "where operands are read by several threads"),
    ],
)
def test_reading_wrong_memory_fails(trials, wrong, said):
    assert said in arithmetic(next(trials(wrong))).reason


def test_a_function_that_writes_into_strided_operands_is_red(trials):
    with pytest.raises(FunctionError, match="wrote outside operand 'x'"):
        arithmetic(next(trials("writes")))


def test_a_function_that_refuses_other_memory_passes(trials):
    assert arithmetic(next(trials("refuses"))).status == "pass"


def test_other_sums_must_not_depend_on_memory_layout(trials):
    assert next(trials()).any_order
    for trial in (next(trials("dense", axes=(2, 3))), next(trials("dense", platform="ideal"))):
        assert not trial.any_order
        with pytest.raises(FunctionError, match="are not contiguous"):
            arithmetic(trial)
