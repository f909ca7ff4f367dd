"""AIPUBuilder-style plugins in all checks: correct ones pass, and the original's flow around them applies."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from textwrap import dedent

import numpy as np
import pytest
import torch
from plugin_sandbox import failing, fails, failures, open_library, sandbox, target, trials, verdicts, write

from quantizer.conformance.judging.judge import judge
from quantizer.conformance.run.plugin_coverage import account
from quantizer.conformance.trials.trial import Trial
from quantizer.core.dtypes import DTYPES
from quantizer.core.errors import PluginError
from quantizer.core.library import load_library
from quantizer.core.record import CheckRecord, Record
from quantizer.ir.graph import Tensor as GraphTensor
from quantizer.ops import REGISTRY
from quantizer.plugins import bridge, loading
from quantizer.plugins.aipu.node import PyNode
from quantizer.plugins.aipu.optypes import OpType
from quantizer.plugins.aipu.registration import LayerFunction
from quantizer.plugins.aipu.tensor import PyTensor
from quantizer.plugins.discovery import load_plugins
from quantizer.plugins.flow import PluginForward
from quantizer.plugins.layer import Layer
from quantizer.plugins.layer_parameters import LAYER_ATTRS
from quantizer.plugins.rebuild import rebuilt
from quantizer.runtime.engines.builtin import BuiltinEngine

EXAMPLE = Path(__file__).parents[2] / "examples" / "third_party_plugin"

CONV_FORWARD = dedent(
    """
    import torch.nn.functional as F

    @op_register(OpType.Convolution, '2.0')
    def conv_forward(self, *args):
        inp, out = self.inputs[0], self.outputs[0]
        x, w, b = inp.betensor, self.get_constant('weights').betensor, self.get_constant('biases').betensor
        outside = 0.0
        if self.quantized:
            x, w, b, outside = x.double(), w.double(), b.double(), -float(inp.zerop)
        sides = [self.get_param('pad_' + side) for side in ('left', 'right', 'top', 'bottom')]
        steps = [(self.get_param(f'{key}_y'), self.get_param(f'{key}_x')) for key in ('stride', 'dilation')]
        padded = F.pad(nhwc2nchw(x), sides, value=outside)
        y = nchw2nhwc(F.conv2d(padded, nhwc2nchw(w), b, steps[0], 0, steps[1], self.get_param('group')))
        if self.quantized:
            numbers = [
                self.constants[key].betensor if key in self.constants else self.get_param(key + '_value')
                for key in ('scale', 'shift')
            ]
            y = linear_requantize(y, *numbers, out.zerop, out.qmin, out.qmax)
        out.betensor = y
    """
)
CONV_QUANTIZE = dedent(
    """
    @quant_register(OpType.Convolution, '2.0')
    def conv_quantize(self, *args):
        inp, out = self.inputs[0], self.outputs[0]
        w, b = self.constants['weights'], self.constants['biases']
        channels, group = w.shape[0], self.get_param('group')
        out.qbits = self.get_attrs('q_bits_activation')
        out.scale, out.zerop, out.qmin, out.qmax, out.dtype = get_linear_quant_params_from_tensor(
            out, self.get_attrs('q_mode_activation'), out.qbits, is_signed=True)
        mode, w.qbits = self.get_attrs('q_mode_weight'), self.get_attrs('q_bits_weight')
        if group > 1 and QuantMode.is_per_tensor(mode):
            mode, each = QuantMode.to_per_channel(mode), channels // group
            w.min_key_axis = w.min_key_axis.reshape(group, each).amin(1).repeat_interleave(each)
            w.max_key_axis = w.max_key_axis.reshape(group, each).amax(1).repeat_interleave(each)
        w.scale, w.zerop, w.qmin, w.qmax, w.dtype = get_linear_quant_params_from_tensor(w, mode, w.qbits, is_signed=True)
        w.betensor = linear_quantize_clip(
            w.betensor, w.scale.expand(channels), w.zerop.expand(channels), w.qmin, w.qmax, key_axis=0)
        m, m_type, n, n_type = get_scale_approximation_params(out.scale / (inp.scale * w.scale.expand(channels)), 15)
        self.constants['scale'] = PyTensor(self.name + '/scale', m.numpy().astype(dtype2nptype(m_type)))
        self.constants['shift'] = PyTensor(self.name + '/shift', n.numpy().astype(dtype2nptype(n_type)))
        b.scale, b.zerop, b.qbits = inp.scale * w.scale, 0, self.get_attrs('q_bits_bias')
        (b.qmin, b.qmax), b.dtype = bits2range(b.qbits, True), bits2dtype(b.qbits, True)
        b.betensor = linear_quantize_clip(b.betensor, b.scale, b.zerop, b.qmin, b.qmax)
        b.betensor += inp.zerop * w.betensor.reshape(channels, -1).sum(1)
        out.qinvariant = w.qinvariant = b.qinvariant = False
    """
)
CONV = CONV_FORWARD + CONV_QUANTIZE
CASES = 12
"""Generated cases on which a right function is judged."""
CONV_SCHEMES = ["w8a8", "w8a8s", "w8pta8", "w8fulla8s", "w4a8", "w8a16", "w16a16"]


@pytest.fixture(autouse=True)
def alone(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.set_num_threads(1)
    with sandbox():
        yield


def passes(verdict) -> bool:
    """Return whether a check passes, or fails only by the declared cost of the platform's zero points."""
    return verdict.status == "pass" or verdict.reason.startswith("clamped_zero_point: ")


