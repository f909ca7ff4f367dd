"""Models of shared forms mean the same to ONNX's reference evaluator and to ONNX Runtime."""

from pathlib import Path

import numpy as np
import pytest

from quantizer.conformance.generation.builder import build_case
from quantizer.conformance.generation.choice_sources import HashChoices
from quantizer.conformance.judging.judge import judge
from quantizer.conformance.target import Target
from quantizer.conformance.trials.trial import Trial
from quantizer.core.library import load_library
from quantizer.ops import load_built_ins
from quantizer.runtime.engines.catalogue import chosen
from quantizer.runtime.engines.external import ExternalEngine
from quantizer.runtime.engines.forms import onnx_qdq
from quantizer.runtime.engines.process import serving

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
load_built_ins()
LIBRARY = load_library()
ORT = " ".join(serving(str(Path(__file__).parent / "workers" / "ort_qdq.py")))
OPERATORS = (
    "conv2d", "depthwise_conv2d", "conv_transpose2d", "fully_connected", "matmul", "add", "mul", "sub", "relu", "sigmoid",
    "tanh", "softmax", "avg_pool2d", "max_pool2d", "global_avg_pool2d", "concat", "transpose", "pad", "reshape", "gather",
    "argmax", "reduce_mean", "reduce_sum", "leaky_relu", "clip", "slice", "where", "quantize", "maximum",
)  # fmt: skip


@pytest.fixture(scope="module")
def pair():
    made = ExternalEngine(chosen("onnx_reference")), ExternalEngine(chosen("", ORT))
    yield made
    for engine in made:
        engine.close()


def trial(op, seed, engine):
    spec = LIBRARY.spec(op)
    platform = LIBRARY.platform("float32_any_order")
    target = Target(spec, LIBRARY.scheme(LIBRARY.schemes_for(spec, platform)[0]), platform)
    return Trial(target, build_case(target, HashChoices(seed, {"data": "random"})), engine)


@pytest.mark.parametrize("op", OPERATORS)
def test_both_engines_give_codes_within_the_intervals(op, pair):
    compared = 0
    for engine in pair:
        for seed in range(2):
            made = trial(op, seed, engine)
            found = {v.check: v for v in judge(made, ("float", "arithmetic", "accuracy"))}
            assert not [v for v in found.values() if v.failing], (engine.name, seed, found)
            compared += found["arithmetic"].elements if "arithmetic" in found else 0
    assert compared


def test_every_operator_of_the_form_has_a_spec():
    assert set(onnx_qdq.NODES) <= set(LIBRARY.specs)


def test_an_output_declares_its_type_and_shape(pair):
    made = trial("add", 0, pair[0])
    lowered = onnx_qdq.lower(made.call, made.codes, made.parameters, "")
    ((kind, shape),) = lowered.job.declared
    assert (kind, shape) == ("int8", made.output_shape) and np.dtype(kind) == np.int8
