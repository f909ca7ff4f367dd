"""Asks questions until no question distinguishes the remaining hypotheses, or until none remains."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import numpy as np

from quantizer.conformance.generation.hashing import key
from quantizer.conformance.probe.aims import AIMS, Draft, Wanted
from quantizer.conformance.probe.drafts import DRAFTS
from quantizer.conformance.probe.draws import Draws
from quantizer.conformance.probe.enclosed import enclosed
from quantizer.conformance.probe.float_programs import programs
from quantizer.conformance.probe.hypotheses import ACCUMULATORS, Hypothesis, hypotheses, with_accumulators
from quantizer.conformance.probe.question import Array, Question, flat
from quantizer.conformance.target import Target
from quantizer.core.errors import QuantizerError, RefusedError
from quantizer.core.library import Library
from quantizer.runtime.engines.protocol import Engine

ITEMS = 197
"""The number of items in a question. It is not a multiple of a kernel's vector."""
POOL, SMALL_POOL = 2048, 400
"""The number of items that are searched for differences between hypotheses: the smaller if there are many hypotheses,
or if each item is a group of channels."""
FEW, HANDFUL = 120, 20
"""The largest numbers of hypotheses with which a pool, and a large pool, is searched for differences."""
FEWEST = 24
"""The least number of questions to an engine on an enclosing platform, asked even if no hypothesis is left: intervals
judge the answers."""
PATIENCE = 96
"""After this many drafts in a row on which no two hypotheses differ, they count as equal."""
CONFIRMED = 6
"""The number of questions that are asked when no two hypotheses differ any more. The remaining ones must explain the
answers too."""
NARROW, WIDE, FAR = 15, 31, 1000
"""Rounds of questions by the bits of their sums: a size that every accumulator holds, then 32 bits. FAR only seeds
the last round."""
GROUPED = "depthwise_conv2d"
BROAD = ("conv2d", "depthwise_conv2d", "fully_connected")
"""Operators whose bias can move a sum to any place within 32 bits."""


ANY_ORDER = Hypothesis((("float32", "in an order that no hypothesis has"),))


@dataclass(frozen=True, eq=False)
class Evidence:
    """One output element: the engine's code, and the code of each hypothesis."""

    hypothesis: Hypothesis
    question: Question
    item: int
    got: int
    wanted: int

    @property
    def weight(self) -> float:
        """The size of its operands: the smallest element is shown."""
        return float(
            sum(
                np.abs(np.asarray(values[self.item], dtype=np.float64)).sum() for values in self.question.shown.values()
            )
        )


@dataclass
class Found:
    """The remaining hypotheses after the questions to one operator."""

    targets: tuple[Target, ...]
    """The operator under schemes that differ in how weights are scaled."""
    engine: str = ""
    """The engine that computes the platform, as defects name it."""
    kept: list[Hypothesis] = field(default_factory=list)
    """The hypotheses that explain every answer; empty if none does."""
    rejected: list[Evidence] = field(default_factory=list)
    """The evidence against each rejected hypothesis, in the order of the questions."""
    questions: int = 0
    elements: int = 0
    refused: str = ""
    """The reason if the engine gave no answer."""
    answers: list[tuple[Question, Array]] = field(default_factory=list, repr=False)
    """A question and the engine's codes for it."""
    far: bool = False
    """Whether no hypothesis explains the results far outside the codes. Those kept explain only the other results."""
    before: list[Hypothesis] = field(default_factory=list)
    """The hypotheses that explain all sums within 15 bits, if none explains larger ones."""

    @property
    def target(self) -> Target:
        """The operator under the first of the schemes."""
        return self.targets[0]

    @property
    def explained(self) -> bool:
        """Whether a hypothesis remains, or no question was asked."""
        return bool(self.kept) or bool(self.refused)


def eliminate(targets: tuple[Target, ...], engine: Engine, library: Library) -> Found:
    """Return the hypotheses about one operator that every answer of *engine* allows."""
    found, target = Found(targets, engine.identity(targets[0].platform.platform)), targets[0]
    steps = target.platform.parameters.scale == "float32_steps"
    kept = [*hypotheses(target.spec, library, steps=steps), *programs(target.spec)]
    # sums of 15 bits first: every accumulator holds them, so few hypotheses are left when accumulators multiply them
    kept = _rounds(found, engine, kept, Wanted("", NARROW, ITEMS), 0)
    if kept and target.spec.op in BROAD and not found.refused:
        found.before = kept
        kept = with_accumulators(target.spec, kept)
        for bits in ACCUMULATORS:
            kept = _rounds(found, engine, kept, Wanted("", bits - 1, ITEMS, past=bits), bits, most=16)
        kept = _rounds(found, engine, kept, Wanted("", WIDE, ITEMS), WIDE)
        far = _rounds(found, engine, kept, Wanted("", WIDE, ITEMS, far=True), FAR, most=len(AIMS) * 4)
        # results beyond 24 bits leave the integers of a conversion: what explains all others is still worth knowing
        found.far = bool(kept) and not far
        kept = far or kept
    if not kept and target.platform.enclosing is not None and enclosed(found.answers):
        kept = [ANY_ORDER]
    found.kept = kept
    return found


