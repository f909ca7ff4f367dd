"""Fixed-point modules: forwards, gradients, configurations, and what survives copying, saving, loading and compiling."""

from __future__ import annotations

import copy
import io
import json
import pickle
from typing import Any

import pytest
import sympy  # noqa: F401 - torch's compiler takes it; a second copy, after pytester has restored sys.modules, breaks it
import torch
import torch.nn.functional as F
import yaml
from nn_data import noise
from torch import Tensor, nn

from quantizer import nn as qnn
from quantizer.core.errors import FixError
from quantizer.nn import FIX_AUTO, FIX_FIXED, FIX_NONE, FixTopModule, default_fix_cfg, quantize_cfg


class Block(nn.Module):
    """A plain container: configurations and methods reach through it."""

    def __init__(self, **keys: Any) -> None:
        super().__init__()
        self.conv = qnn.Conv2d_fix(
            3,
            4,
            3,
            padding=1,
            nf_fix_params=default_fix_cfg(["weight", "bias"], group="batch", **keys),
            nf_fix_params_grad=default_fix_cfg(["weight"], **{"bitwidth": 6, **keys}),
        )
        self.bn = qnn.BatchNorm2d_fix(
            4, nf_fix_params=default_fix_cfg(["weight", "bias", "running_mean", "running_var"], **keys)
        )
        self.fix = qnn.Activation_fix(
            nf_fix_params=default_fix_cfg(["activation"], **keys),
            nf_fix_params_grad=default_fix_cfg(["activation"], **{"bitwidth": 10, **keys}),
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.fix(F.relu(self.bn(self.conv(x))))


class Net(FixTopModule):
    """Two blocks of which one is nested deeper, a folded convolution and a classifier."""

    def __init__(self, **keys: Any) -> None:
        super().__init__()
        self.fix = qnn.Activation_fix(nf_fix_params=default_fix_cfg(["activation"], **keys))
        self.block = Block(**keys)
        self.folded = qnn.ConvBN_fix(4, 5, 3, nf_fix_params=default_fix_cfg(["weight", "bias"], **keys))
        self.last = nn.Sequential(
            qnn.Activation_fix(nf_fix_params=default_fix_cfg(["activation"], **keys)),
            nn.Flatten(),
            qnn.Linear_fix(5 * 16, 3, nf_fix_params=default_fix_cfg(["weight", "bias"], **keys)),
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.last(F.relu(self.folded(self.block(self.fix(x)))))


def seeded(module: nn.Module) -> nn.Module:
    """Set all parameters from a hash."""
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            parameter.copy_(noise(name, *parameter.shape))
    return module


def net(**keys: Any) -> Net:
    made = seeded(Net(**keys))
    assert isinstance(made, Net)
    return made


X = noise("x", 4, 3, 6, 6) * 2


def trained(**keys: Any) -> Net:
    made = net(**keys)
    optimizer = torch.optim.SGD(made.parameters(), lr=0.05, momentum=0.9)
    for _ in range(3):
        optimizer.zero_grad()
        made(X).square().sum().backward()
        optimizer.step()
    return made


def test_a_forward_runs_on_quantized_parameters_and_gradients_reach_the_masters() -> None:
    conv = seeded(qnn.Conv2d_fix(3, 4, 3, nf_fix_params=default_fix_cfg(["weight", "bias"], bitwidth=5)))
    weight, bias = (quantize_cfg(t.detach(), 1.0, 5, FIX_AUTO)[0] for t in (conv.weight, conv.bias))
    expected = F.conv2d(X, weight.requires_grad_(), bias.requires_grad_())
    found = conv(X)
    assert torch.equal(found, expected)
    found.square().sum().backward()
    expected.square().sum().backward()
    assert isinstance(conv.weight, nn.Parameter)
    assert torch.equal(conv.weight.grad, weight.grad)
    assert torch.equal(conv.bias.grad, bias.grad)
    assert not torch.equal(conv.weight, weight)
    assert torch.equal(conv.last_fixed["weight"], weight)


def test_quantized_gradients_of_parameters_and_activations() -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.param = nn.Parameter(torch.zeros(1, 3))

        def forward(self, inputs: Tensor) -> Tensor:
            return F.linear(inputs, self.param)

    qnn.register_fix_module(Scaled)
    module = qnn.Scaled_fix(
        nf_fix_params=default_fix_cfg(["param"], bitwidth=2), nf_fix_params_grad=default_fix_cfg(["param"], bitwidth=2)
    )
    optimizer = torch.optim.SGD(module.parameters(), lr=1.0)
    module(torch.tensor([0.52, -0.27, 0.0])).backward()
    assert module.param.grad.tolist() == [[0.5, -0.5, 0.0]]
    assert module.nf_fix_params_grad["param"]["scale"].tolist() == [1.0]
    assert module.param_grad_fp_scale.tolist() == [1.0]
    optimizer.step()
    assert module.param.tolist() == [[-0.5, 0.5, 0.0]]
    act = qnn.Activation_fix(nf_fix_params={}, nf_fix_params_grad=default_fix_cfg(["activation"], bitwidth=2))
    x = torch.zeros(3, requires_grad=True)
    act(x).backward(torch.tensor([0.4, -0.27, 0.0]))
    assert x.grad is not None
    assert x.grad.tolist() == [0.25, -0.25, 0.0]


@pytest.mark.parametrize(
    ("data", "expected", "scale"),
    [([0.2513, -0.52, 0.0], [0.5, -0.5, 0.0], 1.0), ([0.2513, -0.5, 0.0], [0.25, -0.5, 0.0], 0.5)],
)
def test_forwards_that_the_original_tests_expect(data: list[float], expected: list[float], scale: float) -> None:
    module = qnn.Linear_fix(3, 1, bias=False, compat="nics_fix", nf_fix_params=default_fix_cfg(["weight"], bitwidth=2))
    with torch.no_grad():
        module.weight.copy_(torch.tensor([data]))
        assert module(torch.tensor([1.0, 1.0, 0.0])).tolist() == [sum(expected)]
    assert module.last_fixed["weight"].tolist() == [expected]
    assert module.nf_fix_params["weight"]["scale"].tolist() == [scale]


def test_any_torch_module_can_be_registered_and_recurrent_ones_see_their_weights() -> None:
    for cls, given, shape in ((nn.Conv1d, (3, 2, 3), (2, 3, 8)), (nn.PReLU, (), (4, 5)), (nn.LayerNorm, (8,), (2, 8))):
        fixed_cls = qnn.register_fix_module(cls)
        assert getattr(qnn, f"{cls.__name__}_fix") is fixed_cls
        module = seeded(fixed_cls(*given, nf_fix_params=default_fix_cfg(["weight"], bitwidth=3)))
        plain = cls(*given)
        plain.load_state_dict(
            {name: value for name, value in module.state_dict().items() if not name.endswith("fp_scale")}
        )
        with torch.no_grad():
            plain.weight.copy_(quantize_cfg(plain.weight, 1.0, 3, FIX_AUTO)[0])
        x = noise("registered", *shape)
        assert torch.equal(module(x), plain(x))
    lstm = seeded(
        qnn.register_fix_module(nn.LSTM)(
            3, 4, nf_fix_params=default_fix_cfg(["weight_ih_l0", "weight_hh_l0"], bitwidth=2)
        )
    )
    plain = nn.LSTM(3, 4)
    plain.load_state_dict({**{k: v for k, v in lstm.state_dict().items() if not k.endswith("fp_scale")}})
    with torch.no_grad():
        for name in ("weight_ih_l0", "weight_hh_l0"):
            getattr(plain, name).copy_(quantize_cfg(getattr(plain, name), 1.0, 2, FIX_AUTO)[0])
    x = noise("sequence", 5, 2, 3)
    assert torch.equal(lstm(x)[0], plain(x)[0])
    lstm(x)[0].sum().backward()
    assert lstm.weight_hh_l0.grad is not None


def test_batch_norm_keeps_float_statistics_and_uses_quantized_ones() -> None:
    names = ["running_mean", "running_var"]
    fixed = qnn.BatchNorm1d_fix(3, affine=False, momentum=0.5, nf_fix_params=default_fix_cfg(names, bitwidth=4))
    plain = nn.BatchNorm1d(3, affine=False, momentum=0.5)
    x = torch.tensor([[1.0, 1.0, 0.0], [2.0, 1.0, 2.0]])
    for _ in range(4):
        assert torch.equal(fixed(x), plain(x))
    assert torch.equal(fixed.running_mean, plain.running_mean)
    assert torch.equal(fixed.running_var, plain.running_var)
    with torch.no_grad():
        for name in names:
            getattr(plain, name).copy_(quantize_cfg(getattr(plain, name), 1.0, 4, FIX_AUTO)[0])
    assert torch.equal(fixed.eval()(x), plain.eval()(x))
    assert not torch.equal(fixed.running_mean, plain.running_mean)


def test_batch_norm_of_the_original_accumulates_on_quantized_statistics() -> None:
    names = ["running_mean", "running_var"]
    fixed = qnn.BatchNorm1d_fix(
        3, affine=False, momentum=0.5, compat="nics_fix", nf_fix_params=default_fix_cfg(names, bitwidth=2)
    )
    plain = nn.BatchNorm1d(3, affine=False, momentum=0.5)
    x = torch.tensor([[1.0, 1.0, 0.0], [2.0, 1.0, 2.0]])
    for training in (True, False, True, True):
        with torch.no_grad():
            for name in names:
                getattr(plain, name).copy_(quantize_cfg(getattr(plain, name), 1.0, 2, FIX_AUTO, compat="nics_fix")[0])
        assert torch.equal(fixed.train(training)(x), plain.train(training)(x))
        assert torch.equal(fixed.running_mean, plain.running_mean)
        assert torch.equal(fixed.running_var, plain.running_var)


def test_a_buffer_change_in_the_forward_is_applied_to_its_master() -> None:
    class Counter(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("total", torch.tensor([0.3]))

        def forward(self, x: Tensor) -> Tensor:
            self.total += x.sum()
            return x * self.total

    module = qnn.register_fix_module(Counter)(
        nf_fix_params={"total": {"method": FIX_FIXED, "bitwidth": 2, "scale": 2.0}}
    )
    assert module(torch.tensor([1.0])).tolist() == [1.0]
    assert module.total.tolist() == pytest.approx([1.3])


@pytest.mark.parametrize("training", [True, False])
def test_conv_bn_is_the_convolution_with_its_norm_folded(*, training: bool) -> None:
    module = seeded(qnn.ConvBN_fix(3, 4, 3, padding=1, nf_fix_params={})).train(training)
    conv, bn = nn.Conv2d(3, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4)
    conv.load_state_dict(module.conv.state_dict())
    bn.load_state_dict(module.bn.state_dict())
    expected = bn.train(training)(conv(X))
    found = module(X)
    bound = 64 * torch.finfo(torch.float32).eps * expected.abs().max()
    assert bool(((found - expected).abs() <= bound).all())
    assert torch.equal(module.bn.running_mean, bn.running_mean)
    assert torch.equal(module.bn.running_var, bn.running_var)


def test_conv_bn_of_the_original_divides_by_the_unbiased_variance_and_leaves_gradients() -> None:
    keys = default_fix_cfg(["weight", "bias"], bitwidth=4)
    module = seeded(qnn.ConvBN_fix(3, 4, 3, nf_fix_params=keys, nf_fix_params_grad=keys, compat="nics_fix"))
    made = F.conv2d(X, module.conv.weight)
    mean, var = made.mean((0, 2, 3)), made.var((0, 2, 3))
    weight = module.conv.weight * (module.bn.weight / torch.sqrt(var + 1e-5)).reshape(-1, 1, 1, 1)
    bias = module.bn.bias + (0.0 - mean) * module.bn.weight / torch.sqrt(var + 1e-5)
    weight, bias = (quantize_cfg(t, 1.0, 4, FIX_AUTO, compat="nics_fix")[0] for t in (weight, bias))
    assert torch.equal(module(X), F.conv2d(X, weight, bias))
    assert module.nf_fix_params_grad == {}


def test_configurations_survive_json_and_yaml_and_scales_count() -> None:
    source, target = trained(), net()
    stored = json.loads(
        json.dumps(
            {"data": source.get_fix_configs(data_only=True), "grad": source.get_fix_configs(grad=True, data_only=True)}
        )
    )
    stored = yaml.safe_load(yaml.safe_dump(stored))
    target.load_fix_configs(stored["data"])
    target.load_fix_configs(stored["grad"], grad=True)
    assert target.get_fix_configs(data_only=True) == source.get_fix_configs(data_only=True)
    assert target.get_fix_configs(grad=True, data_only=True) == source.get_fix_configs(grad=True, data_only=True)
    masters = {k: v for k, v in source.state_dict().items() if "_fp_" not in k}
    target.load_state_dict(masters, strict=False)
    for each in (source, target):
        each.eval()
        each.set_fix_method(FIX_FIXED)
    assert torch.equal(source(X), target(X))
    scale = float(source.block.fix.nf_fix_params["activation"]["scale"])
    assert scale not in (0.0, 1.0)
    assert source.get_fix_configs(data_only=True)["block"]["fix"]["activation"]["scale"] == scale


def test_live_configurations_change_the_next_forward() -> None:
    module = qnn.Activation_fix(nf_fix_params={"activation": {"method": 2, "bitwidth": 8, "scale": 1.0}})
    x = torch.tensor([0.3])
    live = module.nf_fix_params["activation"]
    live["bitwidth"] = 2
    assert module(x).tolist() == [0.5]
    live["scale"] = 0.25
    assert module(x).tolist() == [0.125]
    live["scale"].fill_(4.0)
    assert module(x).tolist() == [0.0]
    with pytest.raises(FixError, match="scale"):
        live["scale"] = -1.0
    assert (live["bitwidth"], float(live["scale"])) == (2, 4.0)


def test_a_forward_may_override_its_configuration() -> None:
    module = qnn.Linear_fix(2, 1, bias=False, nf_fix_params={"weight": {"method": 2, "bitwidth": 2, "scale": 1.0}})
    with torch.no_grad():
        module.weight.copy_(torch.tensor([[0.3, 0.7]]))
    x = torch.tensor([[1.0, 0.0]])
    assert module(x).item() == 0.5
    assert module({"inputs": x, "weight_fix": {"bitwidth": 4}}).item() == 0.25
    assert module({"inputs": x, "weight_fix": {"method": FIX_NONE}}).item() == pytest.approx(0.3)
    assert module(x).item() == 0.5


def methods(module: nn.Module, *, grad: bool = False) -> dict[str, int]:
    found = {}
    for path, inner in module.named_modules():
        for name, config in (inner.fix_configs(grad=grad) if isinstance(inner, qnn.Fixed) else {}).items():
            found[f"{path}.{name}"] = int(config.method)
    return found


def test_methods_apply_by_name_then_type_then_default() -> None:
    made = trained()
    made.set_fix_method(
        FIX_FIXED,
        method_by_type={"BatchNorm2d_fix": {"weight": FIX_NONE}, qnn.Activation_fix: FIX_NONE},
        method_by_name={"block.conv": {"weight": FIX_NONE}, "2": FIX_AUTO},
    )
    found = methods(made)
    assert found.pop("block.conv.weight") == 0
    assert found.pop("block.conv.bias") == 1  # settings of a named module that the call does not name stay as they are
    assert found.pop("block.bn.weight") == 0
    assert {found.pop(f"block.bn.{name}") for name in ("bias", "running_mean", "running_var")} == {1}
    assert {found.pop(key) for key in ("fix.activation", "block.fix.activation", "last.0.activation")} == {0}
    assert {found.pop(key) for key in ("last.2.weight", "last.2.bias")} == {1}
    assert found == {"folded.weight": 2, "folded.bias": 2}
    assert set(methods(made, grad=True).values()) == {1}
    made.set_fix_method(FIX_NONE, grad=True)
    assert set(methods(made, grad=True).values()) == {0}


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m: m.set_fix_method(FIX_FIXED), "FIXED needs a positive one. Run a forward with method AUTO first"),
        (
            lambda m: m.set_fix_method(method_by_name={"blok": 1}),
            "'blok': no fixed-point module. Did you mean 'block.bn'?",
        ),
        (
            lambda m: m.set_fix_method(method_by_name={"conv": {"wieght": 1}}),
            "'wieght' is not configured. Did you mean 'weight'?",
        ),
        (lambda m: m.set_fix_method(5), "method: must be one of NONE (0), AUTO (1), FIXED (2), got 5"),
        (lambda m: m.load_fix_configs({"blok": {}}), "'blok': no such module. Did you mean 'block'?"),
        (
            lambda m: m.load_fix_configs({"fix": {"activation": {"bitwidth": 99}}}),
            "bitwidth: must be an integer in [1, 24], got 99",
        ),
        (
            lambda m: m.load_fix_configs({"block": {"conv": {"weigth": {}}}}),
            "'weigth': no such module. Did you mean 'weight'?",
        ),
        (lambda m: m.load_fix_configs([1]), "must be a mapping of modules to configurations, got list"),
    ],
)
@pytest.mark.filterwarnings("ignore:.*keeps what it has")
def test_refused_configurations_change_nothing(call: Any, message: str) -> None:
    made = net()
    before = (made.get_fix_configs(data_only=True), methods(made))
    with pytest.raises(FixError) as caught:
        call(made)
    assert message in str(caught.value)
    assert (made.get_fix_configs(data_only=True), methods(made)) == before


