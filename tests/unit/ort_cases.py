"""Cases of platform `ort`, each on our engine and on ONNX Runtime: populations, and codes under given parameters."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from ort_oracle import Array

from quantizer.conformance.checks.float_forward import float_forward
from quantizer.conformance.generation.builder import build_case, covering_rows_by_id
from quantizer.conformance.generation.choice_sources import HashChoices
from quantizer.conformance.generation.datasets import materialise
from quantizer.conformance.generation.hashing import integers, uniform
from quantizer.conformance.generation.ranges import range_of
from quantizer.conformance.judging.known_defects import known_defect
from quantizer.conformance.target import Target
from quantizer.conformance.trials.trial import Trial
from quantizer.core.case import Case
from quantizer.core.dtypes import dtype
from quantizer.core.errors import RefusedError
from quantizer.core.library import load_library
from quantizer.numerics.qparams import QParams
from quantizer.numerics.request import Request
from quantizer.ops import load_built_ins
from quantizer.platforms.onnxruntime.engine import lower
from quantizer.runtime.engines.builtin import BuiltinEngine
from quantizer.runtime.engines.catalogue import Chosen
from quantizer.runtime.engines.external import ExternalEngine

Pair = tuple[Trial, Trial]
"""One case on our engine, and on ONNX Runtime with our parameters and codes."""
COUNT = 100
"""Cases of each population; an operator has five of them."""
POPULATIONS = ["rows", "random", "ties", "powers", "eighths"]
BY_DAY = ("powers", "eighths")
"""Populations that CI's gate with `--op-engine=onnxruntime` does not draw; by day, each operator has one of them in turn."""
LOGISTIC_STEP = 2.0**-8

