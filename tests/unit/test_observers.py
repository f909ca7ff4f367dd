"""Observers, biases and learned steps: hand values, and each observer where it is the right one."""

from __future__ import annotations

import math

import pytest
import torch
from test_qdq import network, numbers

from quantizer.calibration.observers import OWN, Codes, observer
from quantizer.core.errors import GraphError, UnsupportedError
from quantizer.ir.formats.onnx import load
from quantizer.numerics.quantize import dequantize
from quantizer.runtime.integer import integer_graph
from quantizer.runtime.integer_executor import IntegerExecutor
from quantizer.runtime.lsq import LearnedStep
from quantizer.runtime.qdq import export_qdq
from quantizer.runtime.quantization import dispatch_graph, quantize_graph
from quantizer.runtime.setting import INT8, Setting
from quantizer.runtime.tensor_config import QuantizationProperty, QuantizationStates, create_default_quant_config
from quantizer.runtime.torch_executor import TorchExecutor

P = QuantizationProperty
SIGNED = Codes(-128, 127, symmetric=True)
ZERO_POINT = Codes(-128, 127, symmetric=False)
SYMMETRIC = P.PER_TENSOR | P.LINEAR | P.SYMMETRICAL
FLOATING = P.PER_TENSOR | P.FLOATING | P.SYMMETRICAL | P.POWER_OF_2


def found(name, codes, *batches):
    kept = observer(name, codes)
    for number in range(kept.passes):
        for batch in batches:
            kept.observe(batch, number)
    return [end.tolist() for end in kept.ends()]


def error(values, low, high, codes):
    config = create_default_quant_config(
        policy=P.PER_TENSOR | P.LINEAR | (P.SYMMETRICAL if codes.symmetric else P.ASYMMETRICAL)
    )
    config.calibrate(torch.tensor(low), torch.tensor(high))
    return float(((config.quantize(values.double()) - values.double()) ** 2).sum())


def test_minmax_returns_extremes_over_batches_and_per_channel():
    first, second = torch.tensor([[1.0, -2.0], [3.0, 0.5]]), torch.tensor([[4.0, 0.0], [-1.0, 0.25]])
    assert found("minmax", ZERO_POINT, first, second) == [-2.0, 4.0]
    assert found("minmax", Codes(-127, 127, symmetric=True, axis=1), first, second) == [[-1.0, -2.0], [4.0, 0.5]]


@pytest.mark.parametrize(("dtype", "values"), [(torch.float32, [2e38, 3e38]), (torch.float16, [40000.0, 50000.0])])
def test_minmax_takes_finite_values_whose_sum_overflows(dtype, values):
    kept = observer("minmax", ZERO_POINT)
    kept.observe(torch.tensor(values, dtype=dtype))
    assert [float(end) for end in kept.ends()] == torch.tensor(values, dtype=dtype).tolist()


def test_percentile_is_the_mean_over_batches_of_a_rank():
    """Of 20001 values 0.9999 is rank 19999: the two largest are left out."""
    low, high = found("percentile", ZERO_POINT, torch.arange(20001.0), torch.arange(20001.0) + 10)
    assert (low, high) == ((2 + 12) / 2, (19998 + 20008) / 2)
    assert found("percentile", ZERO_POINT, torch.tensor([-3.0, 5.0])) == [-3.0, 5.0]


@pytest.mark.parametrize("codes", [SIGNED, ZERO_POINT])
def test_mse_finds_no_worse_range_than_the_extremes(codes):
    """One value far away costs every other one its resolution."""
    values = torch.cat([numbers(20000, seed=3), torch.tensor([60.0])])
    low, high = found("mse", codes, values)
    worst = float(values.abs().max())
    assert error(values, low, high, codes) < error(
        values, -worst if codes.symmetric else float(values.min()), worst, codes
    )
    assert high < worst


def test_mse_of_evenly_spread_values_keeps_nearly_all():
    values = torch.linspace(-1, 1, 5000)
    low, high = found("mse", SIGNED, values)
    assert high >= 1 - 8 / 2048
    assert low == -high


