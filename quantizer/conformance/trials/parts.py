"""The parts of a stack as trials, each with its share of what the whole provided and computed."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from quantizer.conformance.trials.trial import TILED, Trial
from quantizer.numerics.qparams import Staged
from quantizer.tiling.stacks import part_at
from quantizer.tiling.windows import slices

OF_SHARES = ("parameters", "accuracy")
"""Checks that read no stages, so that a part's share of the results of its stack is all that they need."""


def parts_of(trial: Trial, checks: Collection[str] = ()) -> Iterator[Trial]:
    """Return the parts of a stack, for *checks*; the trial itself if it is no stack."""
    return (part_of(trial, place, checks) for place in range(trial.data_sets))


def part_of(trial: Trial, place: int, checks: Collection[str] = ()) -> Trial:
    """Return one part of a stack, for *checks*; the trial itself if it is no stack.

    Stages have shapes of their own, so they are not cut: where a check may read them, the part runs, and only what it
    is given is its share of the whole.
    """
    if trial.data_sets == 1:
        return trial
    piece = part_at(trial.spec, trial.case, place)
    part = Trial(trial.target, piece.case, trial.engine)
    part.share(trial)
    part.tensors = {name: values[slices(piece.inputs[name])] for name, values in trial.tensors.items()}
    part.codes = {name: values[slices(piece.inputs[name])] for name, values in trial.codes.items()}
    box = slices(piece.output)
    runs = bool(trial.outcome.stages) and not {*checks} <= {*OF_SHARES}
    if not runs:
        # the whole ran, so none of its parts is refused
        part.outcome, part.refusal = Staged(trial.outcome.codes[box], {}), None
    part.y = trial.y[box]
    part.compared_of_whole = None if trial.compared is None else trial.compared.at(box)
    # a whole that matches does so in every part; a mismatch may lie in another part, or in the part's own run
    part.matches = {check: True for check, same in trial.matches.items() if same and (not runs or check in OF_SHARES)}
    if TILED in trial.shared:
        part.shared[TILED] = trial.shared[TILED][box]
    return part
