"""Plugins of layer types that several operators share: correct ones pass in any style, wrong ones fail.

aipu_twins holds one file for each family, written as a vendor would from the original's own rules and conventions.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from aipu_specs import SPECS
from plugin_sandbox import open_library, sandbox, target

from quantizer.conformance.failures.accepted import OF_READINGS, reading_lines
from quantizer.conformance.generation.builder import build_case, factors
from quantizer.conformance.generation.choice_sources import HashChoices
from quantizer.conformance.generation.examples import example_case
from quantizer.conformance.generation.hashing import key
from quantizer.conformance.judging.judge import judge
from quantizer.conformance.target import Target
from quantizer.conformance.trials.trial import Trial
from quantizer.ops import REGISTRY
from quantizer.runtime.engines.builtin import BuiltinEngine

TWINS = Path(__file__).parent / "aipu_twins"
OPERATORS = {
    "linear": "conv2d conv3d depthwise_conv2d conv_transpose2d fully_connected batch_norm",
    "sums": "matmul reduce_mean reduce_sum",
    "eltwise": "add sub mul maximum minimum",
    "activation": "relu sigmoid tanh leaky_relu clip",
    "pooling": "max_pool2d avg_pool2d global_avg_pool2d",
    "movement": "concat transpose pad split",
    "norm": "layer_norm",
    "vendor_ops": "v_gelu v_softplus v_row_mean v_join v_mix v_times",
}
FILES = {op: name for name, ops in OPERATORS.items() for op in ops.split()}
WEIGHTED = {*OPERATORS["linear"].split(), "layer_norm"}
Edit = tuple[str, str]


@pytest.fixture(autouse=True)
def alone(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.set_num_threads(1)
    with sandbox():
        yield


def library(folder: Path, name: str, edits: dict[str, list[Edit]] | None = None, drop: str = ""):
    """Write a file and what it imports, changed, and load the file."""
    for stem in ("vendor_base", name):
        text = (TWINS / f"{stem}.py").read_text()
        for right, wrong in (edits or {}).get(stem, []):
            assert right in text, right
            text = text.replace(right, wrong)
        lines = [line for line in text.splitlines(keepends=True) if not (drop and line.startswith(f"@{drop}("))]
        (folder / f"{stem}.py").write_text("".join(lines))
    if name != "vendor_ops":
        return open_library(folder)
    (folder / "specs").mkdir()
    for op, text in SPECS.items():
        (folder / "specs" / f"{op}.yaml").write_text(text)
    return open_library(folder, specs=(folder / "specs",))


def drawn(judged: Target, count: int, first: int = 0, **row: str):
    """Yield trials of cases; *row* holds requested bins, if the operator knows them."""
    known = factors(judged.spec, [judged.id])
    asked = {name: value for name, value in row.items() if value in known.get(name, ())}
    for index in range(first, first + count):
        yield Trial(judged, build_case(judged, HashChoices(key(index, judged.id), asked)), BuiltinEngine())


def reds(judged: Target, count: int, **row: str) -> Iterator[str]:
    """Yield failures case by case, so that a caller may stop at the first."""
    for trial in drawn(judged, count, **row):
        for v in judge(trial):
            if v.failing:
                yield f"{judged.id}: {v.check}: {v.reason} {v.worst}"


def red(judged: Target, count: int, **row: str) -> list[str]:
    return list(reds(judged, count, **row))


def schemes(op: str) -> tuple[str, ...]:
    if op in WEIGHTED:
        return ("w8a8", "w8pta8", "w16a16")
    return ("a8", "a8s", "a16")


# -- twins ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", OPERATORS)
def test_a_twin_of_every_method_of_a_layer_type_passes(tmp_path, name):
    found = library(tmp_path, name)
    for op in OPERATORS[name].split():
        entry = REGISTRY.find(op, "quantized", "compass")
        assert entry.origin == f"{name}.py"
        for scheme in schemes(op):
            assert red(target(found, op, scheme), 5) == []
        assert red(target(found, op, schemes(op)[0]), 2, data="ties", activation="relu6") == []


@pytest.mark.parametrize("name", OPERATORS)
def test_a_twin_passes_the_examples_including_scalars(tmp_path, name):
    found = library(tmp_path, name)
    for op in OPERATORS[name].split():
        judged = target(found, op, schemes(op)[0])
        scalars = [e for e in judged.spec.examples if [] in e.values.values()]
        for example in scalars or judged.spec.examples[:1]:
            trial = Trial(judged, example_case(judged, example), BuiltinEngine())
            assert [v.reason for v in judge(trial) if v.failing] == [], example.id


def test_a_twin_that_adds_the_zero_point_of_weights_passes_with_asymmetric_weights(tmp_path):
    given = "x, w, b = x.double(), w.double(), b.double()\n    y = x @ w.T"
    real = "x, b = x.double() + inp.zerop, b.double() - inp.zerop * w.double().sum(1)\n        w = w.double() + self.constants['weights'].broadcast_zerop\n    y = x @ w.T"
    edits = {"linear": [(given, real)]}
    assert red(target(library(tmp_path, "linear", edits), "fully_connected", "w8asyma8"), 12) == []


@pytest.mark.parametrize("drop", ["op_register", "quant_register"])
@pytest.mark.parametrize("op", ["leaky_relu", "clip", "pad", "concat", "avg_pool2d", "conv_transpose2d", "layer_norm"])
def test_a_single_plugin_function_works_with_the_builtin_counterpart(tmp_path, op, drop):
    found = library(tmp_path, FILES[op], drop=drop)
    for scheme in (schemes(op)[0], schemes(op)[-1]):
        assert red(target(found, op, scheme), 4) == []


# -- what a vendor may choose --------------------------------------------------------------------------------------

BASE_SHIFTS = ("OWN_SHIFTS = False", "OWN_SHIFTS = True")
PLAIN_BIAS = ("    b.betensor += (inp.zerop * w.betensor.reshape(rows, -1).sum(1)).repeat(repeat)\n", "")
POOLED = "y = linear_requantize(sums, m.reshape(area.shape), n.reshape(area.shape), out.zerop, out.qmin, out.qmax)"
CLIP_TWICE = """        y = linear_requantize(c, m, n - r, 0, self.get_param("clip_min"), self.get_param("clip_max"))
        out.betensor = linear_requantize(y, 1, r, out.zerop, out.qmin, out.qmax)"""
LEAKY_FIRST = "low = linear_requantize(c.clamp(max=0), slope, out.qbits, 0, -(2.0**47), 2.0**47 - 1)"
STAGE = '        self.placeholders.append(PyTensor(self.name + "/stage/{0}", {1}))\n'
VARIANTS: dict[str, tuple[str, dict[str, list[Edit]]]] = {
    "shifts for each channel": ("conv2d fully_connected conv_transpose2d", {"vendor_base": [BASE_SHIFTS]}),
    "15 bits under one shift": ("conv2d fully_connected", {"vendor_base": [("return self.get_attrs(\"multiplier_bits\")", "return 15")]}),
    "bias without the zero point": ("fully_connected", {"vendor_base": [PLAIN_BIAS], "linear": [
        ("        x, w, b = x.double(), w.double(), b.double()\n    y = x @ w.T", "        x, w, b = x.double() + inp.zerop, w.double(), b.double()\n    y = x @ w.T")]}),
    "bias of groups without the zero point": ("conv_transpose2d", {"vendor_base": [PLAIN_BIAS], "linear": [
        ("b.double() - (inp.zerop * w.reshape(w.shape[0], -1).sum(1)).repeat(g)", "b.double()")]}),
    "exact sums before an activation": ("fully_connected add", {"vendor_base": [
        ("return acc.float().clamp(min=0).double()", "return acc.clamp(min=0)")]}),
    "exact batch norm": ("batch_norm", {"linear": [("x.float().movedim(axis, -1) * w.float() + b.float()",
        "(x.double().movedim(axis, -1) * w.double() + b.double()).to(torch.float64 if self.quantized else torch.float32)")]}),
    "float32 matrix product": ("matmul", {"sums": [("(a.betensor.double() + a.zerop) @ (b.betensor.double() + b.zerop)",
        "((a.betensor.float() + a.zerop) @ (b.betensor.float() + b.zerop)).double()")]}),
    "division by the area": ("avg_pool2d global_avg_pool2d", {"pooling": [(POOLED, "y = linear_requantize(sums / area, 1, 0, out.zerop, out.qmin, out.qmax)"),
        ("linear_requantize(sums, int(m), int(n),", "linear_requantize(sums / (x.shape[1] * x.shape[2]), 1, 0,")]}),
    "15 bits of 1 / area": ("avg_pool2d global_avg_pool2d", {"pooling": [("1.0 / area.float(), 8", "1.0 / area.float(), 15"), ("x.shape[2]), 8)", "x.shape[2]), 15)")]}),
    "1 / area provided": ("global_avg_pool2d", {"pooling": [
        ("def globalpool_quantize(self, *args):\n", "def globalpool_quantize(self, *args):\n    put(self, *approx(torch.tensor(1.0) / math.prod(self.inputs[0].ir_shape[1:3]), 11))\n"),
        ("sums, int(m), int(n),", "sums, self.get_param('scale_value'), self.get_param('shift_value'),")]}),
    "leaky in one rounding": ("leaky_relu", {"activation": [(LEAKY_FIRST, "low = c.clamp(max=0) * slope * 2.0**-out.qbits")]}),
    "leaky with a shift of its own": ("leaky_relu", {"activation": [("* 2**out.qbits)", "* 2**20)\n        self.params['negative_slope_shift'] = 20"), ("slope, out.qbits", "slope, 20")]}),
    "leaky with a real slope": ("leaky_relu", {"activation": [(LEAKY_FIRST, "low = c.clamp(max=0) * slope"),
        ('self.params["negative_slope_value"] = k', "pass"), ('        self.params["negative_slope_type"] = range2dtype(min(0, k), max(0, k))[1]\n', "")]}),
    "clip in one rounding": ("clip", {"activation": [(CLIP_TWICE, """        y = (c * m * 2.0**-n).clamp(self.get_param("clip_min") / 2.0**r, self.get_param("clip_max") / 2.0**r)
        out.betensor = linear_requantize(y, 1, 0, out.zerop, out.qmin, out.qmax)""")]}),
    "stages shown": ("leaky_relu clip", {"activation": [
        ("        out.betensor = linear_requantize(c.clamp(min=0) + low", STAGE.format("negative", "low") + "        out.betensor = linear_requantize(c.clamp(min=0) + low"),
        ("        out.betensor = linear_requantize(y, 1, r", STAGE.format("relay", "y") + "        out.betensor = linear_requantize(y, 1, r")]}),
    "biases of its own": ("conv2d", {"linear": [("x, w, b, outside = x.double(), w.double(), b.double()", "x, w, b, outside = x.double(), w.double(), self.get_constant('own').betensor.double()"),
        ("def conv_quantize(self, *args):\n    linear_quantize(self)", "def conv_quantize(self, *args):\n    linear_quantize(self)\n    self.constants['own'] = PyTensor(self.name + '/own', self.constants['biases'].betensor.numpy().astype('int64'))")]}),
    "a larger table": ("sigmoid", {"activation": [('self.get_attrs("lut_items_in_bits")', "13")]}),
    "factors even for equal scales": ("sub maximum", {"eltwise": [("if float(ratio) <= 1.0 and int(a.zerop) == int(b.zerop):", "if False:")]}),
    "rescaled within five percent": ("concat", {"movement": [("<= 1.05 and", "<= 0 and")]}),
    "nothing provided": ("reduce_mean", {"sums": [("    put(self, *approx(ratio, out.qbits))\n", ""),
        ('linear_requantize(\n        acc, self.get_param("scale_value"), self.get_param("shift_value"),', "linear_requantize(\n        acc * float(out.scale) / float(inp.scale) / (x.numel() // max(1, acc.numel())), 1, 0,")]}),
}  # fmt: skip


READINGS = {
    "float32 matrix product": "float32_sums",
    "division by the area": "own_mean",
    "15 bits of 1 / area": "own_mean",
    "1 / area provided": "own_mean",
    "leaky with a real slope": "real_attributes",
    "leaky in one rounding": "undisclosed_stages",
    "nothing provided": "rounded_once",
}
"""Variant -> the reading without which the platform's arithmetic finds it wrong."""


