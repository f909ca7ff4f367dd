"""A platform's settings for later releases of its system: a real engine is judged by those of its version."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import Tensor

from quantizer.conformance.checks.arithmetic import arithmetic
from quantizer.conformance.findings import Findings
from quantizer.conformance.generation.builder import build_case
from quantizer.conformance.generation.choice_sources import HashChoices
from quantizer.conformance.setup.options import Options
from quantizer.conformance.stored.files import Golden
from quantizer.conformance.stored.golden_update import update_goldens
from quantizer.conformance.stored.goldens import compare
from quantizer.conformance.target import Target
from quantizer.conformance.trials.trial import Trial
from quantizer.core import library
from quantizer.core.errors import CaseError
from quantizer.core.library import load_library
from quantizer.core.linting import lint
from quantizer.core.version_numbers import release_of
from quantizer.numerics.qparams import Parameters, Staged
from quantizer.ops import load_built_ins
from quantizer.runtime.engines.builtin import BuiltinEngine
from quantizer.runtime.engines.catalogue import installed_version
from quantizer.runtime.engines.protocol import Call

load_built_ins()
LIBRARY = load_library()
PLATFORMS = ("torch_x86", "torch_fbgemm", "torch_qnnpack")
QUANTIZER = "quantizer: {zero_point: before}"
CHIP = "platform: chip\nsummary: A chip.\nschemes: [a8]\nops: [sigmoid]\nrequantize: {default: exact}\nreleases:\n"


class Giving(BuiltinEngine):
    """An engine that gives these codes."""

    def __init__(self, codes: Tensor) -> None:
        self.codes = codes

    def run(self, call: Call, codes: Mapping[str, Tensor], parameters: Parameters) -> Staged:  # noqa: ARG002
        return Staged(self.codes, {})


def both(op: str, platform: str) -> tuple[Target, Target]:
    """Return the target of the first settings, and that of torch 2.15."""
    first = LIBRARY.platform(platform)
    return tuple(  # type: ignore[return-value]
        Target(LIBRARY.spec(op), LIBRARY.scheme("a8"), one) for one in (first, first.at_release("torch", "2.15.0"))
    )


def tied(target: Target, seed: int, **changes: Any) -> Trial:
    """Return a trial on ties; under an odd zero point, adding it first rounds to the other code."""
    case = build_case(target, HashChoices(seed, {"data": "ties", "tiles": "untiled"})).but(activation="none", **changes)
    return Trial(target, case, BuiltinEngine())


def elsewhere(trial: Trial, other: Target) -> Tensor:
    """Return the codes that the built-in functions give on the operands of *trial* under another release."""
    return BuiltinEngine().run(trial.call, trial.codes, Trial(other, trial.case, BuiltinEngine()).parameters).codes


@pytest.mark.parametrize(
    ("engine", "version", "place"),
    [
        ("torch", "2.13.0", "before"),
        ("torch", "2.13.9", "before"),
        ("torch", "2.14", "after"),
        ("torch", "2.14.1", "after"),
        ("torch", "2.15.0", "after"),
        ("torch", "2.16.0.dev20270101", "after"),
        ("torch", "3", "after"),
        ("torch", "", "before"),
        ("torch", "of today", "before"),
        ("onnxruntime", "2.14.1", "before"),
    ],
)
@pytest.mark.parametrize("name", PLATFORMS)
def test_the_latest_applicable_release_entry_applies(name: str, engine: str, version: str, place: str) -> None:
    platform = LIBRARY.platform(name)
    found = platform.at_release(engine, version)
    assert found.quantizer.zero_point == place
    assert found.is_later == (place == "after")
    assert found.model_copy(update={"quantizer": platform.quantizer}) == platform


def test_release_numbers_are_parsed_from_versions() -> None:
    assert [release_of(text) for text in ("2.14.1", "2.14.0", "2.16.0.dev1", "2.15.0a0+git", "", "today")] == [
        (2, 14, 1), (2, 14), (2, 16), (2, 15), (), (),
    ]  # fmt: skip


def test_release_settings_apply_only_to_runs_of_the_engine() -> None:
    own, real = (Options(root=Path.cwd(), engine=name).library() for name in ("builtin", "torch"))
    version = (installed_version("torch") or "").split("+")[0]
    for name in PLATFORMS:
        assert own.platform(name) == LIBRARY.platform(name)
        assert not own.platform(name).is_later
        assert real.platform(name) == LIBRARY.platform(name).at_release("torch", version)
    assert [real.platform(name) for name in own.platforms if name not in PLATFORMS] == [
        own.platform(name) for name in own.platforms if name not in PLATFORMS
    ]


@pytest.mark.parametrize("platform", PLATFORMS)
@pytest.mark.parametrize(
    ("op", "changes"),
    [
        ("quantize", {}),
        ("concat", {}),
        ("leaky_relu", {"shapes": {"x": (3, 7)}}),
        ("reduce_mean", {"shapes": {"x": (2, 4, 3)}, "attrs": {"axes": (1,), "keepdims": False}}),
    ],
)
def test_only_codes_of_the_own_release_pass(op: str, changes: dict[str, Any], platform: str) -> None:
    first, later = both(op, platform)
    differ = [0, 0]
    for seed in range(60):
        for index, (target, other) in enumerate(((first, later), (later, first))):
            trial = tied(target, seed, **changes)
            wrong = elsewhere(trial, other)
            assert arithmetic(trial).status in ("pass", "inconclusive")
            if not np.array_equal(wrong.numpy(), trial.got):
                differ[index] += 1
                assert arithmetic(Trial(target, trial.case, Giving(wrong))).failing
    assert min(differ) >= 2


@pytest.mark.parametrize(
    ("entries", "place", "said"),
    [
        ([("2.14", QUANTIZER), ("2.14", "quantizer: {nan: lowest}")], "releases.1.first", "rising order"),
        ([("2.14", QUANTIZER), ("2.9", "quantizer: {nan: lowest}")], "releases.1.first", "rising order"),
        ([("2.14", QUANTIZER)], "releases.0.engine", "no such engine"),
        ([("new", QUANTIZER)], "releases.0.first", "numbers joined by dots"),
        ([("2.14", "quantizer: {}")], "releases.0.quantizer", "is the platform's own"),
        ([("2.14", "quantizer: {rounding: stochastic}")], "releases.0.quantizer.rounding", "deterministic"),
    ],
)
def test_lint_refuses_impossible_release_entries(
    tmp_path: Path, entries: list[tuple[str, str]], place: str, said: str
) -> None:
    (tmp_path / "platforms").mkdir()
    engine = "chip" if place.endswith("engine") else "torch"
    lines = [f"  - {{engine: {engine}, first: '{first}', reason: Measured., {keys}}}\n" for first, keys in entries]
    (tmp_path / "platforms" / "chip.yaml").write_text(CHIP + "".join(lines))
    library._load_library.cache_clear()
    found = lint([tmp_path])[0]
    assert any(place in line and said in line for line in found), found


def test_a_golden_difference_explained_by_the_release_is_skipped() -> None:
    first, later = both("quantize", "torch_x86")
    trials = (tied(later, seed) for seed in range(60))
    trial = next(one for one in trials if not np.array_equal(elsewhere(one, first).numpy(), one.got))
    codes = elsewhere(trial, first)
    golden = Golden(trial.case, tuple(codes.flatten().tolist()), "builtin", "first")
    found = Findings()
    compare(found, later, BuiltinEngine(), golden, "")
    assert (found.problems, found.passed, len(found.refused)) == ([], 0, 1)
    compare(found, later, Giving(codes), golden, "")
    assert (found.problems, found.passed, len(found.refused)) == ([], 1, 1)
    compare(found, later, Giving(codes ^ 1), golden, "")
    assert len(found.problems) == 1


def test_an_engine_of_a_later_release_writes_no_golden(tmp_path: Path) -> None:
    _, later = both("quantize", "torch_x86")
    with pytest.raises(CaseError, match="quantize-a8-torch_x86: the engine is of a later release"):
        update_goldens(None, [later], [later], BuiltinEngine(), "why")  # type: ignore[arg-type]