load_built_ins()
LIBRARY = load_library()
ORT = LIBRARY.platform("ort")
ENGINE = ExternalEngine(Chosen("onnxruntime"))
TARGETS = [f"{op}-{name}" for op in ORT.ops or () for name in LIBRARY.schemes_for(LIBRARY.spec(op), ORT)]
WEIGHTED = [item for item in TARGETS if item.split("-")[1].startswith("w")]


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """Keep torch on one thread while a module runs that imports this."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def items(test: Any) -> Any:
    """Run *test* on every operator that the platform names under every scheme: one population by day, all at night."""
    return _populations(TARGETS)(test)


def weighted(test: Any) -> Any:
    """Run *test* on every operator with weights: one population by day, all at night."""
    return _populations(WEIGHTED)(test)


def _populations(found: Sequence[str]) -> Any:
    return pytest.mark.parametrize(
        ("item", "population"),
        [
            pytest.param(item, name, marks=[] if name == BY_DAY[index % len(BY_DAY)] else [pytest.mark.nightly])
            for index, item in enumerate(found)
            for name in POPULATIONS
        ],
    )


def target_of(item: str) -> Target:
    """Return the target called op-scheme on platform ort."""
    op, scheme = item.split("-")
    return Target(LIBRARY.spec(op), LIBRARY.scheme(scheme), ORT)


def is_per_channel(target: Target) -> bool:
    """Return whether weights have one scale for each channel."""
    return target.scheme.weight is not None and target.scheme.weight.granularity == "channel"


def both(trial: Trial) -> Pair:
    """Return *trial* and the same on ONNX Runtime."""
    other = Trial(trial.target, trial.case, ENGINE)
    other.tensors, other.parameters, other.codes = trial.tensors, trial.parameters, trial.codes
    return trial, other


@functools.cache
def pairs(item: str, population: str) -> list[Pair]:
    """Return COUNT cases of one population that the kernel computes; `rows` takes every data set in turn."""
    target = target_of(item)
    known = covering_rows_by_id(target.spec, ["only"], "only")
    seeds = itertools.count(COUNT * POPULATIONS.index(population))
    made = (_pair(target, population, seed, known[seed % len(known)]) for seed in seeds)
    return list(itertools.islice((pair for pair in made if not _refused(pair[0])), COUNT))


def _pair(target: Target, population: str, seed: int, row: Mapping[str, str]) -> Pair:
    data = {"rows": {}, "ties": {"data": "ties"}}.get(population, {"data": "random"})
    case = build_case(target, HashChoices(seed, {**row, **data}))
    scaled = population in ("powers", "eighths")
    return both(_on_scales(target, case, population) if scaled else Trial(target, case, BuiltinEngine()))


def _refused(trial: Trial) -> bool:
    try:
        lower(trial.call, trial.codes, trial.parameters, "cpu")
    except RefusedError:
        return True
    return False


def scales(kind: str, seed: int, name: str, shape: tuple[int, ...] = ()) -> Any:
    """Return powers of two, or eighths."""
    if kind == "powers":
        return 2.0 ** integers(seed, name, shape, -6, 1)
    return integers(seed, name, shape, 1, 39) / 8


def _halves(seed: int, name: str, shape: tuple[int, ...], largest: int) -> Array:
    """Return numbers from 0 to *largest*, half of them codes and half exactly between two."""
    return integers(seed, name, shape, 0, 2 * largest) / 2


def _on_scales(target: Target, case: Case, kind: str) -> Trial:
    """Return a trial on codes over their whole range and ties between them, under exactly the scales of *kind*."""
    seed = case.data.seed
    ranges, tensors, steps = dict(case.ranges), {}, []
    pointing = [name for name, item in target.spec.inputs.items() if item.kind == "index"]
    tensors |= {name: materialise(target, case)[name].double().numpy() for name in pointing}
    for name in (name for name in target.spec.activations if name in case.shapes and name not in pointing):
        step, zero = float(scales(kind, seed, f"{name}.scale")), int(integers(seed, f"{name}.zero", (), 0, 255))
        ranges[name] = range_of(target, step, zero)
        tensors[name] = (_halves(seed, name, case.shapes[name], 255) - zero) * step
        steps.append(step)
    if "weight" in case.shapes:
        shape = case.shapes["weight"]
        weight_steps = np.resize(scales(kind, seed, "steps", shape[:1] if is_per_channel(target) else (1,)), shape[0])
        codes = _halves(seed, "weight", shape, 254) - 127
        codes.reshape(shape[0], -1)[:, 0] = 127
        tensors["weight"] = codes * weight_steps.reshape(-1, *[1] * (len(shape) - 1))
        if "bias" in case.shapes:
            tensors["bias"] = (_halves(seed, "bias", shape[:1], 4000) - 2000) * weight_steps * steps[0]
        steps.append(float(np.median(weight_steps)))
    if "y" in ranges:
        ranges["y"] = _output_range(target, kind, seed, steps)
    trial = Trial(target, case.but(ranges=ranges), BuiltinEngine())
    trial.tensors = {name: torch.from_numpy(tensors[name].astype(np.float32)) for name in case.shapes}
    return trial


def _output_range(target: Target, kind: str, seed: int, steps: list[float]) -> tuple[float, float]:
    """Return a range under which most outputs do not saturate, from the steps of the operands."""
    step, grow = steps[-1], uniform(seed, "grow", ()) * 3 - 1
    if target.spec.error_model.kind == "bilinear":
        step, grow = float(np.prod(steps)), 4 + 5 * uniform(seed, "grow", ())
    elif target.spec.op == "sigmoid":
        step = LOGISTIC_STEP
    y_scale = 2.0 ** round(np.log2(step) + grow) * (1 if kind == "powers" else scales(kind, seed, "y.scale") / 4)
    return range_of(target, float(y_scale), int(integers(seed, "y.zero", (), 0, 255)))


def uint8(scale: float, zero: int = 0) -> QParams:
    """Return parameters of unsigned 8-bit codes."""
    return QParams(dtype("uint8"), torch.tensor(scale, dtype=torch.float64), torch.tensor(zero), 0, 255)


def given(
    item: str,
    codes: Mapping[str, Array],
    params: Mapping[str, QParams],
    y: QParams | None = None,
    *,
    weight: Array | None = None,
    **attrs: Any,
) -> Pair:
    """Return a pair on *codes* of inputs whose parameters are as given; *y* is None where the platform fixes it."""
    target = target_of(item)
    constants = {} if weight is None else {"weight": torch.from_numpy(weight)}
    shapes = {name: tuple(values.shape) for name, values in (codes | constants).items()}
    ranges = {} if y is None else {"y": range_of(target, float(y.scale), int(y.zero_point))}
    request = Request(target.spec, target.scheme, ORT, shapes, attrs, ranges, constants, params)
    trial = Trial(target, build_case(target, HashChoices(0, {})).but(shapes=shapes, attrs=attrs), BuiltinEngine())
    trial.tensors, trial.parameters = constants, trial.engine.quantize(request)
    trial.codes = {name: torch.from_numpy(values.astype(np.int64)) for name, values in codes.items()}
    trial.codes |= {name: constant.codes for name, constant in trial.parameters.constants.items()}
    return both(trial)


def assert_agrees(found: list[Pair]) -> int:
    """Compare the codes of all trials with ONNX Runtime's; return how many elements that were.

    Where its kernels for this processor have a declared defect, they may differ.
    """
    for trial, other in found:
        assert trial.got.shape == other.got.shape == trial.output_shape, trial.case.to_json()
        equal = np.array_equal(trial.got, other.got)
        wrong = (trial.case.to_json(), np.argwhere(trial.got != other.got)[:1])
        assert equal or known_defect(other, "engine"), wrong
    return sum(trial.got.size for trial, _ in found)


def assert_float_within_bound(found: list[Pair]) -> None:
    """Judge both float forwards by the derived bound; where ONNX Runtime's counts fewer places, ours alone."""
    for trial in (one for pair in found for one in pair):
        try:
            verdict = float_forward(trial)
        except RefusedError:
            continue
        assert verdict.status == "pass", (trial.engine.name, trial.case.to_json(), verdict)