@pytest.mark.parametrize("variant", VARIANTS)
def test_an_unusual_correct_plugin_passes_under_one_reading(tmp_path, variant):
    ops, edits = VARIANTS[variant]
    found: dict = {}
    for op in ops.split():
        folder = tmp_path / FILES[op]
        if FILES[op] not in found:
            folder.mkdir()
            own = {stem: changes for stem, changes in edits.items() if stem in ("vendor_base", FILES[op])}
            found[FILES[op]] = library(folder, FILES[op], own)
        for scheme in (schemes(op)[0], schemes(op)[-1]):
            judged = target(found[FILES[op]], op, scheme, reading=READINGS.get(variant))
            assert red(judged, 4) == []
            assert red(judged, 1, data="ties", activation="relu") == []
        if variant in READINGS:
            assert any(
                any(reds(target(found[FILES[op]], op, scheme), 40)) for scheme in (schemes(op)[0], schemes(op)[-1])
            )


@pytest.mark.parametrize("variant", READINGS)
def test_a_failure_names_the_reading_that_would_pass(tmp_path, variant):
    ops, edits = VARIANTS[variant]
    op = ops.split()[0]
    found = library(tmp_path, FILES[op], edits)
    for scheme in (schemes(op)[0], schemes(op)[-1]):
        for trial in drawn(target(found, op, scheme), 40):
            failing = [verdict for verdict in judge(trial) if verdict.failing]
            if any(verdict.check in OF_READINGS for verdict in failing):
                lines = reading_lines(trial, failing)
                assert any(f"--op-reading={op}/compass:{READINGS[variant]}, " in line for line in lines)
                return
    raise AssertionError("no case fails")


