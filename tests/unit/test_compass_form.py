"""The form `compass-ir` means the same to our reader and to an independent reader in numpy."""

import sys
from pathlib import Path

import numpy as np
import pytest

from quantizer.conformance.generation.builder import build_case
from quantizer.conformance.generation.choice_sources import HashChoices
from quantizer.conformance.judging.judge import judge
from quantizer.conformance.target import Target
from quantizer.conformance.trials.trial import Trial
from quantizer.core.errors import RefusedError
from quantizer.core.library import load_library
from quantizer.ops import load_built_ins
from quantizer.platforms.compass import model
from quantizer.runtime.engines.builtin import BuiltinEngine
from quantizer.runtime.engines.catalogue import chosen
from quantizer.runtime.engines.external import ExternalEngine

load_built_ins()
LIBRARY = load_library()
PLATFORM = LIBRARY.platform("compass")
WORKERS = Path(__file__).parent / "workers"
OPERATORS = (
    "conv2d", "depthwise_conv2d", "conv_transpose2d", "fully_connected", "matmul", "add", "mul", "relu", "leaky_relu",
    "sigmoid", "softmax", "log_softmax", "avg_pool2d", "max_pool2d", "concat", "transpose", "pad", "gather", "batch_norm",
    "layer_norm", "reduce_mean", "argmax", "resize_nearest",
)  # fmt: skip


@pytest.fixture(scope="module")
def engine():
    made = {}

    def start(name):
        if name not in made:
            made[name] = ExternalEngine(chosen(f"{sys.executable}:{WORKERS / name}.py"))
        return made[name]

    yield start
    for one in made.values():
        one.close()


def trials(op, engine, seeds=range(4)):
    spec = LIBRARY.spec(op)
    target = Target(spec, LIBRARY.scheme(LIBRARY.schemes_for(spec, PLATFORM)[0]), PLATFORM)
    assert engine.supports(spec, target.scheme, PLATFORM) is None
    for seed in seeds:
        yield Trial(target, build_case(target, HashChoices(seed, {"data": "random", "tiles": "untiled"})), engine)


@pytest.mark.parametrize("op", OPERATORS)
def test_a_layer_that_is_read_back_gives_the_codes_of_the_platform(op, engine):
    compared = 0
    for made in trials(op, engine("compass_reader")):
        try:
            found = made.got
        except RefusedError:
            continue
        own = Trial(made.target, made.case, BuiltinEngine()).got
        assert np.array_equal(found, own), made.case
        assert not [verdict for verdict in judge(made, ("arithmetic", "accuracy", "engine")) if verdict.failing]
        compared += 1
    assert compared > 1


@pytest.mark.parametrize("op", ["fully_connected", "relu"])
def test_an_independent_reader_gives_the_same_codes(op, engine):
    compared = 0
    for made in trials(op, engine("compass_numpy"), range(8)):
        try:
            found = made.got
        except RefusedError:
            continue
        assert np.array_equal(found, Trial(made.target, made.case, BuiltinEngine()).got), made.case
        compared += 1
    assert compared > 3


def test_a_layer_of_another_platform_or_none_is_refused_with_the_reason():
    relu, scheme = LIBRARY.spec("relu"), LIBRARY.scheme("a8")
    assert "holds the numbers of compass" in model.supports(relu, scheme, LIBRARY.platform("ideal"), "")
    assert "has no layer of split" in model.supports(LIBRARY.spec("split"), scheme, PLATFORM, "")
