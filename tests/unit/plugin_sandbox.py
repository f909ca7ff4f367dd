"""Plugin files for tests, and a block after which nothing that was loaded is left."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from textwrap import dedent

from quantizer.conformance.generation.builder import build_case
from quantizer.conformance.generation.choice_sources import HashChoices
from quantizer.conformance.generation.hashing import key
from quantizer.conformance.judging.judge import judge
from quantizer.conformance.setup.readings import with_readings
from quantizer.conformance.target import Target
from quantizer.conformance.trials.trial import Trial
from quantizer.core.library import Library, load_library
from quantizer.core.verdict import Verdict
from quantizer.ops import REGISTRY, load_built_ins
from quantizer.plugins import bridge, loading
from quantizer.plugins.aipu.optypes import forget_optypes, known_optypes
from quantizer.plugins.classes import CLASSES
from quantizer.plugins.discovery import load_plugins, spec_folders
from quantizer.runtime.engines.builtin import BuiltinEngine

HEADER = """
import torch
from AIPUBuilder.Optimizer.framework import *
from AIPUBuilder.Optimizer.utils import *
from AIPUBuilder.Optimizer.logger import *
"""


@contextmanager
def sandbox() -> Iterator[None]:
    load_built_ins()
    entries = {name: list(known) for name, known in REGISTRY.entries.items()}
    classes, CLASSES.entries = CLASSES.entries, {}
    types, modules, path = known_optypes(), set(sys.modules), list(sys.path)
    loaded, layers, connected = dict(loading._LOADED), list(loading.LAYERS), dict(bridge._CONNECTED)
    loading._LOADED.clear()
    loading.LAYERS.clear()
    bridge._CONNECTED.clear()
    try:
        yield
    finally:
        REGISTRY.entries, CLASSES.entries = entries, classes
        forget_optypes(types)
        for known, before in ((loading._LOADED, loaded), (bridge._CONNECTED, connected)):
            known.clear()
            known.update(before)
        loading.LAYERS[:] = layers
        sys.path[:] = path
        for name in set(sys.modules) - modules:
            if not name.startswith(("quantizer", "torch", "numpy", "onnx", "google")):
                del sys.modules[name]


def write(folder: Path, name: str, text: str, *, header: bool = True) -> Path:
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text((HEADER if header else "") + dedent(text))
    return file


def open_library(*paths: Path, specs: tuple[Path, ...] = (), environment: Mapping[str, str] | None = None) -> Library:
    """Load plugins and the library, and give layer functions to their operators."""
    plugins = load_plugins(paths, environment or {})
    library = load_library((*spec_folders(plugins), *specs))
    bridge.connect(library.specs)
    return library


def target(library: Library, op: str, scheme: str, platform: str = "compass", reading: str | None = None) -> Target:
    asked = () if reading is None else (f"{op}/{platform}:{reading}",)
    return Target(with_readings(library, asked).spec(op), library.scheme(scheme), library.platform(platform))


def trials(judged: Target, count: int, first: int = 0) -> Iterator[Trial]:
    for index in range(first, first + count):
        yield Trial(judged, build_case(judged, HashChoices(key(index, judged.id), {})), BuiltinEngine())


def verdicts(judged: Target, count: int) -> list[Verdict]:
    return [verdict for trial in trials(judged, count) for verdict in judge(trial)]


def failures(judged: Target, count: int) -> Iterator[Verdict]:
    """Yield failures case by case, so that a caller may stop at the first."""
    for trial in trials(judged, count):
        yield from (verdict for verdict in judge(trial) if verdict.failing)


def fails(judged: Target, count: int, check: str) -> bool:
    """Return whether *check* fails on one of *count* cases."""
    return any(verdict.check == check for verdict in failures(judged, count))


def failing(judged: Target, count: int) -> dict[str, list[Verdict]]:
    found: dict[str, list[Verdict]] = {}
    for verdict in failures(judged, count):
        found.setdefault(verdict.check, []).append(verdict)
    return found
