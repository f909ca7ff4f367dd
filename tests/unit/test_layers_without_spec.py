"""Plugins written from the public document alone: its three listings with the repairs that they need, and layers without a spec."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import numpy as np
import pytest

from quantizer.ir.formats import compass

ROOT = Path(__file__).parents[2]
OPERATOR = """
from AIPUBuilder.Optimizer.framework import *
from AIPUBuilder.Optimizer.utils import *

register_optype('DummyOP')

@op_register(OpType.DummyOP, '1024')
def dummy_forward(self, *args):
    inp = self.inputs[0]
    out = self.outputs[0]
    w = self.constants['weights'] if 'weights' in self.constants else 0
    OPT_INFO('layer_type=%s, layer_name=%s' % (str(self.type), self.name))
    if self.name in ['name_of_layer_x', 'name_of_layer_y'] :
        print('never')
    if self.get_attrs('layer_id') in ['2', '4', '8'] :
        print('never')
    dummy_var = inp.betensor + self.current_batch_size
    if self.quantized :
        if self.get_param('whether_plus_one') :
            dummy_var += 1
    else :
        if self.get_param('whether_minus_one') :
            dummy_var -= 1
    out.betensor = inp.betensor if True else dummy_var
    if len(self.placeholders) < 1 :
        ph0 = Tensor(self.name+"/inner_temp_vars", (inp.betensor+1).cpu().numpy().astype(dtype2nptype(Dtype.FP32)))
        self.placeholders.append(ph0)
    else :
        self.placeholders[0].betensor = inp.betensor + 1

@quant_register(OpType.DummyOP, '1024')
def dummy_quantize(self, *args):
    inp = self.inputs[0]
    out = self.outputs[0]
    out.scale = inp.scale
    out.zerop = inp.zerop
    out.qbits = inp.qbits
    out.dtype = inp.dtype
    out.qinvariant = inp.qinvariant
    out.qmin = inp.qmin
    out.qmax = inp.qmax
    ph0 = self.placeholders[0]
    ph0.qinvariant = False
    ph0.qbits = self.get_attrs('q_bits_activation')
    q_mode_activation = self.get_attrs('q_mode_activation')
    ph0.scale, ph0.zerop, ph0.qmin, ph0.qmax, ph0.dtype = get_linear_quant_params_from_tensor(ph0, q_mode_activation, ph0.qbits, is_signed = True)
    self.params['whether_plus_one'] = True
    self.params['whether_minus_one'] = False
    self.constants['lut'] = Tensor(self.name+"/lut", (torch.zeros(256)).cpu().numpy().astype(dtype2nptype(Dtype.UINT16)))
"""
DATASET = """
from AIPUBuilder.Optimizer.framework import *
from AIPUBuilder.Optimizer.logger import *
from torch.utils.data import Dataset
import numpy as np

@register_plugin(PluginType.Dataset, '1.0')
class NumpyDataset(Dataset):
    def __init__(self, data_file, label_file=None):
        self.data = None
        self.label = None
        try:
            self.data = np.load(data_file, mmap_mode='c')
        except Exception as e:
            OPT_FATAL('the data of NumpyDataset plugin should be Numpy.ndarray and allow_pickle=False.')
        if label_file is not None:
            try:
                self.label = np.load(label_file, mmap_mode='c')
            except ValueError:
                self.label = np.load(label_file, allow_pickle=True)
    def __len__(self):
        return len(self.data)
    def __getitem__(self, idx):
        sample = [[self.data[idx]], float("-inf")]
        if self.label is not None:
            sample[1] = self.label[idx]
        return sample
"""
METRIC = """
from AIPUBuilder.Optimizer.framework import *
from AIPUBuilder.Optimizer.logger import *
import torch

@register_plugin(PluginType.Metric, '1.0')
class TopKMetric(OptBaseMetric):
    def __init__(self, K='1'):
        self.correct = 0
        self.total = 0
        self.K = int(K)
    def __call__(self, pred, target):
        _, pt = torch.topk(pred[0].reshape([pred[0].shape[0], -1]), self.K, dim=-1)    #NHWC
        for i in range(target.numel()):
            if target[i] in pt[i]:
                self.correct += 1
        self.total += target.numel()
    def reset(self):
        self.correct = 0
        self.total = 0
    def compute(self):
        try:
            acc = float(self.correct) / float(self.total)
            return acc
        except ZeroDivisionError:
            OPT_ERROR('zeroDivisionError: Topk acc total label = 0')
            return float("-inf")
    def report(self):
        return "top-%d accuracy is %f" % (self.K, self.compute())
"""
SPLIT = """
from AIPUBuilder.Optimizer.framework import *
from AIPUBuilder.Optimizer.utils import *

register_optype('ScaledHalves')