def test_constructors_refuse_unknown_configurations() -> None:
    with pytest.raises(FixError, match="'wieght': nothing of that name can be quantized. Did you mean 'weight'"):
        qnn.Linear_fix(2, 2, nf_fix_params={"wieght": {}})
    with pytest.raises(FixError, match="'bits': no such key. Known: scale, method, bitwidth"):
        qnn.Linear_fix(2, 2, nf_fix_params={"weight": {"bits": 8}})
    with pytest.raises(FixError, match="gradient of 'running_mean'"):
        qnn.BatchNorm1d_fix(2, nf_fix_params={}, nf_fix_params_grad={"running_mean": {}})
    with pytest.raises(FixError, match="is not a class of torch modules"):
        qnn.register_fix_module(F.relu)  # type: ignore[arg-type]
    with pytest.raises(FixError, match="is a fixed-point module already"):
        qnn.register_fix_module(qnn.Linear_fix)
    with pytest.raises(TypeError, match="nf_fix_params"):
        qnn.Linear_fix(2, 2)
    with pytest.raises(AttributeError, match=r"register_fix_module on Conv9d first. Did you mean 'Conv.d_fix'"):
        _ = qnn.Conv9d_fix


def test_a_module_missing_in_the_configurations_keeps_its_own_with_a_warning() -> None:
    made = net()
    before = made.get_fix_configs(data_only=True)
    with pytest.warns(UserWarning, match="it keeps what it has"):
        made.load_fix_configs({"fix": {"activation": {"bitwidth": 4}}})
    after = made.get_fix_configs(data_only=True)
    assert after.pop("fix")["activation"]["bitwidth"] == 4
    before.pop("fix")
    assert after == before


