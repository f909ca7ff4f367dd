"""Reports of public trackers: read with a place for each error, planted under their condition alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from quantizer.conformance.faults.planting import Planting
from quantizer.conformance.generation.builder import build_case
from quantizer.conformance.generation.choice_sources import HashChoices
from quantizer.conformance.real.bugs import bug, twin
from quantizer.conformance.real.document import document, summary
from quantizer.conformance.real.effects import EFFECTS
from quantizer.conformance.real.facts import NAMES, facts
from quantizer.conformance.real.graphs import plant_of, rewritten
from quantizer.conformance.real.reports import OUTCOMES, Report, read_reports, read_samples
from quantizer.conformance.real.run import Outcome, planted
from quantizer.conformance.setup.options import Options
from quantizer.conformance.setup.session import open_session
from quantizer.conformance.trials.trial import Trial
from quantizer.core.errors import CaseError

ROOT = Path(__file__).parents[2]
SAID = {"ref": "a/b#1", "system": "s", "class": "c", "what": "w"}
LINE = {**SAID, "ops": ["add"], "when": "elements > 1", "does": ["everywhere"]}


@pytest.fixture(scope="module")
def session():
    return open_session(Options(root=ROOT))


def _written(folder: Path, *rows: object) -> Path:
    (folder / "real_bugs").mkdir()
    (folder / "real_bugs" / "x.jsonl").write_text("\n".join(json.dumps(row) for row in rows) + "\n")
    return folder


def test_every_stored_report_can_be_planted(session) -> None:
    """Its operators exist, its fault or effect concerns them, and the names of its condition are known."""
    reports = read_reports(session.options.cases)
    assert len(reports) >= 120
    assert sum(not report.unreached for report in reports) >= 80
    for report in reports:
        assert "/" in report.ref and report.ref.rsplit("#", 1)[1].isdigit()
        assert not report.rewrite or plant_of(report)
        for op in report.ops:
            spec = session.library.spec(op)
            bug(report, spec)
            assert report.when is not None
            assert report.when.names <= {*NAMES, *spec.dims, *spec.attrs}, report.ref


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({**LINE, "when": "elements >"}, "elements >"),
        ({k: v for k, v in LINE.items() if k != "does"}, "these keys"),
        ({**LINE, "ops": []}, "ops must be"),
        ({**LINE, "does": 3}, "does must be"),
        ({**LINE, "rewrite": "r"}, "these keys"),
        ({**SAID, "rewrite": ""}, "must be strings"),
    ],
)
def test_an_unreadable_report_is_named_with_its_line(tmp_path: Path, row: object, said: str) -> None:
    """The message begins with file and line."""
    with pytest.raises(CaseError, match="x.jsonl:1") as err:
        read_reports(_written(tmp_path, row))
    assert said in str(err.value)


def test_a_thread_is_listed_once(tmp_path: Path) -> None:
    """The second line of a thread is an error."""
    with pytest.raises(CaseError, match="x.jsonl:2.*listed before"):
        read_reports(_written(tmp_path, LINE, LINE))


def test_a_fault_that_does_not_concern_the_operator_is_refused(tmp_path: Path, session) -> None:
    """So is an effect that is not there."""
    spec = session.library.spec("add")
    for number, does in enumerate(("groups_reversed", "no_such_fault", ["no_such_effect"], ["tail"])):
        folder = tmp_path / str(number)
        folder.mkdir()
        (report,) = read_reports(_written(folder, {**LINE, "does": does}))
        with pytest.raises(CaseError, match="a/b#1"):
            bug(report, spec)


def test_a_planted_report_changes_codes_only_under_its_condition(tmp_path: Path, session) -> None:
    """Where the condition is false, the changed function gives the correct codes."""
    (report,) = read_reports(_written(tmp_path, {**LINE, "when": "elements > 4"}))
    spec = session.library.spec("add")
    target = next(t for t in session.all_targets(spec) if t.platform.platform == "ideal")
    right = session.engine
    seen = set()
    for seed in range(40):
        case = build_case(target, HashChoices(seed, {"data": "random"}))
        plain = Trial(target, case, right)
        known = facts(spec, plain.case.shapes, plain.case.attrs, plain.parameters)
        expected = plain.outcome.codes
        for fault, changes in ((bug(report, spec), known["elements"] > 4), (twin(report, spec), False)):
            with Planting(fault, spec, tuple(session.library.platforms)):
                got = Trial(target, case, right).outcome.codes
            assert torch.equal(got, expected) != changes
        seen.add(known["elements"] > 4)
    assert seen == {True, False}


def test_reports_are_caught_unless_no_case_meets_their_condition(tmp_path: Path, session) -> None:
    """A report is caught by a check while the unchanged function passes; one whose condition never holds is not."""
    rows = [
        LINE,
        {**LINE, "ref": "a/b#2", "when": "elements > 1000000000"},
        {**LINE, "ref": "a/b#3", "does": ["to_zero"], "when": "elements == 1"},
    ]
    reports = read_reports(_written(tmp_path, *rows))
    outcomes = planted(session, "negative", reports[:2])
    assert outcomes[0].check and not outcomes[0].twin and outcomes[0].changed
    assert (outcomes[1].met, outcomes[1].check) == (0, "")
    page = document(reports[:2], outcomes)
    assert "1 caught" in summary(reports[:2], outcomes)
    assert "https://github.com/a/b/issues/1" in page


def test_a_report_of_two_nodes_is_caught_in_the_graph_of_its_rewrite() -> None:
    name = "the relu comes before the sum"
    (outcome,) = rewritten([Report("a/b#1", "s", "c", "w", rewrite=name), Report("a/b#2", "s", "c", "w")])
    assert (outcome.op, outcome.check, outcome.twin) == ("add_relu", "fusion", "")


def test_an_unknown_rewrite_is_named() -> None:
    with pytest.raises(CaseError, match="a/b#1: no rewrite 'the relu'"):
        plant_of(Report("a/b#1", "s", "c", "w", rewrite="the relu"))


def test_the_first_outcomes_of_a_sample_count_all_its_reports() -> None:
    """A day without reports, or a report without an outcome, would make the figure wrong."""
    reports = read_reports(ROOT / "cases")
    first = read_samples(ROOT / "cases")
    assert first.keys() == {report.sample for report in reports if report.sample}
    for day, counts in first.items():
        own = [report for report in reports if report.sample == day]
        assert sum(counts.values()) == len(own)
        # rewrites of graphs came later than most samples
        unreached = [sum(bool(report.unreached) for report in own), sum(not report.ops for report in own)]
        assert unreached[0] <= counts["unreached"] <= unreached[1]
    outcomes = [
        Outcome(report.ref, op, 1, 1, "arithmetic")
        for report in reports
        for op in report.ops or [report.rewrite] * bool(report.rewrite)
    ]
    page = document(reports, outcomes, first)
    assert "| 2026-11-24 " in page and "caught at once" in page


@pytest.mark.parametrize("text", ["[]", '{"2026-11-24": {"caught": 1}}', '{"2026-11-24": 3}'])
def test_first_outcomes_of_another_form_are_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "real_bugs").mkdir()
    (tmp_path / "real_bugs" / "samples.json").write_text(text)
    with pytest.raises(CaseError, match=", ".join(OUTCOMES)):
        read_samples(tmp_path)


def test_effects_on_values_and_differences(session) -> None:
    """Infinities, values beyond 2**31 steps in a tail, differences in the width of the codes, lanes of 16 bits."""
    spec = session.library.spec("quantize")
    target = next(t for t in session.all_targets(spec) if t.id == "quantize-a8-ideal")
    params = Trial(target, build_case(target, HashChoices(3, {})), session.engine).parameters
    y = params.outputs["y"]
    far = torch.full((9,), float(y.scale) * 2.0**33)

    def forward(x, *, parameters):
        return torch.full(x.shape, y.qmax)

    assert EFFECTS["overflow_low"](8)(forward)(far, parameters=params).tolist() == [y.qmax] * 8 + [y.qmin]
    assert EFFECTS["infinite_low"]()(forward)(torch.tensor([torch.inf, 1.0]), parameters=params).tolist() == [
        y.qmin,
        y.qmax,
    ]


def test_an_effect_at_the_zero_point(session) -> None:
    """Elsewhere the results stay."""
    target = next(t for t in session.all_targets(session.library.spec("sign")) if t.id == "sign-a8-ideal")
    params = Trial(target, build_case(target, HashChoices(3, {})), session.engine).parameters
    zero, y = int(params.inputs["x"].zero_point), params.outputs["y"]
    codes = torch.tensor([zero, zero + 1 if zero < params.inputs["x"].qmax else zero - 1])
    found = EFFECTS["at_zero"]()(lambda x, *, parameters: torch.full(x.shape, y.qmin))(codes, parameters=params)
    assert found.tolist() == [y.qmin + 1, y.qmin]


def test_effects_on_ends_tails_and_weights(session) -> None:
    """Clamps at a code, a tail in the order of memory, weights without a sign, a quotient below float32."""
    spec = session.library.spec("quantize")
    target = next(t for t in session.all_targets(spec) if t.id == "quantize-a8-ideal")
    params = Trial(target, build_case(target, HashChoices(3, {})), session.engine).parameters
    y = params.outputs["y"]
    codes = torch.tensor([[y.qmin, 0], [7, y.qmax], [1, 2]])

    def forward(*operands, parameters):
        return operands[-1].clone()

    def made(name, *numbers):
        return EFFECTS[name](*numbers)(forward)(codes, codes, parameters=params).tolist()

    assert made("clamp_top", 6) == codes.clamp(max=6).tolist()
    assert made("clamp_low", -1) == codes.clamp(min=-1).tolist()
    assert made("weights_unsigned") == codes.clamp(min=0).tolist()
    assert made("not_below_zero") == codes.clamp(min=int(y.zero_point)).tolist()
    assert made("not_above_zero") == codes.clamp(max=int(y.zero_point)).tolist()
    assert made("flat_tail", 4) == [*codes[:2].tolist(), [2, 3]]
    lowest = torch.tensor([-3e38 * min(1.0, float(y.scale)) * 1.5, 0.0], dtype=torch.float64)
    assert EFFECTS["quotient_overflows"]()(lambda *_, parameters: codes[0])(lowest, parameters=params).tolist() == [
        y.qmax,
        0,
    ]


def test_a_planted_function_that_ignores_strides_is_found(session) -> None:
    """What is checked in the process of plugins is also checked in ours; a right function passes."""
    rows = [report for report in read_reports(Path("cases")) if report.ref == "ml-explore/mlx#3480"]
    (outcome,) = planted(session, "matmul", rows)
    assert outcome.check and not outcome.twin
