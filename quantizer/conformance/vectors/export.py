"""Writes cases of a target as vectors: drawn from a seed, lowered to the form `npz`, with their allowed codes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, get_args

import numpy as np

from quantizer import __version__
from quantizer.conformance.generation.builder import build_case
from quantizer.conformance.generation.choice_sources import HashChoices
from quantizer.conformance.generation.hashing import key
from quantizer.conformance.target import Target
from quantizer.conformance.trials.trial import Array, Trial
from quantizer.conformance.vectors.index import index_text
from quantizer.conformance.vectors.intervals import intervals
from quantizer.conformance.vectors.models import lowered
from quantizer.core.case import Case
from quantizer.core.case_file import CaseModel
from quantizer.core.errors import CaseError, QuantizerError, RefusedError
from quantizer.core.vectors import (
    DIGESTS,
    INDEX,
    MANIFEST,
    VERSION,
    Allowed,
    ArrayFile,
    ArrayType,
    Manifest,
    TableFile,
    VectorCase,
    VectorFeed,
    VectorGrid,
    VectorModel,
    VectorMultiplier,
    VectorOperand,
    VectorOutput,
)
from quantizer.runtime.engines.builtin import BuiltinEngine
from quantizer.runtime.engines.forms import npz

DATA = ("ties", "random")
"""The data sets of the cases, in turn. `ties` shows rounding; codes of the whole range show everything else."""
ATTEMPTS = 8
"""The most cases drawn for each requested case, because some repeat and some do not run."""


@dataclass
class Files:
    """The files of a bundle, which together have at most *most* bytes."""

    most: int
    contents: dict[str, bytes] = field(default_factory=dict)
    size: int = 0

    def add(self, name: str, content: bytes) -> None:
        """Add file *name* with its content; CaseError if the bundle then exceeds its budget."""
        self.size += len(content)
        if self.size > self.most:
            raise CaseError(
                f"the bundle has more than {self.most / 1e6:g} MB. Ask for fewer cases or operators, or raise --budget."
            )
        self.contents[name] = content

    def array(self, name: str, values: Array) -> ArrayFile:
        """Add one array and return its entry of the manifest."""
        kind = str(values.dtype)
        if kind not in get_args(ArrayType):
            raise CaseError(f"{name}: elements of type {kind} have no place in a bundle.")
        # the least significant byte first on every machine
        content = np.ascontiguousarray(values, values.dtype.newbyteorder("<")).tobytes()
        self.add(name, content)
        return ArrayFile(file=name, sha256=digest(content), dtype=kind, shape=[*values.shape])  # type: ignore[arg-type]


def digest(content: bytes) -> str:
    """Return the SHA-256 of *content*."""
    return hashlib.sha256(content).hexdigest()


def bundle(targets: list[Target], cases: int, seed: int, most: int, forms: Sequence[str] = ()) -> dict[str, bytes]:
    """Return a bundle's files by path, the digests last, with *cases* cases per target and at most *most* bytes.

    *forms*: the forms in which each case is also written as a model. CaseError if the files are larger, or if no case
    of a target runs.
    """
    files, found = Files(most), []
    for target in targets:
        own = [
            _vector(f"{target.id}-{number:04d}", trial, files, forms)
            for number, trial in enumerate(_trials(target, cases, seed))
        ]
        if not own:
            raise CaseError(
                f"{target.id}: none of the {cases * ATTEMPTS} cases that were drawn runs. Name another target."
            )
        found += own
    index = index_text(found).encode()
    files.add(INDEX, index)
    manifest = Manifest(version=VERSION, quantizer=__version__, seed=seed, index_sha256=digest(index), cases=found)
    plain = manifest.model_dump(mode="json", exclude_defaults=True)
    files.add(MANIFEST, (json.dumps(plain, indent=1, sort_keys=True, allow_nan=False) + "\n").encode())
    files.add(DIGESTS, _digests(files.contents))
    return files.contents


def _digests(contents: Mapping[str, bytes]) -> bytes:
    """Return a line for each file, as `sha256sum` writes it; the index comes last, so that a cut list is noticed."""
    names = [*(name for name in contents if name != INDEX), INDEX]
    return "".join(f"{digest(contents[name])}  {name}\n" for name in names).encode()


def _trials(target: Target, cases: int, seed: int) -> Iterator[Trial]:
    """Yield different cases that the platform's own functions run."""
    seen: set[str] = set()
    for number in range(cases * ATTEMPTS):
        if len(seen) == cases:
            return
        row = {"data": DATA[number % len(DATA)], "tiles": "untiled"}
        trial = _runs(target, build_case(target, HashChoices(key(seed, "vectors", target.id, str(number)), row)))
        if trial is not None and trial.case.digest not in seen:
            seen.add(trial.case.digest)
            yield trial


