"""Nightly runs repeat a case on two and four threads, with the same codes."""

from pathlib import Path

import pytest

from quantizer.conformance.checks.invariance import repeat
from quantizer.conformance.generation.builder import build_case
from quantizer.conformance.generation.choice_sources import HashChoices
from quantizer.conformance.setup.options import Options
from quantizer.conformance.target import Target
from quantizer.conformance.trials.trial import Trial
from quantizer.core.library import load_library
from quantizer.ops import load_built_ins
from quantizer.runtime.engines.catalogue import chosen
from quantizer.runtime.engines.external import ExternalEngine

load_built_ins()
LIBRARY = load_library()


class Careless(ExternalEngine):
    """An engine whose codes depend on the number of threads."""

    def run_each(self, several):
        several = [*several]
        results = super().run_each(several)
        return [
            (lambda made=made, asked=asked: made() + (asked.threads == 4))
            for made, asked in zip(results, several, strict=True)
        ]


def judged(engine, platform, op="conv2d", scheme="w8a8"):
    target = Target(LIBRARY.spec(op), LIBRARY.scheme(scheme), LIBRARY.platform(platform))
    for seed in range(3):
        made = Trial(target, build_case(target, HashChoices(seed, {"data": "random"})), engine)
        if made.refusal is None:
            yield repeat(made)
    engine.close()


@pytest.mark.parametrize(
    ("name", "platform"),
    [
        ("litert:xnnpack", "xnnpack"),
        ("litert:builtin", "tflite_builtin"),
        ("onnxruntime", "ort"),
        ("torch", "torch_x86"),
    ],
)
def test_codes_do_not_depend_on_threads(name, platform):
    pytest.importorskip("ai_edge_litert" if "litert" in name else name)
    found = [*judged(ExternalEngine(chosen(name), threads=(2, 4)), platform)]
    assert found and {verdict.status for verdict in found} == {"pass"}


def test_an_engine_with_thread_dependent_codes_fails():
    pytest.importorskip("onnxruntime")
    found = [*judged(Careless(chosen("onnxruntime"), threads=(2, 4)), "ort", "transpose", "a8")]
    assert found and all(verdict.failing for verdict in found)
    assert "on 4" in str(found[0])


def test_only_nightly_asks_for_threads():
    asked = {name: Options(root=Path(), profile=name).threads for name in ("gate", "dev", "nightly")}
    assert asked == {"gate": (), "dev": (), "nightly": (2, 4)}
    assert ExternalEngine(chosen("tosa"), threads=(2, 4)).threads == ()
