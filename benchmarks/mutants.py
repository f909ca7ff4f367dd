"""Measures how many mutants of `numerics`, `ops` and `tiling` the conformance suite alone kills: `tox -e mutation`.

mutmut makes the mutants. A seeded sample is drawn by module from those in functions that cases of the gate reach. Each
mutant runs in a separate process, where the gate's checks judge cases that reach the mutated function until one fails:
first cases that the unmutated code built, then the goldens, then the gate's cases as the mutant builds them, for as
long as `PATIENCE` allows. Tests of the package do not run. Prints the share of killed mutants and every survivor; exit
status 1 if fewer than nine in ten are killed.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import difflib
import functools
import hashlib
import importlib
import itertools
import json
import multiprocessing
import multiprocessing.connection
import os
import re
import resource
import runpy
import sys
import tempfile
import textwrap
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any

from quantizer.conformance.faults.cases import explicit_cases, number_of_cases
from quantizer.conformance.judging.judge import judge
from quantizer.conformance.run.facts import tree_of
from quantizer.conformance.setup.options import Options
from quantizer.conformance.setup.session import Session, open_session
from quantizer.conformance.stored.folders import Stores
from quantizer.conformance.stored.goldens import golden_problems
from quantizer.conformance.target import Target
from quantizer.conformance.trials.trial import Trial
from quantizer.core.case import Case
from quantizer.core.files import replace_files
from quantizer.ops import load_built_ins

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("numerics", "ops", "tiling")
LIMIT = 0.9
ROWS = 4
"""The number of cases of each target, spread over all of the gate's, that show which functions it reaches; judged
first."""
MOST = 400
"""The largest number of these cases that are judged for one mutant."""
PATIENCE = 40.0
"""The cases of the gate, built anew, are judged for this many seconds of processor time."""
ENDLESS = 900
"""A mutant counts as not ending after this many seconds of processor time."""
KILLED, SURVIVED, NOT_REACHED = "killed", "survived", "not reached"


@dataclass(frozen=True)
class Mutant:
    """One function with one change."""

    module: str
    function: str
    """`name`, or `Class.name`."""
    number: int
    code: str
    """The source of the module with all its mutants, as mutmut writes it."""

    @functools.cached_property
    def source(self) -> str:
        """The function with its change."""
        return self._unparsed(str(self.number))

    @functools.cached_property
    def change(self) -> str:
        """The lines that differ, old and new."""
        before, after = self._unparsed("orig"), self.source
        return difference(before.replace("__mutmut_orig", ""), after.replace(f"__mutmut_{self.number}", ""))

    def _unparsed(self, version: str) -> str:
        ending = f"{self.function.rpartition('.')[2]}__mutmut_{version}"
        mangled = f"xǁ{self.function.replace('.', 'ǁ')}__mutmut_{version}" if "." in self.function else f"x_{ending}"
        start = re.search(rf"^ *def {mangled}\(", self.code, re.MULTILINE)
        assert start is not None, mangled
        lines = self.code[start.start() :].splitlines()
        margin = len(lines[0]) - len(lines[0].lstrip())
        body = [lines[0], *itertools.takewhile(lambda line: is_inside(line, margin), lines[1:])]
        return ast.unparse(ast.parse(textwrap.dedent("\n".join(body))))

    @property
    def name(self) -> str:
        """The function's place, and the mutant's number among the mutants of the function."""
        return f"{self.module}.{self.function}#{self.number}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=300, help="mutants in the sample (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=5, help="of the sample (default: %(default)s)")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes (default: one a core)")
    parser.add_argument("--minutes", type=float, default=60.0, help="stop after this time (default: %(default)s)")
    parser.add_argument("--list", action="store_true", help="print the sample and run nothing")
    parser.add_argument("--only", action="append", default=[], help="this mutant, by its name (repeatable)")
    parser.add_argument("--op", action="append", default=[], help="judge by this operator alone (repeatable)")
    parser.add_argument("-o", "--output", type=Path, help="write the result to this file, as markdown")
    args = parser.parse_args()
    mutants = list(all_mutants({name.rpartition(".")[0] for name in args.only}))
    known = reached(args.op)
    within = [mutant for mutant in mutants if is_reached(mutant, known)]
    sample = [m for m in mutants if m.name in args.only] if args.only else stratified(within, args.count, args.seed)
    print(
        f"{len(mutants)} mutants, {len(within)} in functions that the gate reaches, {len(sample)} in the sample",
        flush=True,
    )
    if args.list:
        print("\n".join(f"{mutant.name}\n{mutant.change}" for mutant in sample))
        return 0
    outcomes = run(sample, known, args.workers, args.minutes * 60)
    if args.output is not None:
        outside = Counter(f"{m.module}.{m.function}" for m in mutants if not is_reached(m, known))
        replace_files({args.output: document(outcomes, outside, len(mutants), args.seed)})
    return report(outcomes, len(sample))


def all_mutants(modules: Collection[str] = ()) -> Iterator[Mutant]:
    """Yield every mutant that mutmut makes of the packages, or only of *modules* if there are any."""
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder, contextlib.chdir(folder):
        Path("setup.cfg").write_text("[mutmut]\nsource_paths=.\n")  # mutmut reads where to look from the working folder
        yield from _all_mutants(modules)


def _all_mutants(modules: Collection[str]) -> Iterator[Mutant]:
    from mutmut.mutation.file_mutation import mutate_file_contents

    for path in sources():
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        if modules and not any(name == module or name.startswith(f"{module}.") for name in modules):
            continue
        made = mutate_file_contents(str(path), undecorated(path.read_text("utf-8")))
        for mangled in made.mutant_names:
            stem, _, number = mangled.rpartition("__mutmut_")
            yield Mutant(module, plain(stem), int(number), made.code)


def sources() -> list[Path]:
    """Return the files that are mutated: those of the packages, and modules that rooms load to compute operators."""
    load_built_ins()
    loaded = [name for name in sys.modules if name.startswith("quantizer.platforms.") and not name.endswith(".room")]
    rooms = {ROOT / Path(*name.split(".")).with_suffix(".py") for name in loaded}
    own = (path for package in PACKAGES for path in (ROOT / "quantizer" / package).rglob("*.py"))
    return sorted([*own, *(path for path in rooms if path.is_file())])


def undecorated(source: str) -> str:
    """Return *source* without the decorators that register functions, because mutmut does not mutate decorated ones."""
    tree, lines = ast.parse(source), source.splitlines()
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            for decorator in node.decorator_list:
                if (ast.get_source_segment(source, decorator) or "").startswith("operator("):
                    last = decorator.end_lineno or decorator.lineno
                    # empty lines keep the numbers of the lines after them
                    lines[decorator.lineno - 1 : last] = [""] * (last - decorator.lineno + 1)
    return "\n".join([*lines, ""])


def is_inside(line: str, margin: int) -> bool:
    """Return whether *line* belongs to the function whose first line is indented by *margin*."""
    return not line.strip() or len(line) - len(line.lstrip()) > margin or line.lstrip()[:1] == ")"


def plain(stem: str) -> str:
    """Return `name` or `Class.name` of what mutmut calls `x_name` or `xǁClassǁname`."""
    return stem[2:].replace("ǁ", ".") if stem.startswith("xǁ") else stem[2:]


@functools.cache
def judged_as() -> dict[str, str]:
    """Return the notes on mutants that somebody examined, by function and change."""
    found: dict[str, str] = json.loads((Path(__file__).parent / "mutants_judged.json").read_text("utf-8"))
    return found


def said_of(mutant: Mutant) -> str:
    """Return the noted reason why a mutant survives; it begins with "equivalent" if the mutant computes the same."""
    return judged_as().get(f"{mutant.module}.{mutant.function}\n{mutant.change}", "")


def difference(before: str, after: str) -> str:
    """Return the lines of *before* that are gone and those of *after* that are new."""
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), n=0, lineterm="")
    return "\n".join(line for line in lines if line[:1] in "+-" and line[:3] not in ("+++", "---"))


def stratified(mutants: Sequence[Mutant], count: int, seed: int) -> list[Mutant]:
    """Return *count* of *mutants*, in proportion to each module's share, in an order that does not depend on modules."""
    strata: dict[str, list[Mutant]] = defaultdict(list)
    for mutant in mutants:
        strata[mutant.module].append(mutant)
    chosen: list[Mutant] = []
    taken = 0.0
    for module in sorted(strata):
        # the running total is rounded, not each module's share, so that the numbers add up to count
        before, taken = taken, taken + count * len(strata[module]) / len(mutants)
        own = sorted(strata[module], key=lambda mutant: digest(seed, mutant.name))
        chosen += own[: round(taken) - round(before)]
    return sorted(chosen, key=lambda mutant: digest(seed, mutant.name))