def _runs(target: Target, case: Case) -> Trial | None:
    trial = Trial(target, case, BuiltinEngine())
    if trial.refusal is not None:
        return None
    try:
        _ = trial.outcome
    except QuantizerError:
        return None
    return trial


def _vector(name: str, trial: Trial, files: Files, forms: Sequence[str] = ()) -> VectorCase:
    """Return one case, and add its arrays to *files*."""
    job = npz.lower(trial.call, trial.codes, trial.parameters, trial.variant).job
    model: dict[str, Any] = json.loads(job.model)
    folder = f"cases/{name}"
    found, output = intervals(trial), model["output"]
    kind = output["type"]
    ends = {
        end: files.array(f"{folder}/allowed.{end}.bin", np.asarray(values).astype(kind))
        for end, values in (() if isinstance(found, str) else (("low", found.low), ("high", found.high)))
    }
    return VectorCase(
        id=name,
        case=CaseModel.model_validate(trial.case.to_dict()),
        operands=[
            VectorOperand(
                name=operand,
                values=files.array(f"{folder}/{operand}.bin", job.feeds[operand]),
                grid=_grid(model["inputs"][operand]) if operand in model["inputs"] else None,
            )
            for operand in trial.codes
        ],
        output=VectorOutput(dtype=kind, shape=output["shape"], grid=_grid(output)),
        multiplier=None if model["rescale"] is None else _multiplier(model["rescale"]),
        tables=[_table(table, said, job.feeds, folder, files) for table, said in model["tables"].items()],
        numbers=model["numbers"],
        models=[_model(form, folder, trial, files) for form in forms],
        allowed=None if isinstance(found, str) else Allowed(**ends, conclusive=found.conclusive, vacuous=found.vacuous),
        open=found if isinstance(found, str) else "",
    )


def _model(form: str, folder: str, trial: Trial, files: Files) -> VectorModel:
    """Return the case as a model, and add its file and its feeds to *files*."""
    try:
        made, (shape, axes) = lowered(trial, form)
    except RefusedError as err:
        return VectorModel(form=form, refused=str(err))
    place, job = f"{folder}/{form}", made.job
    files.add(f"{place}.model", job.model)
    feeds = [
        VectorFeed(
            name=name, operand=made.operands.get(name, name), values=files.array(f"{place}.{number}.bin", values)
        )
        for number, (name, values) in enumerate(job.feeds.items())
    ]
    return VectorModel(
        form=form, file=f"{place}.model", sha256=digest(job.model), feeds=feeds, shape=[*shape], axes=[*axes]
    )


def _grid(said: Mapping[str, Any]) -> VectorGrid:
    return VectorGrid(
        scale=np.ravel(said["scale"]).tolist(),
        zero_point=np.ravel(said["zero_point"]).tolist(),
        lowest=said["lowest"],
        highest=said["highest"],
        axis=said["axis"],
    )


def _multiplier(said: Mapping[str, Any]) -> VectorMultiplier:
    return VectorMultiplier(
        variant=said["variant"],
        multiplier=np.ravel(said["multiplier"]).astype(np.float64).tolist(),
        shift=np.ravel(said["shift"]).astype(np.int64).tolist(),
        divisor=said["divisor"],
        factors=said["factors"],
    )


def _table(name: str, said: Mapping[str, Any], feeds: Mapping[str, Array], folder: str, files: Files) -> TableFile:
    entries = files.array(f"{folder}/table.{name}.bin", feeds[f"table {name}"])
    return TableFile(name=name, entries=entries, first=said["first"], step=said["step"], unit=said["unit"])