def test_each_shown_stage_is_judged_separately(tmp_path):
    found = library(tmp_path, "activation", VARIANTS["stages shown"][1])
    for op, stage in (("leaky_relu", "negative"), ("clip", "relay")):
        for trial in drawn(target(found, op, "a8"), 8):
            assert {v.width for v in judge(trial) if v.check == "arithmetic"} == {1.0}
            assert set(trial.outcome.stages) == {stage}


# -- faults --------------------------------------------------------------------------------------------------------

STAGED = VARIANTS["stages shown"][1]["activation"]
FAULTS: dict[str, tuple[str, str, list[Edit], str]] = {
    "activation missing in floats": ("add", "eltwise", [("act_float(self, FUNCS[method](a.betensor, b.betensor))", "FUNCS[method](a.betensor, b.betensor)")], "float"),
    "6 missing in floats": ("fully_connected", "vendor_base", [("return y.clamp(0, 6)", "return y.clamp(min=0)")], "float"),
    "factors swapped": ("maximum", "eltwise", [("p * ka, q * kb", "p * kb, q * ka")], "arithmetic"),
    "multiplier + 1 of a sum": ("sub", "eltwise", [("[int(m), int(k0)", "[int(m) + 1, int(k0)")], "parameters"),
    "another branch's scale": ("concat", "movement", [("m[i], n[i], out", "m[0], n[0], out")], "arithmetic"),
    "zero point of one branch": ("concat", "movement", [("t.betensor.double() + t.zerop", "t.betensor.double() + self.inputs[0].zerop")], "arithmetic"),
    "padding by code 0": ("avg_pool2d", "pooling", [("x.double() + inp.zerop if", "x.double() if")], "arithmetic"),
    "places outside counted": ("avg_pool2d", "pooling", [('if self.get_param("count_include_pad"):', "if True:")], "arithmetic"),
    "1 / area + 1": ("global_avg_pool2d", "pooling", [("int(m), int(n)", "int(m) + 1, int(n)")], "arithmetic"),
    "one code of a pooling": ("avg_pool2d", "pooling", [("    out.betensor = nchw2nhwc(y)\n\n", "    y = y + self.quantized * (torch.arange(y.numel()).reshape(y.shape) == 0)\n    out.betensor = nchw2nhwc(y)\n\n")], "arithmetic"),
    "half up in a pooling": ("avg_pool2d", "pooling", [(POOLED, "y = (sums * m.reshape(area.shape) * 2.0 ** -n.reshape(area.shape) + 0.5).floor().sub(out.zerop).clamp(out.qmin, out.qmax)")], "arithmetic"),
    "slope + 1": ("leaky_relu", "activation", [("* 2**out.qbits)", "* 2**out.qbits) + 1")], "parameters"),
    "first rounding down": ("leaky_relu", "activation", [*STAGED, (LEAKY_FIRST, "low = (c.clamp(max=0) * slope * 2.0**-out.qbits).floor()")], "arithmetic"),
    "upper limit + 1": ("clip", "activation", [("self.params[key] = int(", "self.params[key] = 256 * (key == 'clip_max') + int(")], "parameters"),
    "second rounding down": ("clip", "activation", [("linear_requantize(y, 1, r,", "linear_requantize((y * 2.0**-r).floor(), 1, 0,")], "arithmetic"),
    "table entry + 1": ("tanh", "activation", [("build_table(self).numpy()", "(build_table(self) + (torch.arange(256) == 99)).clamp(max=out.qmax).numpy()")], "parameters"),
    "crop swapped": ("conv_transpose2d", "linear", [('("top", "left", "bottom", "right"))', '("bottom", "left", "top", "right"))')], "arithmetic"),
    "bias of the first group": ("conv_transpose2d", "linear", [("b = b.double() -", "b = b.double()[: len(b) // g].repeat(g) -")], "arithmetic"),
    "value of padding + 1": ("pad", "movement", [('value=float(self.get_param("constant_value"))', 'value=float(self.get_param("constant_value")) + self.quantized')], "arithmetic"),
    "parts from the front": ("split", "movement", [("        start += size\n", "")], "arithmetic"),
    "another scale for a part": ("split", "movement", [("    for out in self.outputs:\n        copy_params(out, self.inputs[0])", "    for out in self.outputs:\n        copy_params(out, self.inputs[0])\n    self.outputs[-1].scale = out.scale * 2")], "parameters"),
    "terms + 1": ("reduce_mean", "sums", [("1.0 / math.prod(", "1.0 / (1 + math.prod("), ('self.get_param("axis")), dtype', 'self.get_param("axis"))), dtype')], "parameters"),
    "a table of 32 entries": ("tanh", "activation", [('self.get_attrs("lut_items_in_bits")', "5")], "parameters"),
    "entry of inverse roots": ("layer_norm", "norm", [("clamp(max=32767)", "clamp(max=32767) + (torch.arange(193) == 50)")], "parameters"),
    "entry of a vendor's table": ("v_gelu", "vendor_ops", [("    self.constants[\"lut\"] = Py", "    y[140] += 1 - 2 * (y[140] == out.qmax)\n    self.constants[\"lut\"] = Py")], "parameters"),
    "a vendor's mean, down": ("v_row_mean", "vendor_ops", [("linear_requantize(\n        acc, self.get_param(\"scale_value\"), self.get_param(\"shift_value\"), out.zerop, out.qmin, out.qmax\n    )\n\n\n@quant_register(OpType.VRowMean", "linear_requantize(\n        (acc * self.get_param(\"scale_value\") * 2.0 ** -self.get_param(\"shift_value\")).floor(), 1, 0, out.zerop, out.qmin, out.qmax\n    )\n\n\n@quant_register(OpType.VRowMean")], "arithmetic"),
    "a vendor's sign": ("v_gelu", "vendor_ops", [("float(out.min) < 0", "False")], "parameters"),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_a_wrong_plugin_fails_the_expected_check(tmp_path, fault):
    op, stem, edits, check = FAULTS[fault]
    scheme = "a16" if fault == "a table of 32 entries" else schemes(op)[0]
    judged = target(library(tmp_path, FILES[op], {stem: edits}), op, scheme)
    row = {"data": "ties"} if "half up" in fault else {"activation": "relu6"} if "missing" in fault else {}
    if fault == "places outside counted":
        row = {"count_include_pad": "left_out", "padding": "same"}
    for trial in drawn(judged, 40, **row):
        if any(verdict.failing and verdict.check == check for verdict in judge(trial)):
            return
    pytest.fail(f"{fault}: survives")


# -- what is provided ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("put", "get"),
    [
        ("[int(m[0])], [int(n[0])]", '*self.get_param("scale_value"), *self.get_param("shift_value")'),
        ("m[0].item(), n[0].numpy()", 'self.get_param("scale_value"), self.get_param("shift_value")'),
    ],
)
def test_a_single_number_may_be_written_in_any_form(tmp_path, put, get):
    edits = {
        "vendor_base": [("int(m[0]), int(n[0])", put)],
        "sums": [('z, self.get_param("scale_value"), self.get_param("shift_value")', f"z, {get}")],
    }
    assert red(target(library(tmp_path, "sums", edits), "matmul", "a8"), 4) == []