@op_register(OpType.ScaledHalves, '1.0')
def forward(self, *args):
    inp, w = self.inputs[0], self.constants['weights']
    n = self.get_param('size')
    values = inp.betensor
    if self.quantized:
        values = values + inp.zerop
    product = values * (w.betensor + (w.zerop if self.quantized else 0))
    for out, part in zip(self.outputs, (product[..., :n], product[..., n:])):
        if self.quantized:
            part = linear_requantize(part, self.params['scale_value'], self.params['shift_value'], out.zerop, out.qmin, out.qmax)
        out.betensor = part

@quant_register(OpType.ScaledHalves, '1.0')
def quantize(self, *args):
    inp, w = self.inputs[0], self.constants['weights']
    bits = self.attrs['q_bits_activation']
    w.qbits = self.attrs['q_bits_weight']
    w.scale, w.zerop, w.qmin, w.qmax, w.dtype = get_linear_quant_params_from_tensor(w, QuantMode.to_per_tensor(self.attrs['q_mode_weight']), w.qbits, is_signed=True)
    w.betensor = linear_quantize_clip(w.betensor, w.scale, w.zerop, w.qmin, w.qmax)
    w.qinvariant = False
    largest = max(self.outputs, key=lambda t: float(max(-t.min, t.max)))
    numbers = get_linear_quant_params_from_tensor(largest, self.attrs['q_mode_activation'], bits, is_signed=True)
    for out in self.outputs:
        out.scale, out.zerop, out.qmin, out.qmax, out.dtype = numbers
        out.qbits, out.qinvariant = bits, False
    scale, scale_type, shift, shift_type = get_scale_approximation_params(numbers[0] / (inp.scale * w.scale), bits)
    self.params['scale_value'], self.params['scale_type'] = int(scale), scale_type
    self.params['shift_value'], self.params['shift_type'] = int(shift), shift_type
