"""Shows that a refactoring changed nothing: digests of parameters, codes and verdicts per item, before and after it.

    python benchmarks/sameness.py freeze -o FILE [--op NAME ...] [--platform NAME ...] [--campaign N]
    python benchmarks/sameness.py compare FILE
    python benchmarks/sameness.py batches [--op NAME ...] [--data-sets N]

`freeze` judges the gate's explicit cases and, of each item, N generated ones, built as in `quantizer campaign`. The
file has one line per item: a short digest of each case, of what the quantize rule provided, of the codes and of the
verdicts (checks, statuses, ratios and counts; no texts). `compare` runs the operators of the file again and lists the
items that differ, each with its first case; the exit code is 1 if one differs. `batches` judges generated stacks as a whole
and each of their data sets alone. It lists the targets where codes or statuses differ. Only targets of kernels whose
codes depend on the size of the batch may be in this list.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import itertools
import json
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from quantizer.conformance.faults.cases import corpus, gate_cases
from quantizer.conformance.generation.batches import RANGES, member
from quantizer.conformance.judging.judge import judge, judged
from quantizer.conformance.setup.options import Options
from quantizer.conformance.setup.session import Session, open_session
from quantizer.conformance.target import Target
from quantizer.conformance.trials.parts import part_of
from quantizer.conformance.trials.trial import Trial
from quantizer.core.case import Case
from quantizer.core.files import replace_files
from quantizer.core.platforms import Platform
from quantizer.core.verdict import Verdict
from quantizer.core.workers import worker_pool
from quantizer.ops import load_built_ins
from quantizer.tiling.stacks import parts

ROOT = Path(__file__).parent.parent
PARTS = ("parameters", "codes", "verdicts")
ONE_RUN = ("parameters", "float", "arithmetic", "accuracy", "exact")
"""The checks that judge one run of a case independently of other runs."""
LENGTH = 6
"""The number of hexadecimal digits of the digest of each part of a case."""
Lines = dict[str, dict[str, Any]]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    freeze = commands.add_parser("freeze", help="write the digests")
    freeze.add_argument("-o", "--output", type=Path, required=True)
    freeze.add_argument("--op", action="append", default=[], help="only this operator (repeatable)")
    freeze.add_argument("--platform", action="append", default=[], help="only this platform (repeatable)")
    freeze.add_argument("--campaign", type=int, default=0, metavar="N", help="generated cases of each operator")
    compare = commands.add_parser("compare", help="list the items that differ")
    compare.add_argument("file", type=Path)
    batches = commands.add_parser("batches", help="compare stacks with their data sets alone")
    batches.add_argument("--op", action="append", default=[], help="only this operator (repeatable)")
    batches.add_argument("--data-sets", type=int, default=100_000, metavar="N", help="in all, at least")
    for command in (freeze, compare, batches):
        command.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    if args.command == "freeze":
        ops = args.op or sorted(open_session(Options(root=ROOT)).library.specs)
        lines = digests(ops, args.platform, args.campaign, args.workers)
        head = {"ops": ops, "platforms": args.platform, "campaign": args.campaign}
        replace_files({args.output: "".join(json.dumps(line) + "\n" for line in (head, *lines.values()))})
        print(f"{len(lines)} items, {sum(line['cases'] for line in lines.values())} cases")
        return 0
    if args.command == "batches":
        return two_ways(args.op, args.data_sets, args.workers)
    head, *known = map(json.loads, args.file.read_text().splitlines())
    now = digests(head["ops"], head.get("platforms", []), head["campaign"], args.workers)
    return report({line["item"]: line for line in known}, now)


def digests(ops: list[str], platforms: list[str], campaign: int, workers: int) -> Lines:
    """Return item -> its line for the operators *ops* on *platforms*; an empty list stands for all."""
    found: Lines = {}
    with worker_pool(workers) as executor, tqdm(total=len(ops), disable=None) as bar:
        for lines in executor.map(of_operator, ops, itertools.repeat(platforms), itertools.repeat(campaign)):
            found.update(lines)
            bar.update()
    return dict(sorted(found.items()))


def of_operator(op: str, platforms: list[str], campaign: int) -> Lines:
    torch.set_num_threads(1)
    load_built_ins()
    session = open_session(Options(root=ROOT))
    lines: Lines = {}
    for source, cases in (("", gate_cases(session, op)), (" campaign", generated(session, op, campaign))):
        for target, case in cases:
            if platforms and target.platform.platform not in platforms:
                continue
            name = target.id + source
            line = lines.setdefault(name, {"item": name, "cases": 0, **dict.fromkeys(PARTS, "")})
            line["cases"] += 1
            for part, digest in zip(PARTS, of_case(Trial(target, case, session.engine)), strict=True):
                line[part] += digest
    return lines


def two_ways(ops: list[str], wanted: int, workers: int) -> int:
    ops = ops or sorted(open_session(Options(root=ROOT)).library.specs)
    share, count, differing = -(-wanted // len(ops)), Counter(), Counter()
    with worker_pool(workers) as executor, tqdm(total=len(ops), disable=None) as bar:
        for found, other in executor.map(ways_of_operator, ops, itertools.repeat(share)):
            count.update(found)
            differing.update(other)
            bar.update()
    for (target, what), times in sorted(differing.items()):
        print(f"{target}: {what} in {times} data sets")
    print(", ".join(f"{number:,} {what}" for what, number in count.items()) + f"; {differing.total():,} differ")
    return 1 if differing else 0


def ways_of_operator(op: str, wanted: int) -> tuple[Counter[str], Counter[tuple[str, str]]]:
    torch.set_num_threads(1)
    load_built_ins()
    session = open_session(Options(root=ROOT))
    targets, count, differing = session.all_targets(session.library.spec(op)), Counter(), Counter()
    while targets and count["data sets"] < wanted:
        index = count["cases"]
        target = targets[index % len(targets)]
        case = member(target, 77, index // len(targets) * RANGES)
        count["cases"] += 1
        for alone, whole in both_ways(session, target, case):
            count["data sets"] += 1
            count["verdicts"] += len(alone)
            different = [name for name, said in alone.items() if whole.get(name) != said]
            differing.update(
                (target.id, name if name == "codes" else f"{name} {alone[name]} -> {whole.get(name)}")
                for name in different
            )
    return count, differing


def both_ways(session: Session, target: Target, case: Case) -> Iterator[tuple[dict[str, str], dict[str, str]]]:
    """Yield the codes and statuses of each data set of *case*: alone, and as a part of the whole."""
    trial = Trial(target, case, session.engine)
    found = judged(trial, ONE_RUN)
    if case.data.stack is None:
        yield shown(Trial(target, case, session.engine), None), shown(trial, found[0][1])
        return
    for place, part in enumerate(parts(target.spec, case)):
        verdicts = found[place][1] if len(found) > 1 else found[0][1]
        yield shown(Trial(target, part.case, session.engine), None), shown(part_of(trial, place), verdicts)


def shown(trial: Trial, verdicts: Sequence[Verdict] | None) -> dict[str, str]:
    verdicts = judge(trial, ONE_RUN) if verdicts is None else verdicts
    return {"codes": digest(lambda: trial.got), **{verdict.check: verdict.status for verdict in verdicts}}


def generated(session: Session, op: str, count: int) -> Iterator[Any]:
    return corpus(session, session.library.spec(op), count)


def of_case(trial: Trial) -> tuple[str, str, str]:
    verdicts = judge(trial)
    shown = [(v.check, v.status, v.ratio.hex(), v.elements, v.failed, v.vacuous, v.width.hex()) for v in verdicts]
    return digest(lambda: trial.parameters), digest(lambda: trial.outcome), digest(lambda: shown)


def digest(value: Any) -> str:
    found = hashlib.sha256()
    try:
        feed(found, value())
    except Exception as err:  # noqa: BLE001 - a refusal is a result
        found.update(type(err).__name__.encode())
    return found.hexdigest()[:LENGTH]


def feed(found: Any, value: Any) -> None:
    """Add *value* part by part; a platform is what chose the numbers, not one of them."""
    if isinstance(value, Platform):
        return
    # types and brackets are part of the digest, so that [1, [2]] and [[1], 2] differ
    found.update(f"<{type(value).__name__}".encode())
    if isinstance(value, np.ndarray):
        found.update(f"{value.dtype}{value.shape}".encode() + value.tobytes())
    elif isinstance(value, Tensor):
        found.update(f"{value.dtype}{tuple(value.shape)}".encode() + value.contiguous().numpy().tobytes())
    elif isinstance(value, Mapping):
        # sorted: the order of insertion is no result
        for name in sorted(value, key=str):
            feed(found, (str(name), value[name]))
    elif isinstance(value, list | tuple):
        for part in value:
            feed(found, part)
    elif dataclasses.is_dataclass(value):
        for item in dataclasses.fields(value):
            feed(found, (item.name, getattr(value, item.name)))
    else:
        # hex() writes every bit of a float
        found.update((value.hex() if isinstance(value, float) else repr(value)).encode())
    found.update(b">")


def report(known: Lines, now: Lines) -> int:
    differing = 0
    for name in sorted({*known, *now}):
        if name not in known or name not in now:
            print(f"{name}: {'new' if name in now else 'gone'}")
            differing += 1
            continue
        cases = (known[name]["cases"], now[name]["cases"])
        parts = [
            place(part, known[name][part], now[name][part]) for part in PARTS if known[name][part] != now[name][part]
        ]
        if parts or cases[0] != cases[1]:
            print(f"{name}: {', '.join(parts)}" + (f"; {cases[0]} -> {cases[1]} cases" if cases[0] != cases[1] else ""))
            differing += 1
    print(f"{differing} of {len({*known, *now})} items differ")
    return 1 if differing else 0


def place(part: str, before: str, after: str) -> str:
    pairs = list(zip(cut(before), cut(after), strict=False))
    changed = [index for index, (one, other) in enumerate(pairs) if one != other]
    return f"{part} of {len(changed)} of {len(pairs)} cases" + (f", first {changed[0]}" if changed else "")


def cut(text: str) -> list[str]:
    return [text[start : start + LENGTH] for start in range(0, len(text), LENGTH)]


if __name__ == "__main__":
    sys.exit(main())