# -- replacing a built-in ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", CONV_SCHEMES)
def test_a_right_convolution_with_its_own_shifts_passes_every_check(tmp_path, scheme):
    library = open_library(write(tmp_path, "conv.py", CONV))
    found = verdicts(target(library, "conv2d", scheme), CASES)
    assert [str(verdict) for verdict in found if verdict.failing] == []
    for check in ("parameters", "float", "arithmetic", "round_trip", "repeat", "properties"):
        assert sum(v.check == check and passes(v) for v in found) == CASES
    assert all(v.width <= 1 for v in found if v.check == "arithmetic")
    assert all(v.status == "inconclusive" for v in found if v.check == "exact")


FAULTS = {
    "one code up": ("y = linear_requantize(y,", "y = 1 + linear_requantize(y,", "arithmetic", "y"),
    "rounds down": ("y = linear_requantize(y, *numbers,", "y = linear_requantize((y * numbers[0] * 0.5 ** numbers[1]).floor(), 1, 0,", "arithmetic", "y"),
    "no zero point outside": ("value=outside", "value=0.0", "arithmetic", "y"),
    "sides swapped": ("('left', 'right', 'top', 'bottom')", "('top', 'bottom', 'left', 'right')", "arithmetic", "y"),
    "float forward": ("out.betensor = y\n", "out.betensor = y if self.quantized else y * 1.00001\n", "float", "y"),
    "output scale": ("out.qbits, is_signed=True)\n", "out.qbits, is_signed=True)\n    out.scale = out.scale * 1.0001\n", "parameters", "y"),
    "zero point": ("out.qbits, is_signed=True)\n", "out.qbits, is_signed=True)\n    out.zerop = out.zerop + 1\n", "parameters", "y"),
    "zero point not absorbed": ("b.betensor += inp.zerop", "b.betensor += 0 * inp.zerop", "arithmetic", "y"),
    "one weight code": ("w.zerop.expand(channels), w.qmin, w.qmax, key_axis=0)\n", "w.zerop.expand(channels), w.qmin, w.qmax, key_axis=0)\n    w.betensor[0, 0, 0, 0] += 1 if w.betensor[0, 0, 0, 0] < 0 else -1\n", "parameters", "weight"),
    "multiplier": ("m.numpy().astype", "(m * 1.02).numpy().astype", "parameters", "multiplier[0]"),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_a_wrong_convolution_fails_the_expected_check(tmp_path, fault):
    right, wrong, check, tensor = FAULTS[fault]
    assert CONV.count(right) == 1
    library = open_library(write(tmp_path, "conv.py", CONV.replace(right, wrong)))
    worst = (v.worst for v in failures(target(library, "conv2d", "w8a8"), 30) if v.check == check and v.worst)
    assert any(w.tensor == tensor and (check != "arithmetic" or (len(w.index) == 4 and "code" in w.got)) for w in worst)


@pytest.mark.parametrize("text", [CONV_FORWARD, CONV_QUANTIZE], ids=["forward", "quantize"])
@pytest.mark.parametrize("scheme", ["w8a8", "w8pta8", "w16a16"])
def test_a_plugin_may_replace_only_one_of_both_functions(tmp_path, text, scheme):
    library = open_library(write(tmp_path, "conv.py", text))
    assert failing(target(library, "conv2d", scheme), CASES) == {}
    replaced = {entry.kind for entry in REGISTRY.replacements()}
    assert replaced == ({"reference", "quantized"} if text is CONV_FORWARD else {"quantize"})
    places = {kind: REGISTRY.find("conv2d", kind, "compass").origin for kind in ("reference", "quantized")}
    assert set(places.values()) == ({"conv.py"} if text is CONV_FORWARD else {"built-in"})


def test_other_platforms_keep_the_builtin_function(tmp_path):
    broken = CONV.replace("out.betensor = y\n", "out.betensor = y + 1\n")
    library = open_library(write(tmp_path, "conv.py", broken))
    assert set(failing(target(library, "conv2d", "w8a8"), 5)) >= {"float", "arithmetic"}
    assert failing(target(library, "conv2d", "w8a8", "ideal"), 5) == {}


ELTWISE = """
    @op_register([OpType.Eltwise], '1.0')
    def eltwise(self, *args):
        assert self.get_param('method') == 'ADD' and self.get_param('with_activation') == 'NONE'
        a, b, out = *self.inputs, self.outputs[0]
        if not self.quantized:
            out.betensor = a.betensor + b.betensor
            return
        m, ka, kb = self.get_param('scale_value')
        total = (a.betensor.double() + a.zerop) * ka + (b.betensor.double() + b.zerop) * kb
        out.betensor = linear_requantize(total, m, self.get_param('shift_value'), out.zerop, out.qmin, out.qmax)
"""


def test_a_forward_of_equal_version_replaces_a_built_in_sum(tmp_path):
    library = open_library(write(tmp_path, "add.py", ELTWISE))
    for scheme in ("a8", "a16"):
        assert failing(target(library, "add", scheme), CASES) == {}
    open_library()
    broken = ELTWISE.replace("* kb", "* ka").replace("'1.0'", "'1.1'")
    library = open_library(write(tmp_path, "worse.py", broken))
    assert fails(target(library, "add", "a8"), 10, "arithmetic")


SOFTMAX = """
    import math

    @op_register(OpType.Softmax, '1.0')
    def softmax_forward(self, *args):
        x, out, axis = self.inputs[0], self.outputs[0], self.get_param('axis')
        if not self.quantized:
            out.betensor = torch.softmax(x.betensor, axis)
            return
        distance = (x.betensor - x.betensor.amax(axis, keepdim=True)).long() + (1 << x.qbits) - 1
        share = lookup_lut_powerof2(distance, self.get_constant('lut').betensor, x.qbits, False, 32, False)
        m, n = self.get_param('scale_value'), self.get_param('shift_value')
        grown = 31 - math.ceil(math.log2(m))
        inverse = torch.div(torch.tensor(m << grown), share.sum(axis, keepdim=True), rounding_mode='floor')
        out.betensor = linear_requantize((share * inverse).double(), 1, n + grown, out.zerop, out.qmin, out.qmax)

    @quant_register(OpType.Softmax, '1.0')
    def softmax_quantize(self, *args):
        x, out = self.inputs[0], self.outputs[0]
        out.qbits, out.qinvariant = self.get_attrs('q_bits_activation'), False
        out.scale, out.zerop, out.qmin, out.qmax, out.dtype = get_linear_quant_params_from_tensor(
            out, self.get_attrs('q_mode_activation'), out.qbits, is_signed=False)
        size = 1 << self.get_attrs('lut_items_in_bits')
        distance = torch.linspace(1 - (1 << x.qbits), 0, steps=size).double()
        entries = (torch.exp(distance / x.scale) * ((1 << 20) - 1)).round()
        self.constants['lut'] = PyTensor('lut', entries.numpy().astype(dtype2nptype(Dtype.INT32)))
        self.params['scale_value'], _, self.params['shift_value'], _ = get_scale_approximation_params(
            float(out.scale), out.qbits)
"""


def test_a_softmax_with_its_table_is_judged_without_stages(tmp_path):
    library = open_library(write(tmp_path, "softmax.py", SOFTMAX))
    assert failing(target(library, "softmax", "a8"), CASES) == {}
    risen = SOFTMAX.replace("'1.0'", "'1.1'").replace("out.betensor = linear_", "out.betensor = 1 + linear_")
    library = open_library(write(tmp_path, "risen.py", risen))
    assert fails(target(library, "softmax", "a8"), 30, "arithmetic")
    wrong = SOFTMAX.replace("'1.0'", "'1.2'").replace(
        "        self.constants['lut'] =", "        entries[3:] += 2\n        self.constants['lut'] ="
    )
    library = open_library(write(tmp_path, "wrong.py", wrong))
    assert fails(target(library, "softmax", "a8"), 5, "parameters")


# -- new operators -------------------------------------------------------------------------------------------------


def test_the_third_party_example_passes(monkeypatch):
    monkeypatch.chdir(EXAMPLE)
    library = open_library(EXAMPLE / "src" / "vendor_ops" / "__init__.py", specs=(EXAMPLE / "op_specs",))
    for op, scheme, platform in (
        ("dummy_plus", "a8", "compass"),
        ("dummy_plus", "a16", "compass"),
        ("weighted_sum", "a8", "ideal"),
    ):
        found = verdicts(target(library, op, scheme, platform), CASES)
        assert [str(verdict) for verdict in found if verdict.failing] == []
        assert sum(v.check == "arithmetic" and v.status == "pass" and v.width <= 1 for v in found) == CASES


WRITTEN = ("quantize", "quantized", "reference")
"""Kinds of functions that a layer with a forward and a quantize function becomes."""


def test_each_function_of_a_new_layer_is_judged(monkeypatch):
    """The forward stood twice, and on platforms without an item of it nothing judged it: no statement conformed."""
    monkeypatch.chdir(EXAMPLE)
    library = open_library(EXAMPLE / "src" / "vendor_ops" / "__init__.py", specs=(EXAMPLE / "op_specs",))
    found = verdicts(target(library, "dummy_plus", "a8", "compass"), CASES)
    checks = {v.check: CheckRecord(passed=1) for v in found if v.status == "pass"}
    record = Record("dummy_plus-a8-compass", "dummy_plus", "cases", "passed", platform="compass", checks=checks)
    functions = [one for one in account([record], library.platforms, EXAMPLE) if one.name.startswith("dummy_plus")]
    assert {one.name.split()[0] for one in functions} == {f"dummy_plus.{kind}" for kind in WRITTEN}
    assert {one.standing for one in functions} == {"judged"}


@pytest.mark.parametrize(
    ("right", "wrong", "check"),
    [
        ("a.betensor + b.betensor", "a.betensor - b.betensor", "float"),
        ("out.zerop, out.qmin, out.qmax)\n\n\n@q", "out.zerop - 1, out.qmin, out.qmax)\n\n\n@q", "arithmetic"),
        ("+ b.zerop) * kb", "+ b.zerop) * ka", "arithmetic"),
        ("MULTIPLIER_BITS = 15", "MULTIPLIER_BITS = 5", "parameters"),
        ("FACTOR_LIMIT = 4095", "FACTOR_LIMIT = 63", "parameters"),
    ],
)
def test_the_third_party_example_broken_fails(tmp_path, right, wrong, check):
    text = (EXAMPLE / "plugin" / "aipubt_opt_op_dummyplus.py").read_text()
    assert text.count(right) == 1
    library = open_library(
        write(tmp_path, "d.py", text.replace(right, wrong), header=False), specs=(EXAMPLE / "op_specs",)
    )
    assert fails(target(library, "dummy_plus", "a8"), 20, check)


DUMMY_SPEC = """
    op: dummy_op
    version: "1.0"
    summary: Each element as it is.
    names: {compass: DummyOP}
    dims:
      shape: {type: shape, rank: [1, 4], min: 1, max: 6}
    attrs:
      gain: {min: 1, max: 3, default: 1}
      sides: {length: 2, min: 0, max: 2, default: [0, 1]}
    inputs:
      x: {axes: shape}
    outputs:
      y: {}
    shape:
      y: shape
    error_model: {kind: movement}
    quantization: {family: movement, outputs: {y: same_as(x)}}
    tiling:
      "*": {rule: independent}
"""
DUMMY = dedent(
    """
    register_optype('DummyOP')
    SEEN = []

    @op_register(OpType.DummyOP, '1024')
    def dummy_forward(self, *args):
        source, result = self.inputs[0], self.outputs[0]
        OPT_INFO(f'type={self.type}, name={self.name}, 100%')
        stored = self.constants['weights'] if 'weights' in self.constants else 0
        assert self.get_attrs('layer_id') and self.get_param('gain') >= 1 and len(self.get_param('sides')) == 2
        if self.quantized and self.get_param('whether_plus_one'):
            assert self.get_param('kinds') == [Dtype.INT8, Dtype.UINT16] and self.constants['lut'].betensor.numel() == 256
        result.betensor = source.betensor
        kept = source.betensor.float() + self.current_batch_size
        if len(self.placeholders) < 1:
            content = kept.cpu().numpy().astype(dtype2nptype(Dtype.FP32))
            self.placeholders.append(Tensor(self.name + '/inner_temp_vars', content))
        else:
            self.placeholders[0].betensor = kept

    @quant_register(OpType.DummyOP, '1024')
    def dummy_quantize(self, *args):
        source, result, kept = self.inputs[0], self.outputs[0], self.placeholders[0]
        for field in ('scale', 'zerop', 'qbits', 'dtype', 'qinvariant', 'qmin', 'qmax'):
            setattr(result, field, getattr(source, field))
        kept.qinvariant = False
        kept.qbits = self.get_attrs('q_bits_activation')
        kept.scale, kept.zerop, kept.qmin, kept.qmax, kept.dtype = get_linear_quant_params_from_tensor(
            kept, self.get_attrs('q_mode_activation'), kept.qbits, is_signed=True)
        SEEN.append((self.current_batch_size, float(kept.min), float(kept.max), kept.betensor.numel()))
        self.params['whether_plus_one'] = True
        self.params['kinds'] = [Dtype.INT8, Dtype.UINT16]
        self.params['free form key'] = 'text'
        self.constants['lut'] = Tensor(self.name + '/lut', torch.zeros(256).numpy().astype(dtype2nptype(Dtype.UINT16)))
    """
)


def dummy(tmp_path: Path, text: str = DUMMY, scheme: str = "a8"):
    spec = write(tmp_path, "specs/dummy_op.yaml", DUMMY_SPEC, header=False)
    return target(open_library(write(tmp_path, "dummy.py", text), specs=(spec,)), "dummy_op", scheme)


@pytest.mark.parametrize("scheme", ["a8", "a8s", "a16"])
def test_the_documents_example_runs_through_the_flow(tmp_path, scheme):
    judged = dummy(tmp_path, scheme=scheme)
    assert failing(judged, CASES) == {}


def test_placeholders_are_calibrated_on_samples_only(tmp_path):
    import sys

    judged = dummy(tmp_path)
    for trial in trials(judged, 10):
        seen = sys.modules["dummy"].SEEN
        seen.clear()
        _ = trial.parameters
        values, batch = trial.tensors["x"], trial.tensors["x"].shape[0]
        low, high = (values + batch).min().clamp(max=0), (values + batch).max().clamp(min=0)
        assert seen == [(batch, float(low), float(high), 0)] * 3


def test_results_of_the_quantize_function_reach_the_file_and_the_forward(tmp_path):
    trial = next(trials(dummy(tmp_path), 1))
    extra = dict(trial.parameters.extra)
    attrs = extra.pop(LAYER_ATTRS)
    lut = extra.pop("lut")
    assert extra == {"whether_plus_one": True, "kinds": (DTYPES["int8"], DTYPES["uint16"]), "free form key": "text"}
    assert isinstance(lut, GraphTensor)
    assert (lut.shape, lut.dtype, lut.data.dtype) == ((256,), DTYPES["uint16"], torch.uint16)
    assert attrs["q_mode_activation"] == "per_tensor_asymmetric"


def test_a_request_without_samples_cannot_calibrate_a_placeholder(tmp_path):
    judged = dummy(tmp_path)
    trial = next(trials(judged, 1))
    with pytest.raises(PluginError, match=r"placeholder .*inner_temp_vars.* brings no samples"):
        BuiltinEngine().quantize(judged.request(trial.case, {}))


STALE = DUMMY.replace("    else:\n        self.placeholders[0].betensor = kept\n", "")


def test_a_placeholder_not_written_in_the_forward_fails(tmp_path):
    assert STALE != DUMMY
    (verdict,) = judge(next(trials(dummy(tmp_path, STALE), 1)))
    assert verdict.check == "parameters"
    assert "each forward must write its betensor" in verdict.reason


FIELDS = ("dtype", "scale", "zerop", "qbits", "qinvariant")


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize(
    ("tensor", "kind"), [("result", "output 'y'"), ("kept", "placeholder 'dummy_op/inner_temp_vars'")]
)
def test_a_field_left_undecided_fails_only_parameters(tmp_path, field, tensor, kind):
    text = DUMMY.replace("    SEEN.append(", f"    {tensor}.{field} = None\n    SEEN.append(")
    (verdict,) = judge(next(trials(dummy(tmp_path, text), 1)))
    assert (verdict.check, verdict.status) == ("parameters", "fail")
    assert f"left {field} of {kind} undecided" in verdict.reason


@pytest.mark.parametrize("field", FIELDS)
def test_a_constant_left_undecided_fails_parameters(tmp_path, field):
    library = open_library(write(tmp_path, "conv.py", CONV + f"    w.{field} = None\n"))
    (verdict,) = judge(next(trials(target(library, "conv2d", "w8a8"), 1)))
    assert f"left {field} of constant 'weight' undecided" in verdict.reason


def test_code_limits_have_defaults_and_constants_need_a_dtype(tmp_path):
    judged = dummy(
        tmp_path, DUMMY.replace("    SEEN.append(", "    result.qmin = result.qmax = None\n    SEEN.append(")
    )
    assert failing(judged, 5) == {}
    text = DUMMY + "    self.constants['lut'].dtype = None\n"
    (verdict,) = judge(next(trials(dummy(tmp_path / "b", text.replace("1024", "1025")), 1)))
    assert "left dtype of constant 'lut' undecided" in verdict.reason


# -- what the original's flow does around a function ---------------------------------------------------------------


def test_a_function_with_hidden_state_differs_on_a_cloned_layer(tmp_path):
    text = DUMMY.replace("    SEEN.append(", "    result.scale = result.scale * (1 + len(SEEN))\n    SEEN.append(")
    (verdict,) = judge(next(trials(dummy(tmp_path, text), 1)))
    assert "a run on a copy of the layer gave another result" in verdict.reason
    assert "scale" in verdict.reason


def test_attrs_are_lost_when_the_layer_is_read_back(tmp_path):
    lasting = DUMMY.replace("self.params['whether_plus_one'] = True", "self.params['mine'] = 3").replace(
        "self.get_param('whether_plus_one')", "self.get_param('mine')"
    )
    assert failing(dummy(tmp_path, lasting), 3) == {}
    lost = lasting.replace("self.params['mine']", "self.attrs['mine']").replace(
        "get_param('mine')", "get_attrs('mine')"
    )
    found = failing(dummy(tmp_path / "b", lost.replace("1024", "1025")), 1)
    assert "no attribute 'mine'" in found["arithmetic"][0].reason
    assert "dummy.py:" in found["arithmetic"][0].reason


def test_attrs_set_in_a_forward_are_readable_in_quantize(tmp_path):
    text = DUMMY.replace(
        "result.betensor = source.betensor\n", "result.betensor = source.betensor\n    self.attrs['seen'] = 5\n"
    )
    text = text.replace("    SEEN.append(", "    assert self.get_attrs('seen') == 5\n    SEEN.append(")
    assert failing(dummy(tmp_path, text), 3) == {}


def test_inputs_changed_by_a_forward_stay_unchanged_outside(tmp_path):
    text = DUMMY.replace(
        "kept = source", "result.betensor = source.betensor.clone()\n    source.betensor += 7\n    kept = source"
    )
    judged = dummy(tmp_path, text)
    for trial in trials(judged, 5):
        before = {name: values.clone() for name, values in trial.tensors.items()}
        assert not [verdict for verdict in judge(trial) if verdict.failing]
        assert all(torch.equal(trial.tensors[name], values) for name, values in before.items())


def test_inputs_are_restored_and_outputs_may_be_written_in_place():
    def damage(node):
        node.outputs[0].betensor.copy_(node.inputs[0].betensor)
        node.inputs[0].betensor.fill_(9.0)

    function = LayerFunction(OpType.Silu, "forward", damage, (1,), __file__)
    node = PyNode("n", OpType.Silu)
    node.inputs, node.outputs = [PyTensor("x", torch.ones(2))], [PyTensor("y", torch.zeros(2))]
    PluginForward(function)(node)
    assert node.inputs[0].betensor.tolist() == [1, 1] == node.outputs[0].betensor.tolist()


def test_a_function_may_import_the_layer_when_it_runs(tmp_path):
    text = DUMMY.replace("    SEEN.append(", "    from AIPUBuilder.Optimizer.utils import bits2range\n    SEEN.append(")
    assert failing(dummy(tmp_path, text), 3) == {}


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("pass", r"wrote no output. Assign self.outputs\[i\].betensor"),
        (
            "result.betensor = source.betensor + 0.5 * self.quantized",
            r"output 'y'\[0.*\] holds -?\d+\.5: codes must be integers",
        ),
        ("self.get_constant('weights')", "no constant 'weights'"),
        ("{}['gone']", "KeyError: 'gone'"),
        ("import sys; sys.exit(2)", "SystemExit: 2"),
        ("OPT_FATAL('5% too wide')", "5% too wide"),
    ],
)
def test_an_error_in_a_forward_names_its_place(tmp_path, wrong, said):
    import re

    text = DUMMY.replace("    result.betensor = source.betensor\n", f"    {wrong}\n")
    found = judge(next(trials(dummy(tmp_path, text), 1)))
    reasons = [verdict.reason for verdict in found if verdict.failing]
    assert reasons, found
    assert all(re.search(said, reason) for reason in reasons)
    if "integers" not in said:
        assert all("dummy.py:" in reason for reason in reasons)