@pytest.mark.parametrize(
    ("op", "line", "said"),
    [
        ("add", 'self.params["scale_value"] = [1, 2]', "scale_value holds 2 numbers and shift_value 1 for 2 inputs"),
        ("max_pool2d", "self.outputs[0].zerop = None", "left zerop of output 'y' undecided"),
        ("sigmoid", "self.outputs[0].qinvariant = None", "left qinvariant of output 'y' undecided"),
        ("clip", 'del self.params["scale_value"]; self.outputs[0].dtype = None', "left dtype of output 'y' undecided"),
        (
            "concat",
            'self.params["scale_value"] = [1] * 7; self.params["shift_value"] = [0]',
            "scale_value holds 7 numbers",
        ),
        ("conv_transpose2d", 'self.constants["weights"].scale = [1.0] * 9', "9 scales"),
    ],
)
def test_missing_or_miscounted_parameters_are_reported(tmp_path, op, line, said):
    text = f"""

def then(function):
    def run(self, *args):
        function(self, *args)
        {line}
    return run
"""
    edits = {FILES[op]: [("from vendor_base import *\n", f"from vendor_base import *\n{text}")]}
    source = (TWINS / f"{FILES[op]}.py").read_text()
    kind = {"add": "Eltwise", "max_pool2d": "Pooling", "concat": "Concat", "conv_transpose2d": "ConvTranspose"}.get(
        op, "Activation"
    )
    registered = f'@quant_register(OpType.{kind}, "1.1")\n'
    assert registered in source
    edits[FILES[op]].append((registered, f"{registered}@then\n"))
    judged = target(library(tmp_path, FILES[op], edits), op, schemes(op)[0])
    reasons = [verdict.reason for trial in drawn(judged, 6) for verdict in judge(trial) if verdict.failing]
    assert any(said in reason for reason in reasons), reasons


def test_only_plugins_that_declare_relu_get_cases_with_relu(tmp_path):
    judged = target(library(tmp_path, "eltwise"), "add", "a8")
    assert {trial.case.activation for trial in drawn(judged, 30)} == {"none", "relu", "relu6"}
    (tmp_path / "plain").mkdir()
    text = (TWINS / "eltwise.py").read_text().replace("with_activation NONE, RELU", "").replace("'1.1'", "'1.2'")
    (tmp_path / "plain" / "eltwise_plain.py").write_text(text.replace('"1.1"', '"1.2"'))
    (tmp_path / "plain" / "vendor_base.py").write_text((TWINS / "vendor_base.py").read_text())
    judged = target(open_library(tmp_path / "plain"), "add", "a8")
    assert {trial.case.activation for trial in drawn(judged, 30)} == {"none"}