def digest(seed: int, name: str) -> str:
    return hashlib.blake2b(f"{seed}/{name}".encode(), digest_size=8).hexdigest()


@dataclass(frozen=True)
class Known:
    """What every mutant of a worker is judged by."""

    session: Session
    cases: dict[CodeType, list[tuple[Target, Case]]]
    """Code of a function -> the cases that reach it, operators in turn."""


def run(sample: Sequence[Mutant], known: Known, workers: int, seconds: float) -> list[tuple[Mutant, str, str]]:
    """Return each mutant that was run in time, its outcome, and the check that found it."""
    from tqdm import tqdm

    end = time.monotonic() + seconds
    same = [mutant for mutant in sample if said_of(mutant).startswith("equivalent")]
    # a forked process has the session and the cases already, which could hardly be pickled
    context, found = multiprocessing.get_context("fork"), [(mutant, SURVIVED, "not run") for mutant in same]
    waiting, running = [mutant for mutant in reversed(sample) if mutant not in same], {}
    with tqdm(total=len(waiting), unit="mutant", disable=None, file=sys.stderr) as bar:
        while waiting or running:
            while waiting and len(running) < workers and time.monotonic() < end:
                mutant = waiting.pop()
                receiver, sender = context.Pipe(duplex=False)
                process = context.Process(target=judged, args=(mutant, known, sender))
                process.start()
                # the last open end is now the child's, so that its death is seen as the end of the file
                sender.close()
                running[receiver] = (mutant, process)
            if not running:
                break
            for receiver in multiprocessing.connection.wait(list(running)):
                mutant, process = running.pop(receiver)
                try:
                    outcome, by = receiver.recv()
                except EOFError:
                    outcome, by = KILLED, "does not end, or ends the process"
                process.join()
                found.append((mutant, outcome, by))
                bar.update()
    order = {mutant.name: place for place, mutant in enumerate(sample)}
    return sorted(found, key=lambda row: order[row[0].name])