def test_kl_clips_a_long_tail_and_keeps_a_plain_shape():
    low, high = found("kl", SIGNED, torch.cat([numbers(50000, seed=4), torch.tensor([100.0])]))
    assert low == -high
    assert 2 < high < 20
    flat = found("kl", SIGNED, torch.linspace(-1, 1, 40000))
    assert flat[1] > 0.9


def test_isotone_keeps_the_two_largest_distinct():
    """Rows whose two largest are close: the extremes' scale merges them, the chosen one does not."""
    rows = torch.stack([torch.tensor([-80.0, 0.0, 1.0 + i / 100, 1.3 + i / 100]) for i in range(10)])
    low, high = found("isotone", SIGNED, rows)
    config = create_default_quant_config(policy=SYMMETRIC)
    config.calibrate(torch.tensor(low), torch.tensor(high))
    codes = config.codes(rows)
    assert bool((codes[:, 3] > codes[:, 2]).all())
    config.calibrate(rows.min(), rows.max())
    assert not bool((config.codes(rows)[:, 3] > config.codes(rows)[:, 2]).all())


def test_strategies_of_the_compass_flow_are_observers_too():
    values = numbers(4096, seed=5)
    low, high = found("3std", SIGNED, values)
    assert high == pytest.approx(float(values.mean() + 3 * values.std()))
    assert found("0.5percentile", SIGNED, torch.tensor([-2.0, 4.0])) == [-1.0, 2.0]
    assert low < 0


@pytest.mark.parametrize(
    ("name", "codes", "text"),
    [
        ("minimax", SIGNED, "must be one of minmax"),
        ("kl", ZERO_POINT, "zero point must be 0"),
        ("isotone", ZERO_POINT, "zero point must be 0"),
        ("mse", Codes(-127, 127, symmetric=True, axis=0), "one range"),
    ],
)
def test_incompatible_observers_are_refused(name, codes, text):
    with pytest.raises(ValueError, match=text):
        observer(name, codes)


@pytest.mark.parametrize("name", OWN)
def test_every_observer_refuses_values_without_a_range(name):
    with pytest.raises(GraphError, match="no batch"):
        observer(name, SIGNED).ends()
    with pytest.raises(GraphError, match=r"NaN|nothing to compare"):
        found(name, SIGNED, torch.tensor([[1.0, math.nan]]))
    with pytest.raises(GraphError, match=r"at least one value|nothing to compare"):
        found(name, SIGNED, torch.zeros(2, 0))


@pytest.mark.parametrize("name", [*OWN, "10kld", "mean"])
def test_every_observer_calibrates_a_graph(name):
    setting = Setting(activations=SYMMETRIC, observer=name)
    graph = quantize_graph(dispatch_graph(network()), [[numbers(4, 3, 8, 8, seed=1)]], setting)
    x = numbers(2, 3, 8, 8, seed=2)
    exact, made = TorchExecutor(network(), platform="fp32")(x)[0], TorchExecutor(graph)(x)[0]
    assert not torch.equal(exact, made)
    assert float(((exact - made) ** 2).sum()) < float((exact**2).sum())


@pytest.mark.parametrize(("name", "scale"), [("constant", 1.0), ("floating", 4.0)])
def test_floating_policies_have_observers_that_choose_a_scale(name, scale):
    setting = Setting(activations=FLOATING, weights=FLOATING, observer=name, weight_observer="constant")
    data = numbers(4, 3, 8, 8, seed=1) * 1000
    graph = quantize_graph(dispatch_graph(network()), [[data]], setting)
    config = graph.node("conv").parameters.input_quantization_config[0]
    assert float(config.scale) >= scale if name == "floating" else float(config.scale) == scale
    with pytest.raises(ValueError, match="floating policy"):
        quantize_graph(dispatch_graph(network()), [[data]], Setting(observer=name))


