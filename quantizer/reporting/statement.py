"""A conformance statement: what was tested, with which versions, results, excused failures and gaps."""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Literal

from pydantic import Field

from quantizer.core.case_file import read_model
from quantizer.core.errors import CaseError
from quantizer.core.facts import ExceptionFacts, Facts, PluginFacts, TreeFacts
from quantizer.core.model import Model
from quantizer.core.record import CheckRecord, Record
from quantizer.reporting.complete_run import unaccounted
from quantizer.reporting.exceptions import exceptions, excused_whole
from quantizer.reporting.store import record_lines
from quantizer.reporting.tally import (
    CASES,
    COVERAGE,
    Standing,
    check_order,
    coverage_gaps,
    decided,
    reasons_against,
    standing,
    value_rows,
)


class CheckStatement(Model):
    """One check over the cases of a target, or over the whole run."""

    passed: int = 0
    failed: int = 0
    mistrusted: int = 0
    overflow: int = 0
    defects: int = 0
    """Cases that failed as a declared exception predicts."""
    inconclusive: int = 0
    elements: int = 0
    vacuous: int = 0
    """The number of elements whose interval covers the whole range of codes, so that they prove nothing."""


class TargetStatement(Model):
    """An operator under one scheme on one platform."""

    scheme: str
    platform: str
    result: Standing
    cases: int
    elements: int
    """The number of outputs judged, over all checks."""
    checks: list[str]
    """Verdicts with pass or fail."""
    worst_ratio: float | Literal["inf"]
    """Largest error / allowed."""


class OperatorStatement(Model):
    """An operator, under the spec by which it was judged."""

    op: str
    version: str
    spec: str
    sha256: str
    targets: list[TargetStatement]
    items: dict[str, Standing]
    """Checks that run once per operator: spec, golden, reject, regressions."""


class ExceptionStatement(Model):
    """A declared exception that was met."""

    declared: ExceptionFacts
    platform: str
    items: list[str]


class GapStatement(Model):
    """Something that was not checked, and where."""

    what: str
    """A check, `coverage`, `run` (a gap of the run as a whole), or `plugin` (a gap of a plugin's function)."""
    reason: str
    items: list[str] = []


