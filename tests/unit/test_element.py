"""The printed element of a failure: operands, numbers, and terms that add up to the exact accumulator."""

from __future__ import annotations

import io
import json
import math
import re
from pathlib import Path

import numpy as np
import pytest
import torch

from quantizer.cli import main
from quantizer.conformance.failures import element
from quantizer.conformance.failures.element import MAX_SHOWN, SUMS, element_lines
from quantizer.conformance.failures.message import describe, write_replay
from quantizer.conformance.generation.examples import example_case
from quantizer.conformance.judging.judge import judge
from quantizer.conformance.setup.options import Options
from quantizer.conformance.setup.session import open_session
from quantizer.conformance.stored.files import read_replay
from quantizer.conformance.target import Target
from quantizer.conformance.trials.trial import Trial
from quantizer.core.verdict import EVERY, Verdict, Worst
from quantizer.numerics.qparams import Staged
from quantizer.tiling.windows import needed, slices

SESSION = open_session(Options(root=Path.cwd()))


def trials(op: str, platform: str = "", count: int = 2) -> list[Trial]:
    spec = SESSION.library.specs[op]
    found = []
    for target in SESSION.all_targets(spec):
        if target.platform.platform == (platform or target.platform.platform):
            cases = [example_case(target, example) for example in spec.examples[:count]]
            found += [Trial(target, case, SESSION.engine) for case in cases]
            break
    return [trial for trial in found if trial.refusal is None and 0 not in trial.output_shape]


