"""The items OP-golden and OP-regressions: stored cases must get the same verdicts as when they were stored."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from quantizer.conformance.failures.message import graph_line, headline
from quantizer.conformance.findings import Findings
from quantizer.conformance.judging.judge import judge
from quantizer.conformance.judging.known_defects import concerns, is_overruled
from quantizer.conformance.setup.session import Session
from quantizer.conformance.stored.files import read_replay
from quantizer.conformance.stored.fitting import target_of
from quantizer.conformance.stored.folders import Stores
from quantizer.conformance.stored.golden_update import update_goldens
from quantizer.conformance.stored.goldens import golden_problems
from quantizer.conformance.trials.trial import Trial
from quantizer.core.case import Case
from quantizer.core.defects import Defect
from quantizer.core.errors import QuantizerError
from quantizer.core.files import is_file, is_folder
from quantizer.core.verdict import CHECKS, Verdict
from quantizer.ops import REGISTRY
from quantizer.runtime.raised import raised

if TYPE_CHECKING:
    from quantizer.conformance.run.collection import State


class StoredCases:
    """The stored cases of one item's operator."""

    def __init__(self, state: State, session: Session) -> None:
        self._state, self._session = state, session
        self._options, self._spec = state.options, state.spec
        self._stores = Stores(state.options, state.op, session.library.paths[state.op])
        self.changes: list[str] = []
        """The changes of an update to the goldens."""

    def goldens(self) -> Findings:
        """Compare the goldens with the codes of the function under test, or renew them if the run asks for it."""
        options, stores = self._options, self._stores
        exact, everything = self._session.targets(self._spec), self._session.all_targets(self._spec)
        targets = [target for target in exact if target.platform.enclosing is None]
        if options.golden_update is not None:
            try:
                self.changes = update_goldens(stores, targets, everything, self._session.engine, options.golden_update)
            except QuantizerError as err:
                return Findings([str(err)])
            except Exception as err:  # noqa: BLE001 - whatever a plugin raises is its failure
                return Findings([f"no golden is written: raised {raised(err)}"])
        reason = "why the codes change" if stores.goldens() else "first goldens"
        step = f"Run pytest {self._state.selection} --op-golden-update '{reason}'{options.arguments}."
        return golden_problems(targets, everything, self._session.engine, stores, step)

    def regressions(self) -> Findings:
        """Check that every stored failure passes, and that every stored case of a declared defect still shows it.

        A plugin that replaces a built-in function is not expected to show a real system's defects.
        """
        found = Findings()
        options = self._options
        for path in self._stores.regressions():
            case = read_replay(path).case
            if options.real is not None and not options.selects(case.scheme, case.platform):
                continue
            verdicts = self._judged(case, path, options.checks)
            failing = [v for v in verdicts if v.failing]
            # the engine cannot run the case: neither passed nor failed
            if all(v.status == "inconclusive" for v in verdicts):
                found.refused += [v.reason for v in verdicts[:1]]
                continue
            problems = [f"{path.name}: {headline(verdict)}; {graph_line(case)}" for verdict in failing[:1]]
            found.compare(problems, sum(v.elements for v in verdicts))
        for platform in self._session.library.platforms.values():
            for defect in platform.defects:
                if self._owes(platform.platform, defect):
                    self._show(found, platform.platform, defect)
        return found

    def _show(self, found: Findings, platform: str, defect: Defect) -> None:
        """Judge the stored case of a declared defect, which must fail as declared."""
        path, said = self._stores.defect(platform, defect.case), f"{platform} defect {defect.id}:"
        if not is_file(path):
            found.compare([f"{said} no stored case {defect.case}."])
            return
        case = read_replay(path).case
        if not defect.concerns(case.op):
            found.compare([f"{said} {defect.case} is of another operator."])
            return
        if type(defect) is not Defect:
            case = case.but(platform=platform)
        if (case.op, case.platform) == (self._spec.op, platform):
            verdicts = self._judged(case, path, CHECKS)
            text = "its stored case does not fail as declared. Mend the entry, or remove it"
            shown = _shows(defect, verdicts) or is_overruled(defect, self._trial(case, path))
            problems = [] if shown else [f"{said} {text}."]
            found.compare(problems, sum(v.elements for v in verdicts))

    def _owes(self, platform: str, defect: Defect) -> bool:
        """Return whether the stored case of *defect* must fail here.

        It must if the function under test has the defect and a check can show it. Another variant or another engine
        need not have the defects of the platform's own variant.
        """
        engine, options = self._session.engine, self._options
        if not defect.concerns(self._spec.op) or not is_folder(self._stores.defect(platform, defect.case).parent):
            return False
        if options.real is None:
            return defect.engine is None and not (type(defect) is Defect and self._is_replaced())
        if options.real.entry.guest and defect.engine is None:
            return False
        computed = options.real.computes(platform, named=platform in options.platforms and defect.engine is not None)
        return computed and concerns(defect, engine, platform) and not set(defect.checks).isdisjoint(engine.checks)

    def _trial(self, case: Case, path: Path) -> Trial:
        target = target_of(self._session.library, case, self._options.shown(path))
        return Trial(target, case, self._session.engine)

    def _judged(self, case: Case, path: Path, checks: Sequence[str]) -> list[Verdict]:
        return judge(self._trial(case, path), checks)

    def _is_replaced(self) -> bool:
        return any(entry.op == self._spec.op for entry in REGISTRY.replacements())


def _shows(defect: Defect, verdicts: list[Verdict]) -> bool:
    """Return whether a check fails as *defect* declares, and no other check fails."""
    known = any(v.status == "defect" and v.reason.startswith(f"{defect.id}: ") for v in verdicts)
    return known and not any(v.failing for v in verdicts)