def reached(ops: Collection[str]) -> Known:
    """Judge some cases of every target of *ops* (empty: all operators); return which functions each case reaches."""
    session = open_session(Options(root=ROOT))
    inside = tuple(str(ROOT / "quantizer" / package) for package in (*PACKAGES, "platforms"))
    found: dict[CodeType, dict[str, list[tuple[Target, Case]]]] = defaultdict(lambda: defaultdict(list))
    for op, spec in ((op, spec) for op, spec in session.library.specs.items() if op in (ops or [op])):
        # odd, so that a list of cases that alternates between two kinds is not sampled at one of them only
        step = max(1, number_of_cases(session, op) // (ROWS * len(session.all_targets(spec)))) | 1
        for target, case in itertools.islice(explicit_cases(session, spec), None, None, step):
            for code in traced(lambda: judge(Trial(target, case, session.engine))):  # noqa: B023 - run at once
                if code.co_filename.startswith(inside):
                    found[code][op].append((target, case))
    return Known(session, {code: list(interleaved(by_op.values())) for code, by_op in found.items()})


def is_reached(mutant: Mutant, known: Known) -> bool:
    """Return whether a case of the gate runs the function that is mutated."""
    function = found_function(mutant)
    return function is not None and function.__code__ in known.cases


def traced(function: Callable[[], object]) -> set[CodeType]:
    """Return the code of every function that runs."""
    seen: set[CodeType] = set()

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            seen.add(frame.f_code)

    # a profile function sees calls alone, which costs less than tracing every line
    sys.setprofile(note)
    try:
        function()
    finally:
        sys.setprofile(None)
    return seen


def interleaved(lists: Any) -> Iterator[tuple[Target, Case]]:
    for row in itertools.zip_longest(*lists):
        yield from (item for item in row if item is not None)


def judged(mutant: Mutant, known: Known, sender: Any) -> None:
    """Run one mutant in this separate process, and send its outcome."""
    # the kernel ends the process at the limit, and the parent reads an end of file
    resource.setrlimit(resource.RLIMIT_CPU, (ENDLESS, ENDLESS))
    function = found_function(mutant)
    cases = known.cases.get(function.__code__, []) if function is not None else []
    if function is None or not cases:
        sender.send((NOT_REACHED, ""))
        return
    # results of the unmutated code are cached, so all caches are emptied after the change
    change(function, mutant)
    forget()
    count = 0
    for place, by in enumerate(findings(known.session, cases), 1):
        count = place
        if by:
            sender.send((KILLED, f"{by}, case {place}"))
            return
    sender.send((SURVIVED, f"{count} cases of {len({target.spec.op for target, _ in cases})} operators"))


def findings(session: Session, cases: Sequence[tuple[Target, Case]]) -> Iterator[str]:
    """Yield the check that fails, or "", for each case, then for the goldens, then for each case that is built anew."""
    for target, case in cases[:MOST]:
        yield failing(session, target, case)
    specs = {target.spec.op: target.spec for target, _ in cases}
    for op, spec in specs.items():
        stores = Stores(session.options, op, session.library.paths[op])
        targets = session.all_targets(spec)
        yield "golden" if golden_problems(targets, targets, session.engine, stores, "").problems else ""
    started = time.process_time()
    streams = [explicit_cases(session, spec) for spec in specs.values()]
    while streams and time.process_time() - started < PATIENCE:
        for stream in list(streams):
            try:
                pair = next(stream, None)
            except Exception as err:  # noqa: BLE001 - the gate's item fails with it
                yield f"no case: {type(err).__name__}"
                return
            if pair is None:
                streams.remove(stream)
            else:
                yield failing(session, *pair)


def failing(session: Session, target: Target, case: Case) -> str:
    return next((v.check for v in judge(Trial(target, case, session.engine)) if v.failing), "")


def found_function(mutant: Mutant) -> FunctionType | None:
    """Return the function of the imported package that *mutant* changes, or None."""
    place: Any = importlib.import_module(mutant.module)
    for part in mutant.function.split("."):
        place = vars(place).get(part) if isinstance(place, type) else getattr(place, part, None)
    return place if isinstance(place, FunctionType) else None


def change(function: FunctionType, mutant: Mutant) -> None:
    """Give *function* the code of *mutant*; everything that refers to the function then runs the mutant."""
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        file = Path(folder) / "mutant.py"
        file.write_text(f"from __future__ import annotations\n{mutant.source}\n", "utf-8")
        names = runpy.run_path(str(file), init_globals=function.__globals__)
    (made,) = (value for key, value in names.items() if key.endswith(f"__mutmut_{mutant.number}"))
    # the object stays and its code changes: modules that imported it by name, and the registry, hold this object
    function.__code__, function.__defaults__ = made.__code__, made.__defaults__
    function.__kwdefaults__ = made.__kwdefaults__


def forget() -> None:
    """Empty every cache of the package, which the unmutated functions filled."""
    for name, module in list(sys.modules.items()):
        if name.startswith("quantizer"):
            for value in vars(module).values():
                if hasattr(value, "cache_clear"):
                    value.cache_clear()


def report(outcomes: Sequence[tuple[Mutant, str, str]], size: int) -> int:
    counts = Counter(outcome for _, outcome, _ in outcomes)
    share = counts[KILLED] / max(1, len(outcomes))
    print(
        f"{len(outcomes)} of {size} run: {counts[KILLED]} killed ({share:.1%}), {counts[SURVIVED]} survived, "
        f"{counts[NOT_REACHED]} in functions that no case reaches"
    )
    for mutant, outcome, by in outcomes:
        if outcome != KILLED:
            print(f"{outcome}: {mutant.name} ({by})\n{mutant.change}")
    return 0 if outcomes and share >= LIMIT else 1


def measured_on() -> str:
    """Return a sentence that names the measured commit; empty outside a git repository."""
    tree = tree_of(Path(__file__).parents[1])
    return "" if tree is None else f" Measured on commit {tree.commit[:8]} of {tree.date}."


def document(outcomes: Sequence[tuple[Mutant, str, str]], outside: Counter[str], total: int, seed: int) -> str:
    """Return the score and every survivor as markdown, with what `mutants_judged.json` says about it.

    outside: function that no sampled case of the gate reaches -> how many of all mutants are in it.
    """
    counts = Counter(outcome for _, outcome, _ in outcomes)
    alive = [(mutant, outcome, by) for mutant, outcome, by in outcomes if outcome != KILLED]
    reasons = {mutant.name: said_of(mutant) for mutant, _, _ in alive}
    equal = sum(reason.startswith("equivalent") for reason in reasons.values())
    effective = max(1, len(outcomes) - equal)
    first = Counter(by.rpartition(", case ")[0] or by for _, outcome, by in outcomes if outcome == KILLED)
    lines = [
        "# Mutants of the package, and which of them the conformance suite finds",
        "",
        f"Written by `tox -e mutation -- --count {len(outcomes)} --seed {seed} -o docs/mutation.md`. mutmut makes {total} mutants of `numerics`, `ops` and",
        f"`tiling`, {total - outside.total()} of them in functions that sampled cases of the gate reach. {len(outcomes)} of these, drawn by module, were run against the",
        f"gate's cases, checks and goldens alone: **{counts[KILLED]} killed ({counts[KILLED] / max(1, len(outcomes)):.1%}; {counts[KILLED] / effective:.1%} without the {equal} that compute the same)**,",
        f"{len(alive)} survived.{measured_on()}",
        "",
        "What killed first: " + ", ".join(f"{name} {count}" for name, count in first.most_common()) + ".",
        "",
        "## Survivors",
        "",
    ]
    for mutant, outcome, by in alive:
        lines += [f"### {mutant.name}", "", "```diff", mutant.change, "```", ""]
        lines += [f"{outcome}{f' {by}' if by else ''}. {reasons[mutant.name]}".rstrip(), ""]
    lines += [
        "## Functions that no sampled case reaches",
        "",
        "With the number of their mutants. They serve training, the executor, the flows, vendors' plugins, processors that this one",
        "is not, and a few examples of large or rare shapes; the tests of the package run them.",
        "",
    ]
    lines += [f"* `{name}` {count}" for name, count in sorted(outside.items())]
    return "\n".join(lines).rstrip() + "\n"


if __name__ == "__main__":
    sys.exit(main())