def test_values_that_a_file_cannot_hold_are_refused(tmp_path):
    for number, (wrong, said) in enumerate(
        [
            ("self.params['x'] = object()", "params['x'] holds <object"),
            ("self.params['x'] = None", "params['x'] holds None"),
            (
                "self.constants['lut'].betensor[3] = -1",
                "constant 'lut': values [-1, 0] do not fit Dtype.UINT16 [0, 65535]",
            ),
            (
                "self.outputs[0].scale = [1.0, 2.0]",
                "y: 2 scales and 1 zero points. One scale holds for the whole tensor.",
            ),
            ("self.outputs[0].scale = 0.0", "y: scale inf: must be positive and finite"),
            ("self.outputs[0].dtype = Dtype.FP16", "y: Dtype.FP16 holds no codes"),
        ]
    ):
        text = DUMMY.replace("1024", f"{1024 + number}") + f"    {wrong}\n"
        (verdict,) = judge(next(trials(dummy(tmp_path / str(number), text), 1)))
        assert said in verdict.reason


def test_a_layer_without_bias_holds_only_the_zero_point_term(tmp_path):
    library = open_library(write(tmp_path, "conv.py", CONV + "    b.betensor[-1] += 1\n"))
    judged = target(library, "conv2d", "w8a8")
    for trial in trials(judged, 12):
        (first, *_) = judge(trial)
        if "bias" in trial.case.shapes:
            assert first.worst.tensor == "bias"
        else:
            assert "a layer without a bias holds only zerop * sum(weights)" in first.reason
        assert first.failing