def test_configurations_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    made = trained()
    made.print_fix_configs(prefix_spaces=1)
    lines = capsys.readouterr().out.splitlines()
    scale = float(made.block.fix.nf_fix_params["activation"]["scale"])
    place = next(i for i, line in enumerate(lines) if line == "   fix")
    assert lines[place + 1] == f"     activation   d: bitwidth:  8; scale: {scale:g}; method: 1 (AUTO)"
    assert lines[place + 2].startswith("                  g: bitwidth: 10; scale: ")
    scales = ", ".join(f"{float(s):g}" for s in made.block.conv.weight_fp_scale)
    assert f"     weight       d: bitwidth:  8; scale: {scales}; method: 1 (AUTO)" in lines
    assert scales.count(",") == 3


def test_the_fixed_state_is_what_the_last_forward_used() -> None:
    made = net()
    before = made.fix_state_dict()
    assert torch.equal(before["block.conv.weight"], made.block.conv.weight)
    made(X)
    state = made.fix_state_dict(prefix="net.")
    weight = made.block.conv.weight.detach()
    assert torch.equal(state["net.block.conv.weight"], quantize_cfg(weight, 1.0, 8, FIX_AUTO, group="batch")[0])
    assert torch.equal(state["net.folded.weight"], made.folded.last_fixed["weight"])
    assert "net.block.conv.weight_fp_scale" in state
    assert torch.equal(state["net.block.bn.num_batches_tracked"], torch.tensor(1))
    plain = FixTopModule.fix_state_dict(made.block)  # type: ignore[arg-type]
    assert torch.equal(plain["conv.weight"], state["net.block.conv.weight"])


