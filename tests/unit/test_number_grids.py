"""Weights in blocks and E4M3FN activations on ideal: against ONNX Runtime, torch and rationals; what platforms refuse; planted faults."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch

from quantizer.conformance.faults import Subject, catalogue, kills
from quantizer.conformance.faults.cases import gate_cases
from quantizer.conformance.faults.grid_faults import GRIDS
from quantizer.conformance.generation.builder import build_case
from quantizer.conformance.generation.choice_sources import HashChoices
from quantizer.conformance.generation.examples import example_case
from quantizer.conformance.judging.judge import judge
from quantizer.conformance.setup.options import Options
from quantizer.conformance.setup.session import open_session
from quantizer.conformance.target import Target
from quantizer.conformance.trials.trial import Trial
from quantizer.core.dtypes import dtype
from quantizer.core.errors import CaseError, GraphError
from quantizer.core.formats import format_of
from quantizer.core.grid_rules import check_grids
from quantizer.core.roles import applies
from quantizer.core.schemes import Schemes, check_schemes
from quantizer.numerics.qparams import Parameters

SESSION = open_session(Options(root=Path.cwd()))
LIBRARY, IDEAL = SESSION.library, SESSION.library.platform("ideal")
IN_BLOCKS = [(op, scheme) for op in ("fully_connected", "matmul") for scheme in ("w4g4a8", "w4g128a8")]
IN_FLOATS = [(op, "a8e4m3") for op in ("relu", "add", "matmul")]
FLOAT = format_of("float8_e4m3fn")


def target(op, scheme, platform=IDEAL):
    return Target(LIBRARY.spec(op), LIBRARY.scheme(scheme), platform)


def trial(op, scheme, number=0, **row):
    known = target(op, scheme)
    return Trial(known, build_case(known, HashChoices(number, row)), SESSION.engine)


def wide(op):
    """Return a trial of 257 terms: two blocks of 128 and one of 1."""
    known = target(op, "w4g128a8")
    example = next(example for example in known.spec.examples if example.id == "wide_with_a_tail")
    return Trial(known, example_case(known, example), SESSION.engine)


def test_block_and_float8_schemes_exist_only_on_ideal():
    special = {name for name, scheme in LIBRARY.schemes.items() if scheme.grid != "uniform"}
    found = {
        (spec.op, name)
        for spec in LIBRARY.specs.values()
        for platform in LIBRARY.platforms.values()
        for name in LIBRARY.schemes_for(spec, platform)
        if name in special
    }
    assert found == {*IN_BLOCKS, *IN_FLOATS}
    others = [platform for name, platform in LIBRARY.platforms.items() if name != "ideal"]
    assert not any(special & {*platform.schemes, *platform.graph_schemes} for platform in others)


def test_the_second_matmul_operand_is_a_weight_only_under_blocks():
    assert target("matmul", "w4g4a8").spec.inputs["b"].role == "weight"
    assert target("matmul", "a8").spec is LIBRARY.spec("matmul")
    assert not applies(LIBRARY.spec("conv2d"), LIBRARY.scheme("w4g4a8"), IDEAL)


@pytest.mark.parametrize("op", ["fully_connected", "matmul"])
def test_block_scales_and_codes_equal_onnx_runtime(op):
    onnx, ort = pytest.importorskip("onnx"), pytest.importorskip("onnxruntime")
    found = wide(op)
    name = "weight" if op == "fully_connected" else "b"
    constant = found.parameters.constants[name]
    codes = constant.codes.numpy() if op == "fully_connected" else constant.codes.numpy().T  # [channels, 257]
    assert constant.params.scale.shape == (codes.shape[0], 3)
    scale = constant.params.scale.numpy().astype(np.float32)
    node = onnx.helper.make_node("DequantizeLinear", ["q", "s"], ["y"], axis=1, block_size=128)
    kinds = onnx.TensorProto
    graph = onnx.helper.make_graph(
        [node],
        "blocks",
        [
            onnx.helper.make_tensor_value_info("q", kinds.INT8, codes.shape),
            onnx.helper.make_tensor_value_info("s", kinds.FLOAT, scale.shape),
        ],
        [onnx.helper.make_tensor_value_info("y", kinds.FLOAT, codes.shape)],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 21)], ir_version=10)
    run = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (theirs,) = run.run(None, {"q": codes.astype(np.int8), "s": scale})
    ours = found.values[name].numpy() if op == "fully_connected" else found.values[name].numpy().T
    assert np.array_equal(ours.astype(np.float32), theirs)
    real = found.tensors[name].numpy() if op == "fully_connected" else found.tensors[name].numpy().T
    parts = [np.abs(real[:, start : start + 128]).max(1) for start in (0, 128, 256)]
    assert np.array_equal(scale, (np.stack(parts, 1).astype(np.float64) / 7).astype(np.float32))


def test_block_sum_codes_are_rationals_rounded_once():
    found = trial(
        "fully_connected",
        "w4g4a8",
        5,
        c_in="several",
        with_bias="yes",
        data="random",
        activation="none",
        tiles="untiled",
    )
    x, w = found.parameters.inputs["x"], found.parameters.constants["weight"]
    bias, y = found.parameters.constants["bias"], found.output
    rows, filters = found.codes["x"].tolist(), w.codes.tolist()
    for n, row in enumerate(rows):
        for o, weights in enumerate(filters):
            scales = [Fraction(float(s)) for s in w.params.scale[o]]
            total = sum(
                (scales[k // 4] * (row[k] - int(x.zero_point)) * weights[k] for k in range(len(row))), Fraction(0)
            )
            total += max(scales) * int(bias.codes[o])
            wanted = round(total * Fraction(float(x.scale)) / Fraction(float(y.scale))) + int(y.zero_point)
            assert found.got[n, o] == min(max(wanted, y.qmin), y.qmax)


def test_an_e4m3_matrix_product_equals_the_torch_kernel():
    draw = torch.Generator().manual_seed(3)  # values from 1/4 to 4, whose sums float32 holds
    codes = {
        name: torch.randint(40, 73, shape, generator=draw) * (1 - 2 * torch.randint(0, 2, shape, generator=draw))
        for name, shape in (("a", (16, 64)), ("b", (64, 16)))
    }
    bits = {
        name: (c.abs() | (c < 0).long() << 7).to(torch.uint8).view(torch.float8_e4m3fn) for name, c in codes.items()
    }
    one = torch.tensor(1.0)
    try:
        theirs = torch._scaled_mm(bits["a"], bits["b"].t().contiguous().t(), one, one, out_dtype=torch.float32)
    except (RuntimeError, NotImplementedError) as err:
        pytest.skip(f"torch has no such kernel here: {err}")
    exact = bits["a"].double() @ bits["b"].double()
    assert torch.equal(theirs.double(), exact)
    scale = 2.0 ** float(torch.log2(exact.abs().max() / 448).ceil())
    known = target("matmul", "a8e4m3")
    parameters = _parameters(known, {"a": 1.0, "b": 1.0, "y": scale}, {"a": (16, 64), "b": (64, 16)})
    got = SESSION.engine.run(_call(known), codes, parameters).codes
    wanted = (exact / scale).float().to(torch.float8_e4m3fn)
    assert torch.equal(torch.tensor(FLOAT.values)[got - FLOAT.first].double(), wanted.double())


@pytest.mark.parametrize("op", ["relu", "add"])
def test_relu_and_add_of_every_code_equal_ml_dtypes(op):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    every = torch.arange(FLOAT.first, FLOAT.last + 1)
    codes = (
        {"x": every}
        if op == "relu"
        else {"a": every[:, None].expand(253, 253), "b": every[None].expand(253, 253).contiguous()}
    )
    known = target(op, "a8e4m3")
    values = {name: torch.tensor(FLOAT.values, dtype=torch.float64)[c - FLOAT.first] for name, c in codes.items()}
    exact = values["x"].clamp(min=0) if op == "relu" else values["a"] * 0.5 + values["b"] * 4.0
    scales = {"x": 1.0} if op == "relu" else {"a": 0.5, "b": 4.0}
    for scale in (1.0, 8.0, 1024.0):
        parameters = _parameters(known, {**scales, "y": scale}, {name: tuple(c.shape) for name, c in codes.items()})
        got = SESSION.engine.run(_call(known), codes, parameters).codes.numpy()
        clipped = np.clip((exact / scale).numpy().astype(np.float32), -448, 448)
        assert np.array_equal(
            np.array(FLOAT.values)[got - FLOAT.first], clipped.astype(ml_dtypes.float8_e4m3fn).astype(np.float64)
        )


def _parameters(known: Target, scales: dict[str, float], shapes: dict[str, tuple[int, ...]]) -> Parameters:
    """Return what the rule provides for these scales: of ranges whose largest number is the largest value."""
    case = build_case(known, HashChoices(0, {"tiles": "untiled", "activation": "none"}))
    ranges = {name: (-448.0 * scale, 448.0 * scale) for name, scale in scales.items()}
    found = Trial(known, case.but(shapes=shapes, ranges=ranges), SESSION.engine).parameters
    assert {name: float(p.scale) for name, p in {**found.inputs, **found.outputs}.items()} == scales
    return found


def _call(known):
    case = build_case(known, HashChoices(0, {"tiles": "untiled", "activation": "none"}))
    return replace(Trial(known, case, SESSION.engine).call, activation="none")


@pytest.mark.parametrize(("op", "scheme"), [*IN_BLOCKS, *IN_FLOATS])
def test_faults_are_found_and_right_functions_pass(op: str, scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kills, "WITHIN", 0)
    monkeypatch.setattr(kills, "FURTHER", 0)
    known = target(op, scheme)
    cases = ((t, case) for t, case in gate_cases(SESSION, op, "ideal") if t.id == known.id)
    subject = Subject(SESSION, op, islice(cases, 9))
    names = {
        "rounding_half_up",
        "rounding_toward_zero",
        "one_code_up",
        "output_scale_next",
        *(fault.id for fault in GRIDS),
    }
    found = {f.id: subject.examine(f) for f in catalogue() if f.id in names and f.concerns(LIBRARY.spec(op))}
    assert not [name for name, one in found.items() if one.effect and not one.kills]
    assert not any(subject.alarms.values())
    own = "block" if scheme != "a8e4m3" else "float"
    assert sum(name.startswith(own) and bool(one.kills) for name, one in found.items()) >= 3


BLOCKS = (
    {"symmetry": "asymmetric"},
    {"rule": "power_of_two"},
    {"bits": 8, "block": 3},
    {"bits": 2, "block": 2},
    {"range": "full"},
)
FLOATS = ("float8_e5m2", "float6_e2m3fn", "float6_e3m2fn", "float4_e2m1fn")


@pytest.mark.parametrize("number", range(len(BLOCKS)))
@pytest.mark.parametrize("op", ["fully_connected", "matmul"])
def test_blocks_of_any_size_bits_and_symmetry_raise_no_alarm(op, number):
    scheme = LIBRARY.scheme("w4g4a8")
    scheme = scheme.model_copy(update={"weight": scheme.weight.model_copy(update=BLOCKS[number])})
    _no_alarm(Target(LIBRARY.spec(op), scheme, _rounding(("half_even", "half_away", "down")[number % 3])), number)


@pytest.mark.parametrize("number", range(len(FLOATS)))
@pytest.mark.parametrize("op", ["relu", "add", "matmul"])
def test_every_narrow_float_raises_no_alarm(op, number):
    part = LIBRARY.scheme("a8e4m3").activation.model_copy(
        update={"format": FLOATS[number], "bits": dtype(FLOATS[number]).bits}
    )
    scheme = LIBRARY.scheme("a8e4m3").model_copy(update={"activation": part})
    known = Target(LIBRARY.spec(op), scheme, _rounding(("half_even", "half_up", "toward_zero")[number % 3]))
    if not applies(known.spec, scheme, IDEAL):
        assert (op, FLOATS[number]) == ("matmul", "float8_e5m2")  # products of 64 bits
        return
    _no_alarm(known, number)


def _rounding(mode):
    return IDEAL.model_copy(update={"rounding": mode})


def _no_alarm(known, number):
    for data in ("ties", ("random", "saturation")[number % 2]):
        case = build_case(known, HashChoices(number, {"data": data}))
        assert not [verdict for verdict in judge(Trial(known, case, SESSION.engine)) if verdict.failing], case.to_json()


def test_a_platform_unfit_for_number_grids_is_refused():
    def findings(**changes):
        return [finding.text for finding in check_grids(IDEAL.model_copy(update=changes), LIBRARY.schemes)]

    assert findings() == []
    assert "'w4g128a8' has weights in blocks: only some families have them" in findings(scheme_families={})[0]
    assert "only `requantize: exact` computes; family rectifier has q31_double" in "".join(
        findings(requantize={"default": "exact", "rectifier": "q31_double"})
    )
    steps = IDEAL.parameters.model_copy(update={"scale": "float32_steps"})
    assert "have float32 scales" in findings(parameters=steps)[0]
    quantizer = IDEAL.quantizer.model_copy(update={"operation": "divide_float32"})
    assert "only the exact quantizer makes" in findings(quantizer=quantizer)[0]


def test_a_scheme_that_contradicts_itself_is_refused():
    raw = {
        "weights": {"w4": {"bits": 4, "granularity": "block"}, "w8": {"bits": 8, "block": 4}},
        "activations": {"a8": {"bits": 6, "format": "float8_e4m3fn"}},
    }
    texts = [finding.text for finding in check_schemes(Schemes.model_validate(raw), Schemes())]
    assert [text.split(".")[0] for text in texts] == [
        "must be given with granularity block, and only there",
        "must be given with granularity block, and only there",
        "float8_e4m3fn has 8 bits, got 6",
        "float8_e4m3fn has no zero point",
    ]


def test_an_operator_refuses_a_stored_case_of_an_unsupported_scheme():
    from quantizer.conformance.stored.fitting import target_of

    case = trial("relu", "a8e4m3").case
    with pytest.raises(CaseError, match="scheme 'a8e4m3': sigmoid has no such numbers on ideal"):
        target_of(LIBRARY, case.but(op="sigmoid"), "here")


def test_parameters_per_block_are_not_parameters_per_channel():
    params = wide("fully_connected").parameters.constants["weight"].params
    with pytest.raises(GraphError, match="parameters per block: this arithmetic knows one scale"):
        params.along(params.scale, 2)
    assert params.coarsest().scale.tolist() == params.scale.amax(1).tolist()


@pytest.mark.parametrize(("op", "scheme"), [("fully_connected", "w4g4a8"), ("add", "a8e4m3")])
def test_one_code_off_fails_arithmetic(op, scheme):
    found = trial(op, scheme, 3, data="random", tiles="untiled")
    codes = found.outcome.codes.clone()
    codes.view(-1)[0] += 1 if int(codes.view(-1)[0]) < found.output.qmax else -1
    found.outcome = replace(found.outcome, codes=codes)
    failing = {verdict.check for verdict in judge(found) if verdict.failing}
    assert "arithmetic" in failing