@pytest.mark.parametrize("source", ["b.betensor", "b.betensor.double()"])
def test_wide_biases_stay_float32_as_in_the_original(tmp_path, source):
    text = CONV.replace("linear_quantize_clip(b.betensor,", f"linear_quantize_clip({source},")
    library = open_library(write(tmp_path, "conv.py", text))
    wide = []
    for trial in trials(target(library, "conv2d", "w16a16"), 20):
        if "bias" in trial.case.shapes:
            codes = trial.parameters.constants["bias"].codes
            assert torch.equal(codes.float().double().long(), codes) or int(codes.abs().max()) >= 1 << 46
            wide.append(int(codes.abs().max()))
    assert max(wide) > 1 << 24


def test_depthwise_layers_are_always_per_channel_and_wide_activations_symmetric():
    from quantizer.plugins.layer import layer_attrs

    library = load_library()
    compass = library.platform("compass")
    attrs = layer_attrs(library.scheme("w8pta8"), compass, OpType.DepthwiseConv)
    assert attrs["q_mode_weight"] == attrs["q_mode_bias"] == "per_channel_symmetric_restricted_range"
    attrs = layer_attrs(library.scheme("w8pta8"), compass, OpType.Convolution)
    assert attrs["q_mode_weight"] == "per_tensor_symmetric_restricted_range"
    scheme = library.scheme("a16")
    wide = replace_part(scheme, symmetry="asymmetric")
    assert layer_attrs(wide, compass, OpType.Silu)["q_mode_activation"] == "per_tensor_symmetric_restricted_range"
    assert layer_attrs(scheme, compass, OpType.Silu)["lut_items_in_bits"] == 10