class Statement(Model):
    """The statement; equal runs give equal bytes."""

    version: Literal[1] = 1
    result: Literal["conforms", "does not conform"]
    """conforms: some items passed, only declared exceptions failed, every function of a plugin was judged, and pytest
    saw no other failure."""
    quantizer: str
    python: str
    packages: dict[str, str]
    engine: str
    profile: str
    seed: int | None
    plugins: list[PluginFacts]
    """The plugins with a function that an item judged."""
    files: dict[str, str]
    tree: TreeFacts | None
    records_sha256: str = Field(pattern=r"[0-9a-f]{64}")
    """The digest of records.jsonl, the source of the statement."""
    counts: dict[str, int]
    checks: dict[str, CheckStatement]
    operators: list[OperatorStatement]
    exceptions: list[ExceptionStatement]
    gaps: list[GapStatement]

    def to_json(self) -> str:
        """Return it as JSON with sorted keys."""
        return json.dumps(self.model_dump(), sort_keys=True, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def read_statement(text: str, where: str) -> Statement:
    """Read the output of `to_json`; CaseError names the wrong field."""
    try:
        raw = json.loads(text)
    except (ValueError, RecursionError) as err:
        raise CaseError(f"{where}: not JSON: {err}. `quantizer report statement` writes it.") from None
    return read_model(Statement, raw, where)


def state(records: Iterable[Record], facts: Facts) -> Statement:
    """Return the statement of a run; CaseError if it holds no records, or was made to be debugged."""
    everything = sorted(records, key=lambda record: record.id)
    if not everything:
        raise CaseError("The run holds no records: there is nothing to state.")
    if facts.in_process:
        raise CaseError(
            "The functions of plugins ran in the judge's own process (--op-in-process), which is for debugging."
            " Run again without it."
        )
    how = [standing(record) for record in everything]
    counts: dict[str, int] = {name: how.count(name) for name in ("passed", "failed", "known", "skipped")}
    values = [record for record in everything if record.kind == CASES]
    checks = _checks(values)
    counts |= {"items": len(how), "targets": len(values), "cases": sum(record.cases for record in values)}
    counts |= {"verdicts": sum(check.passed + check.failed for check in checks.values())}
    counts |= {"elements": sum(check.elements for check in checks.values())}
    excused = {item for items in excused_whole(values, facts).values() for item in items}
    counts |= {"excused": len(excused)}
    counts |= {"refused": checks.get("engine", CheckStatement()).inconclusive}
    return Statement(
        result="does not conform" if reasons_against(everything, facts.exit) or unaccounted(facts) else "conforms",
        quantizer=facts.quantizer,
        python=facts.python,
        packages=facts.packages,
        engine=facts.under_test,
        profile=facts.profile,
        seed=facts.seed,
        plugins=_judged(facts),
        files=facts.files,
        tree=facts.tree,
        # the bytes of the file: `record_lines` gives the same for records in any order
        records_sha256=hashlib.sha256(record_lines(everything).encode()).hexdigest(),
        counts=counts,
        checks=checks,
        operators=_operators(everything, facts),
        exceptions=[
            ExceptionStatement(declared=met.declared, platform=met.platform, items=list(met.items))
            for met in exceptions(everything, facts)
            if met.items
        ],
        gaps=[*_run_gaps(everything, facts), *_gaps(everything)],
    )


def _judged(facts: Facts) -> list[PluginFacts]:
    """Return the plugins with a judged function. The statement claims nothing about other plugins."""
    # plugins without a judged function
    silent = {one.origin for one in facts.functions} - {
        one.origin for one in facts.functions if one.standing == "judged"
    }
    return [plugin for plugin in facts.plugins if plugin.origin not in silent]


def _checks(records: Iterable[Record]) -> dict[str, CheckStatement]:
    sums: dict[str, dict[str, int]] = defaultdict(lambda: dict.fromkeys(CheckStatement.model_fields, 0))
    for record in records:
        for name, check in record.checks.items():
            for field in sums[name]:
                sums[name][field] += getattr(check, field)
    return {name: CheckStatement(**sums[name]) for name in sorted(sums, key=check_order)}


def _operators(records: Sequence[Record], facts: Facts) -> list[OperatorStatement]:
    by_op: dict[str, list[Record]] = defaultdict(list)
    for record in records:
        by_op[record.op].append(record)
    found = []
    for op in sorted(by_op):
        spec = facts.specs.get(op)
        if spec is None:
            raise CaseError(f"run.json: specs: {op!r} is missing, and the records hold it. Run again.")
        ratios = {row.record.id: row.ratio for row in value_rows(by_op[op])}
        found.append(
            OperatorStatement(
                op=op,
                version=spec.version,
                spec=spec.path,
                sha256=spec.sha256,
                targets=[_target(record, ratios[record.id]) for record in by_op[op] if record.kind == CASES],
                items={record.kind: standing(record) for record in by_op[op] if record.kind != CASES},
            )
        )
    return found


def _target(record: Record, ratio: float) -> TargetStatement:
    def gave(check: CheckRecord) -> bool:
        return decided(check) > 0

    return TargetStatement(
        scheme=record.scheme,
        platform=record.platform,
        result=standing(record),
        cases=record.cases,
        elements=sum(check.elements for check in record.checks.values()),
        checks=sorted((name for name, check in record.checks.items() if gave(check)), key=check_order),
        worst_ratio="inf" if ratio == float("inf") else ratio,
    )


def _run_gaps(records: Sequence[Record], facts: Facts) -> list[GapStatement]:
    """Return the gaps of the run as a whole."""
    said = []
    if facts.selection:
        said.append(f"a selection ran, not everything: {' '.join(facts.selection)}")
    if facts.tree is None:
        said.append("the run lay in no git repository: no tree is named")
    elif not facts.tree.clean:
        said.append("files differ from the commit that is named")
    said += [f"a plugin was judged by a reading, not by the platform's arithmetic: {name}" for name in facts.readings]
    # the gate's cases follow from hashes and need no seed
    if facts.profile != "gate" and facts.seed is None:
        said.append("the seed of generated cases was not fixed: another run judges other cases")
    found = [GapStatement(what="run", reason=reason) for reason in said]
    found += [GapStatement(what="plugin", reason=f"not judged: {text}") for text in unaccounted(facts)]
    found += [
        GapStatement(what="run", reason=f"known failure {name} excuses every case of a check", items=items)
        for name, items in excused_whole(records, facts).items()
    ]
    silent = [record.id for record in records if standing(record) == "skipped"]
    listed = (("items were skipped", silent), ("items of the specs did not run", facts.left_out))
    return found + [GapStatement(what="run", reason=reason, items=items) for reason, items in listed if items]


def _gaps(records: Sequence[Record]) -> list[GapStatement]:
    return [
        GapStatement(
            what=gap.check,
            reason=f"not reached: {gap.reason}" if gap.check == COVERAGE else gap.reason,
            items=list(gap.items),
        )
        for gap in coverage_gaps(records)
    ]