def test_copies_pickles_and_saved_states_give_the_same_numbers() -> None:
    made = trained()
    copied = copy.deepcopy(made)
    unpickled = pickle.loads(pickle.dumps(made.folded))
    file = io.BytesIO()
    torch.save(made.state_dict(), file)
    file.seek(0)
    loaded = net()
    loaded.load_state_dict(torch.load(file, weights_only=True))
    for each in (made, copied, loaded):
        each.eval()
    wanted = made(X)
    assert torch.equal(copied(X), wanted)
    assert torch.equal(loaded(X), wanted)
    y = noise("y", 2, 4, 5, 5)
    assert torch.equal(unpickled.eval()(y), made.folded(y))
    with torch.no_grad():
        copied.block.conv.weight.mul_(2)
        copied.block.conv.nf_fix_params["weight"]["scale"].fill_(9)
    assert torch.equal(made(X), wanted)
    assert 9.0 not in made.block.conv.weight_fp_scale.tolist()


def test_training_resumes_identically_from_a_checkpoint() -> None:
    def steps(made: Net, optimizer: torch.optim.Optimizer, count: int) -> list[float]:
        losses = []
        for _ in range(count):
            optimizer.zero_grad()
            loss = made(X).square().sum()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses

    keys = {"stochastic": True, "bitwidth": 4}
    first = net(**keys)
    optimizer = torch.optim.SGD(first.parameters(), lr=0.01, momentum=0.9)
    steps(first, optimizer, 3)
    file = io.BytesIO()
    torch.save({"model": first.state_dict(), "optimizer": optimizer.state_dict()}, file)
    wanted = steps(first, optimizer, 4)
    file.seek(0)
    state = torch.load(file, weights_only=True)
    second = net(**keys)
    second(X)
    resumed = torch.optim.SGD(second.parameters(), lr=0.01, momentum=0.9)
    second.load_state_dict(state["model"])
    second.load_fix_configs(first.get_fix_configs(data_only=True))
    resumed.load_state_dict(state["optimizer"])
    assert steps(second, resumed, 4) == wanted