def test_the_default_is_int8_and_named():
    config = quantize_graph(dispatch_graph(network()), [[numbers(1, 3, 8, 8)]]).node("conv").parameters
    x, w = config.input_quantization_config[:2]
    assert (x.num_of_bits, x.quant_min, x.quant_max, x.policy) == (8, -128, 127, INT8.activations)
    assert (w.num_of_bits, w.quant_min, w.quant_max, w.policy) == (8, -127, 127, INT8.weights)


def test_an_operation_without_quantized_tensors_is_an_error():
    graph = network()
    ints = dispatch_graph(graph, dispatching_table={n.name: "ort" if n.name == "flat" else "fp32" for n in graph.nodes})
    wide = [graph.tensor(name) for name in ("m", "f")]
    doubled = ints.with_tensors(*(type(t)(t.name, t.shape, graph.tensor("shape").dtype) for t in wide))
    with pytest.raises(GraphError, match=r"'flat' \(Reshape\) was dispatched to be quantized, and nothing of it is"):
        quantize_graph(doubled, [[numbers(1, 3, 8, 8)]])


def test_a_bias_has_the_scale_of_its_sums(tmp_path):
    data = [[numbers(4, 3, 8, 8, seed=1)]]
    graph = quantize_graph(dispatch_graph(network()), data, Setting(bias=True))
    x, w, b = graph.node("conv").parameters.input_quantization_config
    assert (b.num_of_bits, b.state) == (32, QuantizationStates.PASSIVE)
    assert torch.equal(b.scale, x.scale * w.scale)
    export_qdq(graph, tmp_path / "m.onnx")
    read = load(tmp_path / "m.onnx")
    assert read.tensor("b#codes").dtype.name == "int32"
    fed = numbers(2, 3, 8, 8, seed=2)
    assert torch.equal(TorchExecutor(read, platform="fp32")(fed)[0], TorchExecutor(graph)(fed)[0])
    made = integer_graph(graph, inputs={"x": fed})
    node = next(node for node in made.nodes if node.op == "conv2d")
    assert torch.equal(node.parameters.constants["bias"].codes, read.tensor("b#codes").data.long())
    assert IntegerExecutor(made).codes(fed)[0].dtype == torch.int64


def test_weights_of_seven_bits_saturate_nowhere(tmp_path):
    graph = quantize_graph(dispatch_graph(network()), [[numbers(4, 3, 8, 8, seed=1)]], Setting(reduce_range=True))
    export_qdq(graph, tmp_path / "m.onnx")
    codes = integer_graph(load(tmp_path / "m.onnx"), inputs={"x": torch.zeros(1, 3, 8, 8)}).tensor("w").data
    assert int(codes.abs().max()) == 63
    config = graph.node("conv").parameters.input_quantization_config[1]
    config.scale = config.scale / 4
    with pytest.raises(UnsupportedError, match=r"codes \[-63, 63\]"):
        export_qdq(graph, tmp_path / "m.onnx")


def learned(policy=SYMMETRIC, scale=0.5, **named):
    config = create_default_quant_config(policy=policy, num_of_bits=4, **named)
    config.scale, config.offset = torch.tensor(scale), torch.zeros_like(torch.tensor(scale), dtype=torch.int64)
    config.state = QuantizationStates.ACTIVATED
    return config


def test_gradients_of_a_learned_step_by_hand():
    """Scale 0.5, codes [-8, 7]: x / s is 0.6, -2.2, 20, -30; codes 1, -2, 7, -8."""
    config = learned()
    step, x = LearnedStep(config), torch.tensor([0.3, -1.1, 10.0, -15.0], requires_grad=True)
    y = step(x, config)
    assert y.tolist() == [0.5, -1.0, 3.5, -4.0]
    (y * torch.tensor([1.0, 2.0, 3.0, 4.0])).sum().backward()
    assert x.grad.tolist() == [1.0, 2.0, 0.0, 0.0]
    by_hand = (1 * (1 - 0.6) + 2 * (-2 + 2.2) + 3 * 7 + 4 * -8) / math.sqrt(4 * 7)
    assert step.scale.grad.item() == pytest.approx(by_hand)