def replace_part(scheme, **changes):
    return scheme.model_copy(update={"activation": scheme.activation.model_copy(update=changes)})


# -- connecting ----------------------------------------------------------------------------------------------------


def test_a_layer_type_without_a_spec_is_an_error_with_remedy(tmp_path):
    load_plugins([write(tmp_path, "dummy.py", DUMMY)], {})
    with pytest.raises(
        PluginError, match=r"dummy\.py: dummy_forward .*no spec is a Compass DummyOP\. Write .*compass: DummyOP"
    ):
        bridge.connect(load_library().specs)


def test_connecting_again_adds_only_new_specs(tmp_path):
    load_plugins([write(tmp_path, "conv.py", CONV)], {})
    specs = load_library().specs
    assert len(bridge.connect(specs)) == 3
    assert bridge.connect(specs) == []
    again = {**specs, "conv2d_again": specs["conv2d"].model_copy(update={"op": "conv2d_again"})}
    assert {entry.op for entry in bridge.connect(again)} == {"conv2d_again"}
    assert len(loading.LAYERS) == 2


def test_forward_and_quantize_functions_are_versioned_separately(tmp_path):
    newer = CONV_QUANTIZE.replace("'2.0'", "'2.10'").replace(
        "out.qinvariant = w.q", "self.params['newer'] = 1; out.qinvariant = w.q"
    )
    library = open_library(write(tmp_path, "conv.py", CONV), write(tmp_path, "newer.py", newer))
    trial = next(trials(target(library, "conv2d", "w8a8"), 1))
    assert trial.parameters.extra["newer"] == 1
    assert not [verdict for verdict in judge(trial) if verdict.failing]
    assert REGISTRY.find("conv2d", "quantized", "compass").origin == "conv.py"