def _rounds(
    found: Found, engine: Engine, kept: list[Hypothesis], wanted: Wanted, seed: int, most: int = 400
) -> list[Hypothesis]:
    """Ask questions until no draft distinguishes two hypotheses, with at most *most* drafts."""
    spec = found.target.spec
    idle, confirmed, turn = 0, 0, 0
    fewest = FEWEST if found.target.platform.enclosing is not None else 0
    while (kept or turn < fewest) and idle < PATIENCE and turn < most and not found.refused:
        draws = Draws(key(seed, "probe", spec.op, found.target.scheme.name, str(turn)))
        aim = AIMS[turn % len(AIMS)]
        turn += 1
        few = len(kept) <= FEW
        # moved on by one after each round of aims, so that every scheme meets every aim
        target = found.targets[(turn + turn // len(AIMS)) % len(found.targets)]
        pool = POOL if len(kept) <= HANDFUL and spec.op != GROUPED else SMALL_POOL
        draft = DRAFTS[spec.op](target, draws, replace(wanted, aim=aim, items=pool if few else wanted.items))
        question = _telling(draft, kept, wanted.items, draws) if few else draft.whole()
        if question is None:
            if confirmed >= CONFIRMED and kept:
                idle += 1
                continue
            question = draft.build(draws.some(draft.count, wanted.items))
            confirmed += 1
        before = len(kept)
        kept = _asked(found, engine, kept, question)
        # a question that was not searched for differences, and rejects nothing, counts for several
        idle = 0 if len(kept) < before else idle + (1 if few else PATIENCE // CONFIRMED)
    return kept


def _telling(draft: Draft, kept: Iterable[Hypothesis], items: int, draws: Draws) -> Question | None:
    """Return a question of items where hypotheses differ, filled up with others; None if they differ on none."""
    whole = draft.whole()
    answers = [found for one in kept if (found := one.answers(whole)) is not None]
    if len(answers) < 2:
        return None
    stacked = np.stack(answers)
    differs = (stacked != stacked[:1]).any(axis=0)
    if not differs.any():
        return None
    # [items, outputs of an item]; a sum of all items has no own outputs, and then every item may tell
    parts = differs.reshape(draft.count, -1).any(axis=1) if differs.size >= draft.count else np.ones(draft.count, bool)
    telling = np.flatnonzero(parts)
    telling = telling[draws.some(len(telling), items)]
    others = np.setdiff1d(draws.some(draft.count, items), telling)[: max(items - len(telling), 0)]
    return draft.build(np.sort(np.concatenate([telling, others])))


def _asked(found: Found, engine: Engine, kept: list[Hypothesis], question: Question) -> list[Hypothesis]:
    """Ask one question; return the hypotheses that its answer allows."""
    try:
        codes = question.codes_of(engine)
    except RefusedError as err:
        # refused at once: the engine has no such operator; later refusals concern single questions
        if not found.questions:
            found.refused = str(err)
        return kept
    except QuantizerError as err:
        if not found.questions:
            found.refused = f"failed: {err}"
        return kept
    got = flat(codes)
    found.answers.append((question, codes))
    found.questions += 1
    found.elements += got.size
    left, gone = [], []
    for one in kept:
        wanted = one.answers(question)
        if wanted is None:
            # without a rule for the first question, a hypothesis has none for the operator
            if one.shipped or found.questions > 1:
                left.append(one)
            continue
        if wanted.shape == got.shape and np.array_equal(wanted, got):
            left.append(one)
        else:
            gone.append(_evidence(one, question, got, wanted))
    found.rejected += gone
    return left


def _evidence(one: Hypothesis, question: Question, got: Array, wanted: Array) -> Evidence:
    places = np.flatnonzero(wanted != got) if wanted.shape == got.shape else np.zeros(1, dtype=int)
    each = [Evidence(one, question, int(i), int(got[i]), int(wanted[i])) for i in places[:64]]
    return min(each, key=lambda evidence: (evidence.weight, evidence.item))