def test_a_learned_step_per_channel_sums_gradients_per_channel():
    config = learned(P.PER_CHANNEL | P.LINEAR | P.SYMMETRICAL, [0.5, 2.0], channel_axis=1)
    step, x = LearnedStep(config), torch.tensor([[0.3, 3.0], [10.0, 100.0]])
    step(x, config).sum().backward()
    expected = [(1 - 0.6 + 7) / math.sqrt(2 * 7), (2 - 1.5 + 7) / math.sqrt(2 * 7)]
    assert step.scale.grad.tolist() == pytest.approx(expected)


def test_training_a_step_lowers_the_error_and_keeps_it_positive():
    graph = quantize_graph(dispatch_graph(network()), [[numbers(4, 3, 8, 8, seed=1)]], Setting(activations=SYMMETRIC))
    config = graph.node("conv").parameters.output_quantization_config[0]
    config.scale = config.scale * 40
    step, x = LearnedStep(config), numbers(4, 3, 8, 8, seed=1)
    executor, exact = TorchExecutor(graph), TorchExecutor(network(), platform="fp32").forward(x, ["c"])[0]
    executor.register_quantize_delegate(config, step)
    optimizer, losses = torch.optim.Adam([step.scale], lr=0.05), []
    for _ in range(60):
        optimizer.zero_grad()
        loss = ((executor.forward_with_gradient(x, ["c"])[0] - exact) ** 2).mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] / 4
    step.scale.data.neg_()
    step.finalize()
    assert float(config.scale) > 0


def test_a_step_that_cannot_be_learned_is_refused():
    passive = learned()
    passive.state = QuantizationStates.FP32
    for config in (passive, learned(SYMMETRIC | P.POWER_OF_2), learned(SYMMETRIC | P.DYNAMIC)):
        with pytest.raises(ValueError, match="a learned step needs"):
            LearnedStep(config)


@pytest.mark.parametrize(
    "policy", [SYMMETRIC, P.PER_TENSOR | P.LINEAR | P.ASYMMETRICAL, P.PER_CHANNEL | P.LINEAR | P.SYMMETRICAL]
)
@pytest.mark.parametrize("bits", [2, 8, 16])
def test_float32_values_equal_those_of_the_codes(policy, bits):
    """The quick way rounds as often as the exact one: its products of codes and scales have fewer bits than float64."""
    config = create_default_quant_config(
        policy=policy, num_of_bits=bits, channel_axis=1 if P.PER_CHANNEL in policy else None
    )
    values = numbers(40, 5, 3, seed=bits) * 3
    low, high = (
        (values.amin(dim=(0, 2)), values.amax(dim=(0, 2))) if config.channel_axis else (values.min(), values.max())
    )
    config.calibrate(low, high)
    ties = (torch.arange(-300.0, 300.0) + 0.5).reshape(40, 5, 3) * config.scale.max()
    odd = torch.tensor([math.inf, -math.inf, math.nan]).repeat(5).reshape(1, 5, 3)
    for given in (values, values * 10, ties, odd):
        expected = dequantize(config.codes(given), config.params).float()
        assert torch.equal(config.quantize(given), expected)


def test_a_changed_scale_takes_effect_immediately():
    """This includes constants that were quantized before, and scales that are changed in place."""
    graph = quantize_graph(dispatch_graph(network()), [[numbers(4, 3, 8, 8, seed=1)]])
    executor, x = TorchExecutor(graph), numbers(2, 3, 8, 8, seed=2)
    for config in graph.node("conv").parameters.input_quantization_config[:2]:
        before = executor(x)[0]
        config.scale.mul_(16)
        changed = executor(x)[0]
        assert not torch.equal(before, changed)
        assert torch.equal(changed, TorchExecutor(graph)(x)[0])
        config.scale = config.scale / 16
        assert torch.equal(executor(x)[0], before)