def test_tables_are_read_from_the_name_lut(tmp_path):
    spec = DUMMY_SPEC.replace("{kind: movement}", "{kind: monotone}").replace(", outputs: {y: same_as(x)}", "")
    write(tmp_path, "specs/dummy_op.yaml", spec, header=False)
    text = DUMMY.replace("torch.zeros(256)", "torch.arange(256)")
    judged = target(
        open_library(write(tmp_path, "dummy.py", text), specs=(tmp_path / "specs" / "dummy_op.yaml",)),
        "dummy_op",
        "a16",
    )
    parameters = next(trials(judged, 1)).parameters
    table = parameters.tables["lut"]
    assert (table.step, table.first, table.unit) == (
        256,
        parameters.inputs["x"].dtype.min,
        float(parameters.outputs["y"].scale),
    )
    assert table.entries.tolist() == list(range(256))


def test_numbers_per_branch_are_read_and_written_back(tmp_path):
    text = (EXAMPLE / "plugin" / "aipubt_opt_op_dummyplus.py").read_text()
    text = text.replace(
        'm, ka, kb = self.get_param("scale_value")\n    total = (a.betensor.double() + a.zerop) * ka + (b.betensor.double() + b.zerop) * kb',
        'm, (ka, kb), (na, nb) = 1, self.get_param("scale_value"), self.get_param("shift_value")\n'
        "    total = (a.betensor.double() + a.zerop) * ka * 0.5**na + (b.betensor.double() + b.zerop) * kb * 0.5**nb",
    ).replace('m, self.get_param("shift_value"), out', "m, 0, out")
    i = text.index("    factors = [")
    text = text[:i].replace("    largest = max(ratios)\n", "") + (
        "    pairs = [get_scale_approximation_params(ratio, 12) for ratio in ratios]\n"
        "    self.params['scale_value'] = [pair[0] for pair in pairs]\n"
        "    self.params['shift_value'] = [pair[2] for pair in pairs]\n"
    )
    library = open_library(write(tmp_path, "d.py", text, header=False), specs=(EXAMPLE / "op_specs",))
    assert failing(target(library, "dummy_plus", "a8"), 20) == {}