def middle(trial: Trial) -> tuple[int, ...]:
    return tuple(size // 2 for size in trial.output_shape)


@pytest.mark.parametrize("op", sorted(SESSION.library.specs))
def test_operand_lines_contain_no_numpy_or_torch_reprs(op):
    for trial in trials(op):
        text = "\n".join(element_lines(trial, middle(trial)))
        assert all(f"\n  {name:<11} " in f"\n{text}" for name in trial.case.shapes)
        assert not re.search(r"np\.|array\(|tensor\(", text)


@pytest.mark.parametrize("op", sorted(n for n, s in SESSION.library.specs.items() if s.error_model.kind == "bilinear"))
@pytest.mark.parametrize("platform", ["ideal", "compass"])
def test_shown_terms_of_a_product_add_up_to_the_accumulator(op, platform):
    for trial in trials(op, platform, 3):
        index = middle(trial)
        (line,) = (line for line in element_lines(trial, index) if line.startswith("  accumulator"))
        total, terms = line.removeprefix("  accumulator").split(" = ")
        assert int(total) == int(trial.sums[index])
        if "more" not in terms:
            products = re.sub(r" \(\w+\)", "", terms).split(" + ")
            assert int(total) == sum(int(np.prod([int(n) for n in one.split("*")])) for one in products)
        assert len(terms.split(" + ")) <= MAX_SHOWN + 1


@pytest.mark.parametrize("op", ["conv2d", "softmax", "add", "sigmoid", "max_pool2d", "layer_norm", "transpose"])
def test_operands_outside_the_shown_window_do_not_matter(op):
    """If operands outside the window are replaced, the reference keeps its value at the element."""
    (trial, *_) = trials(op)
    index = middle(trial)
    boxes = needed(trial.spec, trial.case.shapes, trial.case.attrs, index)
    other = {}
    for name, values in trial.doubles.items():
        changed = values * 0.5 + 0.25
        changed[slices(boxes[name])] = values[slices(boxes[name])]
        other[name] = changed
    assert trial.reference(other)[index] == trial.reference(trial.doubles)[index]


class OneTooHigh:
    """The engine, with one code of each output too high."""

    def __init__(self, engine):
        self._engine = engine

    def __getattr__(self, name):
        return getattr(self._engine, name)

    def run(self, *arguments):
        staged = self._engine.run(*arguments)
        return Staged(torch.where(staged.codes == staged.codes.min(), staged.codes + 1, staged.codes), staged.stages)


def test_a_failure_shows_codes_numbers_and_terms(tmp_path):
    (right, *_) = trials("conv2d", "compass")
    trial = Trial(right.target, right.case, OneTooHigh(SESSION.engine))
    verdicts = judge(trial, EVERY)
    text = describe("item", trial.case, trial, verdicts, rerun="-", replay="-")
    for label in ("expected", "got", "x", "  code", "  real", "weight", "multiplier", "accumulator", "y"):
        assert f"\n  {label:<11} " in text
    path = tmp_path / "item.json"
    write_replay(path, "item", trial, verdicts, text)
    assert read_replay(path).case == trial.case
    stored = json.loads(path.read_text())["tensors"]
    kept = json.loads(path.read_text())["text"]
    assert f"{kept}\n  rerun       -\n  replay      -" == text, "what names a run's folders is left out"
    assert stored["y"]["got"] == trial.got.reshape(-1).tolist()
    assert stored["weight"]["code"] == trial.codes["weight"].reshape(-1).tolist()


@pytest.mark.parametrize("op", sorted(SESSION.library.specs))
def test_every_operator_is_exported_with_expected_and_got(op, tmp_path, monkeypatch, capsys):
    (trial, *_) = trials(op, count=9)
    monkeypatch.setattr("quantizer.conformance.setup.session.open_session", lambda *_, **__: SESSION)
    path = tmp_path / "case.json"
    write_replay(path, op, trial, [], "")
    assert main(["case", "export", str(path), "-o", str(tmp_path / "out")]) == 0
    assert "wrote case.npz, case.json" in capsys.readouterr().out
    described = json.loads((tmp_path / "out" / "case.json").read_text())
    with np.load(io.BytesIO((tmp_path / "out" / "case.npz").read_bytes())) as archive:
        arrays = dict(archive)
    assert arrays.keys() == described["arrays"].keys() >= {"got.code", "expected.real"}
    assert np.array_equal(arrays["got.code"], trial.got)
    if "expected.low" in arrays:
        assert (arrays["expected.low"] <= arrays["got.code"]).all() and (
            arrays["got.code"] <= arrays["expected.high"]
        ).all()


def test_a_crashing_case_is_not_rerun_for_its_file(tmp_path):
    (trial, *_) = trials("relu")
    ran = []
    trial.engine = OneTooHigh(SESSION.engine)
    trial.engine.run = lambda *_, **__: ran.append(1)
    write_replay(tmp_path / "one.json", "item", trial, [], "", ran=False)
    assert not ran and "tensors" not in json.loads((tmp_path / "one.json").read_text())


@pytest.mark.parametrize("op", sorted(n for n, s in SESSION.library.specs.items() if s.error_model.kind in SUMS))
def test_terms_of_a_detached_reference_are_the_same(op, monkeypatch):
    """A plugin's reference runs in a worker. Its failures once said only that the operands could not be shown."""
    trial = min(trials(op), key=lambda trial: sum(map(math.prod, trial.case.shapes.values())))
    followed = element_lines(trial, middle(trial))
    reference = Target.reference
    monkeypatch.setattr(Target, "reference", lambda *given: reference(*given).detach())
    assert element_lines(trial, middle(trial)) == followed


def test_a_long_sum_of_a_detached_reference_is_not_shown(monkeypatch):
    trial = trials("add", count=1)[0]
    reference = Target.reference
    monkeypatch.setattr(Target, "reference", lambda *given: reference(*given).detach())
    monkeypatch.setattr(element, "MAX_CALLS", 1)
    (line,) = (line for line in element_lines(trial, middle(trial)) if "accumulator" in line)
    assert line.endswith("not shown: the plugin's reference would be called more than 1 times")


ONE_ROW = (
    ("concat", "compass", "  multipliers a "),
    ("avg_pool2d", "compass", "  multiplier  that of the number of terms, area_multiplier"),
    ("softmax", "compass", "  numbers     "),
)
"""Operator and platform whose numbers are no multiplier of the sum -> the row of a failure that shows them."""


@pytest.mark.parametrize(("op", "platform", "row"), ONE_ROW)
def test_a_failure_shows_the_numbers_of_each_operand_and_of_the_rule(op, platform, row):
    (right, *_) = trials(op, platform)
    shown = element_lines(right, (0,) * len(right.output_shape))
    assert any(line.startswith(row) for line in shown), shown


@pytest.mark.parametrize(("op", "platform"), [("add", "ideal"), ("fully_connected", "tflite_ref")])
def test_a_failure_shows_the_code_range_of_a_fused_activation(op, platform):
    spec = SESSION.library.specs[op]
    target = next(t for t in SESSION.all_targets(spec) if t.platform.platform == platform)
    case = example_case(target, next(one for one in spec.examples if one.id == "above_six"))
    trial = Trial(target, case, SESSION.engine)
    out = trial.output
    wrong = Verdict("arithmetic", "fail", worst=Worst("y", (0, 0), "", "", ""))
    shown = describe("item", case, trial, [wrong], rerun="", replay="")
    top = int(out.zero_point) + round(6 / float(out.scale))
    assert f", codes {int(out.zero_point)} to {top} after relu6\n" in shown
