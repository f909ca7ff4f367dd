"""The parts of a stack as trials, each with its share of what the whole provided and computed."""

from __future__ import annotations

from collections.abc import Iterator

from quantizer.conformance.trials.trial import TILED, Trial
from quantizer.numerics.qparams import Staged
from quantizer.tiling.stacks import part_at
from quantizer.tiling.windows import slices


def parts_of(trial: Trial) -> Iterator[Trial]:
    """Return the parts of a stack; the trial itself if it is no stack."""
    return (part_of(trial, place) for place in range(trial.data_sets))


def part_of(trial: Trial, place: int) -> Trial:
    """Return one part of a stack; the trial itself if it is no stack."""
    if trial.data_sets == 1:
        return trial
    piece = part_at(trial.spec, trial.case, place)
    part = Trial(trial.target, piece.case, trial.engine)
    part.share(trial)
    part.tensors = {name: values[slices(piece.inputs[name])] for name, values in trial.tensors.items()}
    part.codes = {name: values[slices(piece.inputs[name])] for name, values in trial.codes.items()}
    box = slices(piece.output)
    # stages have shapes of their own, so they are not cut
    part.outcome = Staged(trial.outcome.codes[box], {})
    part.y = trial.y[box]
    # a whole that matches does so in every part; a mismatch may lie in another part
    part.matches = {check: True for check, same in trial.matches.items() if same}
    if TILED in trial.shared:
        part.shared[TILED] = trial.shared[TILED][box]
    return part