"""


def layer(number: int, kind: str, bottoms: dict[str, list[int]], tops: dict[str, list[int]], *lines: str) -> str:
    def listed(items: list[str]) -> str:
        return f"[{','.join(items)}]"

    def shapes(tensors: dict[str, list[int]]) -> str:
        return listed([listed([str(size) for size in shape]) for shape in tensors.values()])

    return "\n".join(
        [
            f"layer_id={number}",
            f"layer_name=layer{number}",
            f"layer_type={kind}",
            f"layer_bottom={listed(list(bottoms))}",
            f"layer_bottom_shape={shapes(bottoms)}",
            f"layer_bottom_type={listed(['float32'] * len(bottoms))}",
            f"layer_top={listed(list(tops))}",
            f"layer_top_shape={shapes(tops)}",
            f"layer_top_type={listed(['float32'] * len(tops))}",
            *lines,
            "",
        ]
    )


def prepare(folder: Path, plugins: dict[str, str], layers: list[str], outputs: str, blob: bytes = b"") -> None:
    (folder / "plugin").mkdir()
    for name, text in plugins.items():
        (folder / "plugin" / f"aipubt_{name}.py").write_text(dedent(text))
    header = f"model_name=one\nlayer_number={len(layers)}\ninput_tensors=[x]\noutput_tensors=[{outputs}]\n"
    (folder / "float.txt").write_text("\n".join([header, *layers]))
    (folder / "float.bin").write_bytes(blob)
    np.save(folder / "data.npy", np.sin(np.arange(5 * 12) * 1.7).astype(np.float32).reshape(5, 12) * 2)
    np.save(folder / "label.npy", np.load(folder / "data.npy").argmax(1))


def run(folder: Path, *lines: str) -> str:
    given = ["graph = float.txt", "bin = float.bin", "model_name = one", "dataset = NumpyDataset"]
    given += [
        "calibration_data = data.npy",
        "output_dir = out",
        "calibration_strategy_for_activation = extrema",
        *lines,
    ]
    (folder / "opt.cfg").write_text("[Common]\n" + "\n".join(given) + "\n")
    command = [sys.executable, "-m", "quantizer", "optimize", "--cfg", "opt.cfg"]
    done = subprocess.run(  # noqa: S603 - our own command line
        command, cwd=folder, check=False, capture_output=True, text=True, env={"PYTHONPATH": str(ROOT), "PATH": ""}
    )
    return done.stdout + done.stderr


def test_the_three_listings_of_the_document_run_after_repairs(tmp_path: Path) -> None:
    """The repairs: a missing `try:`, a missing append of the placeholder, and the registration of the layer type."""
    shape = [1, 12]
    layers = [
        layer(0, "Input", {}, {"x": shape}),
        layer(1, "DummyOP", {"x": shape}, {"y": shape}, "whether_minus_one=false"),
    ]
    plugins = {"opt_op_dummy": OPERATOR, "opt_dataset_numpy": DATASET, "opt_metric_topk": METRIC}
    prepare(tmp_path, plugins, layers, "y")
    said = run(tmp_path, "data = data.npy", "label = label.npy", "metric = TopKMetric,TopKMetric(5)")
    for graph in ("quantized", "float"):
        for k in (1, 5):
            assert f"{graph} metric: top-{k} accuracy is 1.000000" in said
    graph = compass.read(tmp_path / "out" / "one_o.txt", tmp_path / "out" / "one_o.bin")
    node = next(node for node in graph.nodes if node.op == "DummyOP")
    assert (node.attrs["whether_plus_one"], node.attrs["whether_minus_one"]) == (True, False)
    table = graph.tensor(str(node.inputs[1]))
    assert (table.dtype.name, table.shape) == ("uint16", (256,))
    tops = [graph.tensor(name).qparams for name in ("x", "y")]
    assert tops[0] is not None
    assert tops[1] is not None
    assert (float(tops[0].scale), tops[0].qmin) == (float(tops[1].scale), tops[1].qmin)


@pytest.mark.parametrize("bits", [8, 16])
def test_a_layer_of_several_outputs_and_constants_needs_no_spec(tmp_path: Path, bits: int) -> None:
    """Between layers of ours: its codes are those of its functions on what the file says."""
    weights = np.linspace(-1.5, 2.0, 12).astype(np.float32)
    constant = ("weights_type=float32", "weights_offset=0", "weights_size=48", "weights_shape=[12]", "size=5")
    layers = [
        layer(0, "Input", {}, {"x": [1, 12]}),
        layer(1, "ScaledHalves", {"x": [1, 12]}, {"a": [1, 5], "b": [1, 7]}, *constant),
        layer(2, "Activation", {"b": [1, 7]}, {"r": [1, 7]}, "method=RELU"),
    ]
    prepare(tmp_path, {"op": SPLIT}, layers, "a,r", weights.tobytes())
    said = run(tmp_path, f"activation_bits = {bits}", f"bias_bits = {2 * bits + 16}", "dump = true", "dump_dir = dump")
    assert "wrote out/one_o.txt" in said, said
    graph = compass.read(tmp_path / "out" / "one_o.txt", tmp_path / "out" / "one_o.bin")
    node = next(node for node in graph.nodes if node.op == "ScaledHalves")
    stored = graph.tensor(str(node.inputs[1]))
    steps = np.float32(127) / np.float32(2.0)
    assert np.array_equal(stored.data.numpy(), np.rint(weights * steps).astype(np.int8))
    assert node.attrs["weights_scale"] == float(steps)
    tops = [graph.tensor(name).qparams for name in ("x", "a", "b")]
    assert [params.bits for params in tops if params is not None] == [bits] * 3
    found = {name: np.load(next((tmp_path / "dump" / "quant").glob(f"*_o0_{name}.npy"))) for name in ("x", "a", "b")}
    codes = found["x"].astype(np.int64) * stored.data.numpy().astype(np.int64)
    gain = node.attrs["scale_value"] * 2.0 ** -node.attrs["shift_value"]  # type: ignore[operator]
    assert tops[1] is not None
    wanted = np.clip(np.rint(codes * gain), tops[1].qmin, tops[1].qmax)
    assert np.array_equal(np.concatenate([found["a"], found["b"]], -1), wanted)


def test_a_layer_that_stays_in_floating_point(tmp_path: Path) -> None:
    layers = [
        layer(0, "Input", {}, {"x": [1, 12]}),
        layer(1, "DummyOP", {"x": [1, 12]}, {"y": [1, 12]}, "whether_minus_one=false"),
    ]
    prepare(tmp_path, {"op": OPERATOR}, layers, "y")
    assert "wrote" in run(tmp_path, "trigger_float_op = disable & <[DummyOP]:float16_preferred!>")
    graph = compass.read(tmp_path / "out" / "one_o.txt", tmp_path / "out" / "one_o.bin")
    assert [node.op for node in graph.nodes] == ["Input", "DeQuantize", "DummyOP"]
    assert graph.tensor("y").dtype.name == "float16"


def test_fields_left_undecided_by_quantize_are_an_error(tmp_path: Path) -> None:
    layers = [
        layer(0, "Input", {}, {"x": [1, 12]}),
        layer(1, "DummyOP", {"x": [1, 12]}, {"y": [1, 12]}, "whether_minus_one=false"),
    ]
    prepare(tmp_path, {"op": OPERATOR.replace("    out.qbits = inp.qbits\n", "")}, layers, "y")
    said = run(tmp_path)
    assert "error: quantize of DummyOP left qbits of output 'y' undecided" in said
    assert not list(tmp_path.glob("out/*"))