def test_one_multiplier_for_all_channels_stays_a_single_number(tmp_path):
    i, j = CONV.index("    self.constants['scale'] ="), CONV.index("    b.scale, b.zerop")
    text = CONV[:i] + "    self.params['scale_value'], self.params['shift_value'] = int(m[0]), int(n[0])\n" + CONV[j:]
    library = open_library(write(tmp_path, "conv.py", text))
    trial = next(t for t in trials(target(library, "conv2d", "w8a8"), 20) if t.output_shape[1] > 1)
    layer = Layer(trial.spec, OpType.Convolution)
    node = rebuilt(layer, trial.codes, trial.parameters, trial.case.attrs)
    assert trial.parameters.rescale is not None
    assert trial.parameters.rescale.mantissa.numel() == trial.output_shape[1]
    assert type(node.params["scale_value"]) is type(node.params["shift_value"]) is int
    assert "scale" not in node.constants


def test_numpy_numbers_in_params_become_plain_ones(tmp_path):
    text = DUMMY + "    self.params['n'] = np.int64(3)\n    self.params['t'] = torch.tensor([1.5, 2.0])\n"
    extra = next(trials(dummy(tmp_path, "import numpy as np\n" + text), 1)).parameters.extra
    assert (extra["n"], extra["t"]) == (3, (1.5, 2.0))
    assert type(extra["n"]) is int


def test_tiles_and_reversed_channels_reach_the_plugin(tmp_path):
    library = open_library(write(tmp_path, "conv.py", CONV))
    judged = target(library, "conv2d", "w8a8")
    trial = next(t for t in trials(judged, 60) if t.case.tiles.sizes.get("c_out", 99) < t.output_shape[1])
    assert {v.check for v in judge(trial) if v.status == "pass"} >= {"tiled", "properties"}
    rescale = trial.parameters.rescale
    assert rescale is not None
    assert rescale.mantissa.dim() == 1
    changed = replace(trial.parameters, rescale=replace(rescale, mantissa=rescale.mantissa * 0))
    got = BuiltinEngine().run(trial.call, trial.codes, changed).codes.numpy()
    assert np.array_equal(np.unique(got), [int(trial.output.zero_point)])


def test_a_trial_of_a_plugin_repeats(tmp_path):
    library = open_library(write(tmp_path, "conv.py", CONV))
    first, second = (next(trials(target(library, "conv2d", "w8a8"), 1, 3)) for _ in range(2))
    assert isinstance(first, Trial)
    assert np.array_equal(first.got, second.got)