def test_stochastic_modules_draw_new_noise_in_each_forward() -> None:
    act = qnn.Activation_fix(
        nf_fix_params={"activation": {"method": 2, "bitwidth": 4, "scale": 1.0, "stochastic": True, "seed": 3}}
    )
    x = torch.full((1000,), 0.31)
    draws = torch.stack([act(x) for _ in range(100)])
    part = 0.31 / 0.125 % 1
    assert len({tuple(row.tolist()) for row in draws}) == 100
    deviation = 0.125 * (part * (1 - part)) ** 0.5
    assert abs(float((draws.double() - 0.31).mean())) <= 4 * deviation / draws.numel() ** 0.5
    assert abs(float((draws.double() - 0.31).mean(0).max())) <= 6 * deviation / 10


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")  # torch's own compiler does it
def test_compiled_networks_train_the_same() -> None:
    torch._dynamo.reset()
    eager = seeded(Block())
    traced = copy.deepcopy(eager)
    compiled = torch.compile(traced, backend="aot_eager", fullgraph=True)
    for _ in range(2):
        a, b = eager(X), compiled(X)
        a.square().sum().backward()
        b.square().sum().backward()
    assert torch.equal(a, b)
    for (name, p), q in zip(eager.named_parameters(), traced.parameters(), strict=True):
        assert torch.equal(p.grad, q.grad), name  # type: ignore[arg-type]
    for (name, value), other in zip(eager.state_dict().items(), traced.state_dict().values(), strict=True):
        assert torch.equal(value, other), name


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
def test_compiled_stochastic_rounding_draws_the_same() -> None:
    torch._dynamo.reset()
    keys = default_fix_cfg(["activation"], stochastic=True, seed=5, zero_point=True, bitwidth=4)
    eager = qnn.Activation_fix(nf_fix_params=keys)
    traced = copy.deepcopy(eager)
    compiled = torch.compile(traced, backend="eager", fullgraph=True)
    for _ in range(3):
        assert torch.equal(eager(X), compiled(X))
    assert traced.activation_fp_draws.item() == eager.activation_fp_draws.item() == 8
