"""Graphs built by hand: names, threads, parameters that are propagated or contradict, files, and requantization."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from lang_calls import CALLS, Draw, build

import quantizer.lang as tpul
from quantizer.core.dtypes import DTYPES
from quantizer.ir.formats import top_mlir
from quantizer.ir.formats.npz import read_npz
from quantizer.ir.formats.top_shapes import check_graph as check_shapes
from quantizer.ir.graph import same
from quantizer.lang import Graph, LangError, Scalar, Tensor, TpuLangConverter, run
from quantizer.lang.lowering.emitter import Emitter
from quantizer.lang.lowering.lower import lowered_ops
from quantizer.lang.lowering.rounding import quotient
from quantizer.numerics.integer_requantize import ROUNDINGS, requantize_integers
from quantizer.numerics.qparams import QParams
from quantizer.numerics.ratio_to_multiplier import fixed_point, rescale_left_shifted
from quantizer.numerics.requantize import requantize_sum
from quantizer.numerics.rounding import shift_right

ROOT = Path(__file__).parents[2]
VECTORS = json.loads((ROOT / "cases/reference/tpulang_requant.json").read_text())["cases"]
NUMPY = {"int8": np.int8, "uint8": np.uint8, "int16": np.int16}


def small() -> tuple[Graph, Tensor, Tensor]:
    """A graph of codes: a convolution, then operators that keep its grid."""
    graph = Graph("Small")
    with graph:
        x = Tensor([1, 2, 4, 4], name="x", dtype="int8")
        w = Tensor(ttype="coeff", data=Draw("small").array([3, 2, 2, 2], "int8"), dtype="int8")
        y = tpul.conv_quant(x, w, input_scale=0.5, weight_scale=0.25, output_scale=2.0, output_zp=3, input_zp=1)
        z = tpul.permute(tpul.relu(y), [0, 2, 3, 1])
    return graph, x, z


# -- names and graphs ------------------------------------------------------------------------------------------------


def test_default_names_are_numbered_and_deterministic() -> None:
    first, second = small()[0], small()[0]
    assert [node.name for node in first.nodes] == ["conv_quant_0", "relu_0", "permute_0"]
    assert list(first.tensors) == ["x", "weight_0", "conv_quant_0", "relu_0", "permute_0"]
    assert same(first.to_ir(), second.to_ir()) is None


def test_a_given_name_is_used_once() -> None:
    with Graph("g") as graph:
        x = Tensor([2], name="relu_0")
        assert tpul.relu(x).name == "relu_1"
        with pytest.raises(LangError, match="relu: out_name: a tensor 'relu_1' is in the graph"):
            tpul.relu(x, out_name="relu_1")
        with pytest.raises(LangError, match="a tensor 'relu_0' is in the graph"):
            tpul.abs(Tensor([2], name="relu_0"))
        with pytest.raises(LangError, match="must be a string without '#'"):
            tpul.relu(x, out_name="a#0")
    assert len(graph.nodes) == 1


def test_a_tensor_belongs_to_one_graph() -> None:
    with Graph("a"):
        x = Tensor([2], name="x")
        tpul.relu(x)
    with Graph("b") as graph, pytest.raises(LangError, match="tensor 'x' is of another graph: must be of graph 'b'"):
        tpul.relu(x)
    assert not graph.nodes
    with pytest.raises(LangError, match="is not a tensor of graph 'b'"):
        graph.to_ir(outputs=[x])


def test_the_default_graph_is_one_of_each_thread() -> None:
    tpul.init("cpu", "mine")
    seen: list[str] = []

    def other() -> None:
        with pytest.raises(LangError, match="there is no graph: call init"):
            tpul.get_default_graph()
        tpul.init("bm1684x", "theirs")
        tpul.relu(Tensor([2]))
        seen.append(tpul.get_default_graph().name)

    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    assert seen == ["theirs"]
    assert tpul.get_default_graph().name == "mine"
    assert not tpul.get_default_graph().nodes
    tpul.deinit()
    with pytest.raises(LangError, match="there is no graph"):
        tpul.relu(Tensor([2]))
    with pytest.raises(LangError, match="init: device='gpu': must be one of cpu, bm1684x"):
        tpul.init("gpu")


def test_threads_may_build_separate_or_shared_graphs() -> None:
    shared, graphs, errors = Graph("shared"), {}, []
    barrier = threading.Barrier(4)

    def work(i: int) -> None:
        try:
            barrier.wait()
            with Graph(f"g{i}") as own:
                x = Tensor([2, 3])
                for _ in range(20):
                    x = tpul.relu(x)
                    with shared:
                        tpul.abs(Tensor([2], name=f"t{i}_{len(shared.tensors)}"), out_name=f"y{i}_{_}")
            graphs[i] = own.to_ir()
        except Exception as err:  # noqa: BLE001 - shown below
            errors.append(err)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert all([node.name for node in graphs[i].nodes] == [f"relu_{k}" for k in range(20)] for i in range(4))
    assert len(shared.nodes) == 80


def test_graph_inputs_and_outputs_are_inferred() -> None:
    graph, x, z = small()
    ir = graph.to_ir()
    assert (ir.inputs, ir.outputs) == (("x",), ("permute_0",))
    y = graph.tensors["conv_quant_0"]
    assert graph.to_ir(outputs=[z, y]).outputs == ("permute_0", "conv_quant_0")
    with pytest.raises(LangError, match="inputs must name 'x' too"):
        graph.to_ir(inputs=[])
    with pytest.raises(LangError, match="'relu_0' is made by an operator or is a coefficient"):
        graph.to_ir(inputs=[x, graph.tensors["relu_0"]])
    with pytest.raises(LangError, match="has no operators"):
        Graph("empty").to_ir()


# -- tensors ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Tensor([2], dtype="int64"), "dtype='int64': must be one of float32"),
        (lambda: Tensor([0, 2]), "every size must be a whole number of at least 1"),
        (Tensor, "shape is missing"),
        (lambda: Tensor([2], ttype="coeff"), "must be 'coeff' with data"),
        (lambda: Tensor([2], data=np.zeros(2, np.float32)), "must be 'coeff' with data, 'neuron' without"),
        (lambda: Tensor([3], ttype="coeff", data=np.zeros(2, np.float32)), "2 numbers of data: shape .* needs 3"),
        (lambda: Tensor(ttype="coeff", data=np.zeros(2, np.float64)), "data of float64: must be of dtype=float32"),
        (lambda: Tensor(ttype="coeff", data=np.array([np.nan], np.float32)), "data has NaN"),
        (lambda: Tensor([2], dtype="int8", scale=-1.0), "scale=-1.0: must be positive and finite"),
        (lambda: Tensor([2], dtype="int8", scale=0.0), "scale=0.0: must be positive and finite"),
        (lambda: Tensor([2], dtype="int8", zero_point=128), r"zero_point=128: must be a whole number in \[-128, 127\]"),
        (lambda: Tensor([2], scale=1.0), "of a tensor of float32: must be of an integer of 8 or 16 bits"),
        (lambda: Tensor([2], dtype="int32", zero_point=0), "must be of an integer of 8 or 16 bits"),
        (lambda: Tensor([2], dtype="int8", scale=[1.0, 2.0], zero_point=[1, 2, 3]), "2 scales and 3 zero points"),
        (lambda: Scalar(1.5, "int8"), "must be a whole number of int8"),
        (lambda: Scalar(300, "uint8"), "must be a whole number of uint8"),
        (lambda: Graph(""), "name='': must be a string"),
    ],
)
def test_an_impossible_tensor_is_refused(make: object, says: str) -> None:
    with pytest.raises(LangError, match=says):
        make()  # type: ignore[operator]


def test_data_is_reshaped_and_halved() -> None:
    tensor = Tensor([2, 3], ttype="coeff", data=np.arange(6, dtype=np.float32), dtype="float16")
    assert tensor.buffer is not None
    assert (tensor.shape, tensor.buffer.dtype) == ((2, 3), np.float16)


def test_parameters_are_set_once_and_a_contradiction_shows_both() -> None:
    tensor = Tensor([2], name="t", dtype="int8", scale=0.5)
    tensor.quantization(zero_point=[3])
    tensor.quantization(scale=[0.5], zero_point=3)
    with pytest.raises(LangError, match=r"'t' has scale=0.5, zero_point=3; scale=0.25, zero_point=None contradicts it"):
        tensor.quantization(scale=0.25)
    assert (tensor.scale, tensor.zero_point) == (0.5, 3)


def test_parameters_of_a_failed_call_are_reverted() -> None:
    with Graph("g"):
        x = Tensor([2, 3], name="x", dtype="int8")
        y = Tensor([2, 3], name="y", dtype="int8", scale=4.0)
        with pytest.raises(LangError, match="'y' has scale=4.0"):
            tpul.add(x, y, scale=[1.0, 2.0, 3.0])
        assert not x.is_quantized
        assert x.owner is None
        tpul.add(x, y, scale=[1.0, 4.0, 3.0])
        assert x.scale == 1.0


def test_parameters_propagate_through_movement_operators_both_ways() -> None:
    graph, _, z = small()
    assert not z.is_quantized
    known = graph.to_ir().tensors
    for name in ("relu_0", "permute_0"):
        params = known[name].qparams
        assert params is not None
        assert (float(params.scale), int(params.zero_point)) == (2.0, 3)
    with Graph("back") as back:
        x = Tensor([4], name="x", dtype="uint8")
        tpul.dequant_int_to_fp(tpul.reshape(tpul.copy(x), [2, 2]), 0.5, 7)
    params = back.to_ir().tensors["x"].qparams
    assert params is not None
    assert (float(params.scale), int(params.zero_point)) == (0.5, 7)


def test_contradicting_parameters_are_both_shown() -> None:
    with Graph("g") as graph:
        x = Tensor([4], name="x", dtype="uint8", scale=0.25, zero_point=1)
        y = tpul.reshape(x, [2, 2], out_name="y")
        tpul.dequant_int_to_fp(y, 0.5, 7)
    says = "'x' has scale=0.25, zero_point=1, 'y' has scale=0.5, zero_point=7: must be the same"
    with pytest.raises(LangError, match=says):
        graph.to_ir()


def test_codes_keep_their_numbers_through_a_propagated_grid() -> None:
    graph, _, _ = small()
    codes = Draw("codes").array([1, 2, 4, 4], "int8")
    got = run(graph, {"x": codes}, [graph.tensors["conv_quant_0"], graph.tensors["relu_0"]])
    assert np.array_equal(got["relu_0"], np.maximum(got["conv_quant_0"], 3))


# -- what is decided of the original's contradictions ----------------------------------------------------------------


def test_conv_v2_has_the_seeds_pads_and_writes_tops() -> None:
    d = Draw("v2")
    x, w = d.array([1, 2, 5, 6]), d.array([3, 2, 2, 3])
    with Graph("g") as graph:
        i = Tensor([1, 2, 5, 6], name="x")
        weight = Tensor(ttype="coeff", data=w)
        a = tpul.conv_v2(i, weight, Tensor(ttype="coeff", data=d.array([1, 3, 1, 1])), pad=[1, 2, 3, 4])
        tpul.conv(i, weight, pad=[1, 3, 2, 4])
    kernel = w.shape[2:]
    assert a.shape == (1, 3, (5 + 1 + 2 - kernel[0]) + 1, (6 + 3 + 4 - kernel[1]) + 1)
    assert [node.attrs["pads"] for node in graph.nodes] == [(1, 3, 2, 4), (1, 3, 2, 4)]
    assert run(graph, {"x": x})["conv_0"].shape == a.shape


def test_conv_v2_of_codes_is_an_int32_sum_unless_it_says_uint32() -> None:
    with Graph("g"):
        x = Tensor([1, 2, 5, 6], dtype="uint8")
        w = Tensor(ttype="coeff", data=np.ones((3, 2, 2, 3), np.int8), dtype="int8")
        assert tpul.conv_v2(x, w).dtype == "int32"
        assert tpul.conv_v2(x, w, out_dtype="uint32").dtype == "uint32"


def test_requant_fp_to_int_multiplies_by_the_reciprocal() -> None:
    values = np.array([-1.0, -0.26, 0.13, 0.625, 100.0], dtype=np.float32)
    with Graph("g") as graph:
        tpul.requant_fp_to_int(Tensor([5], name="x"), 0.25, 3, 0, "int8", out_name="y")
    got = run(graph, {"x": values})["y"]
    assert got.tolist() == [-1, 2, 4, 6, 127]


def test_matmulrq_shifts_in_the_opposite_direction_of_requant_int() -> None:
    codes = Draw("rq").array([2, 4], "int8")
    with Graph("g") as graph:
        x = Tensor([2, 4], name="x", dtype="int8")
        w = Tensor(ttype="coeff", data=np.eye(4, dtype=np.int8), dtype="int8")
        tpul.matmulrq_int_op(x, w, multiplier=3, shift=2, offset=1, out_name="a")
        sums = tpul.matmul_int(x, w, input_zp=0, right_zp=0)
        tpul.requant_int(sums, 3, -2, 1, 2, out_name="b")
    got = run(graph, {"x": codes})
    assert np.array_equal(got["a"], got["b"])


# -- requantization --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("start", range(0, len(VECTORS), 32))
def test_requant_int_equals_every_recorded_vector(start: int) -> None:
    for case in VECTORS[start : start + 32]:
        codes = np.array(case["x"], dtype=np.int32)
        with Graph("g") as graph:
            tpul.requant_int(
                Tensor([1, len(codes)], name="x", dtype="int32"),
                case["mul"],
                case["shift"],
                case["offset"],
                case["requant_mode"],
                case["out_dtype"],
                "y",
                case["round_mode"],
            )
        assert run(graph, {"x": codes[None]})["y"][0].tolist() == case["y"], case


@pytest.mark.parametrize("mode", sorted(ROUNDINGS))
def test_requant_int_equals_the_numerics_package(mode: str) -> None:
    modes = ("q31_wrapping_left", "q31_wrapping", "integer_multiplier_shift")
    for requant_mode, ours in enumerate(modes):
        d = Draw(f"{mode}/{requant_mode}")
        mul, shift = ([d.number(0, (1 << 31) - 1) for _ in range(6)], [d.number(-63, 8) for _ in range(6)])
        codes = d.array([40, 6], "int32")
        codes[0], codes[1] = -(1 << 31), (1 << 31) - 1
        with Graph("g") as graph:
            tpul.requant_int(Tensor([40, 6], name="x", dtype="int32"), mul, shift, -3, requant_mode, "int16", "y", mode)
        m, s = torch.tensor(mul), torch.tensor(shift)
        wanted = requantize_integers(
            torch.from_numpy(codes), m, s, -3, ours, ROUNDINGS[mode], -(1 << 15), (1 << 15) - 1
        )
        assert np.array_equal(run(graph, {"x": codes})["y"], wanted.numpy()), requant_mode


@pytest.mark.parametrize("mode", sorted(ROUNDINGS))
def test_the_exported_onnx_shift_equals_the_numerics_package(mode: str) -> None:
    edges = [0, 1, -1, 2, -2, 3, -3, (1 << 62) - 1, 1 << 62, -(1 << 62), (1 << 62) + 1, (1 << 63) - 1, -(1 << 63)]
    values = torch.tensor(edges + [(1 << k) + e for k in range(2, 62, 5) for e in (-1, 0, 1)], dtype=torch.int64)
    bits = torch.arange(-5, 67).reshape(-1, 1)
    name = tpul_mode(mode)
    e = Emitter()
    found = quotient(e, e.constant(values), bits, name)
    assert found.data is not None
    assert torch.equal(found.data, shift_right(values, bits.clamp(-63, 63), ROUNDINGS[mode]))


def tpul_mode(mode: str) -> str:
    return "".join(word.capitalize() for word in mode.split("_"))


# -- files -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(set(CALLS) - {"nonzero"}))
def test_a_graph_survives_its_text_and_computes_the_same(name: str, tmp_path: Path) -> None:
    built = build(name, 1)
    ir = built.graph.to_ir(outputs=built.results)
    check_shapes(ir)
    files = top_mlir.write(ir, tmp_path, "G", "TOP_F32")
    again = top_mlir.read(files.text)
    assert same(ir.with_(name="G"), again) is None
    got, other = run(ir, built.feeds), run(again, built.feeds)
    assert all(np.array_equal(got[key], other[key], equal_nan=True) for key in got)


@pytest.mark.parametrize("name", sorted(set(CALLS) - {"nonzero"}))
def test_a_second_parser_and_the_dialect_accept_the_text(name: str) -> None:
    pytest.importorskip("xdsl")
    from quantizer.ir.formats.top_dialect import verify_text

    for seed in range(2):
        text, _ = top_mlir.to_bytes(build(name, seed).graph.to_ir(), "G", "TOP_QUANTIZED")
        assert verify_text(text, name) > 0


def test_the_converter_class_writes_the_same_as_compile(tmp_path: Path) -> None:
    graph = tpul.init("cpu")
    x = Tensor([1, 3, 28, 28], name="x")
    w = Tensor(ttype="coeff", data=Draw("conv").array([8, 3, 3, 3]), name="w")
    y = tpul.conv(x, w, out_name="conv0")
    text, weights = TpuLangConverter("Conv", graph, [x], [y]).generate_mlir()
    files = tpul.compile_f32("Conv", [x], [y], folder=tmp_path, cmp=False, opt=2)
    tpul.deinit()
    assert (files.text.name, files.weights.name) == ("Conv_origin.mlir", "conv_top_f32_all_origin_weight.npz")
    assert (files.text.read_text(), files.weights.read_bytes()) == (text, weights)
    assert f'module.weight_file = "{files.weights.name}"' in text
    assert w.buffer is not None
    assert np.array_equal(np.load(io.BytesIO(weights))["w"], w.buffer)
    assert set(read_npz(files.weights)) == {"w"}


def test_a_failed_compile_writes_no_files(tmp_path: Path) -> None:
    graph, x, z = small()
    for arguments, says in (
        ({"refs": 1}, "refs and no_save"),
        ({"no_save": True}, "refs and no_save"),
        ({"optt": 1}, "no argument 'optt'"),
    ):
        with pytest.raises(LangError, match=says):
            tpul.compile("Small", [x], [z], graph=graph, **{"folder": tmp_path, **arguments})
    assert not list(tmp_path.iterdir())
    assert tpul.compile("Small", [x], [z], graph=graph, folder=tmp_path).text.read_text().count("TOP_QUANTIZED") == 1


def test_the_onnx_file_reads_back_with_the_same_codes(tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    from quantizer.runtime.onnx_model import load_onnx_graph
    from quantizer.runtime.torch_executor import TorchExecutor

    graph, _, _ = small()
    tpul.to_onnx(graph, tmp_path / "small.onnx")
    codes = Draw("codes").array([1, 2, 4, 4], "int8")
    again = TorchExecutor(load_onnx_graph(tmp_path / "small.onnx"), platform="fp32").forward(torch.from_numpy(codes))
    assert np.array_equal(again[0].numpy(), run(graph, {"x": codes})["permute_0"])


def test_every_operator_of_the_table_that_a_function_adds_has_a_lowering() -> None:
    added = {node.op for name in CALLS for seed in range(3) for node in build(name, seed).graph.nodes}
    assert added <= lowered_ops()


def _pair(d: Draw, kinds: tuple[str, str]) -> tuple[list[np.ndarray], list[float], list[int]]:
    codes = [d.array([30, 7], kind) for kind in kinds]
    return codes, [d.scale() for _ in range(3)], [d.zero(kind) for kind in (*kinds, kinds[0])]


@pytest.mark.parametrize("seed", range(6))
def test_sums_and_products_of_codes_equal_the_platform(seed: int) -> None:
    kinds = [("int8", "int8"), ("uint8", "uint8")][seed % 2]
    (a, b), scales, zeros = _pair(Draw(f"pair/{seed}"), kinds)
    with Graph("g") as graph:
        x, y = (Tensor([30, 7], name=name, dtype=kind) for name, kind in zip("xy", kinds, strict=True))
        for name in ("add", "sub", "mul") if kinds[0] == "int8" else ("add", "mul"):
            getattr(tpul, name)(x, y, scales, zeros, out_name=name)
    got = run(graph, {"x": a, "y": b})
    kind = DTYPES[kinds[0]]
    out = QParams(kind, torch.tensor(scales[2], dtype=torch.float64), torch.tensor(zeros[2]), kind.min, kind.max)
    terms = {name: torch.from_numpy(v).long() - zero for name, v, zero in zip("ab", (a, b), zeros, strict=False)}
    numbers = rescale_left_shifted("q31_double", dict(zip("ab", scales, strict=False)), scales[2], 20)
    for name, minus in (("add", ()), ("sub", ("b",))):
        if name in got:
            wanted = requantize_sum(terms, numbers, out, minus=minus, places=20)
            assert np.array_equal(got[name], wanted.numpy()), name
    multiplier, right = fixed_point(torch.tensor(scales[0] * scales[1] / scales[2], dtype=torch.float64))
    product = requantize_integers(
        terms["a"] * terms["b"], multiplier, 31 - right, zeros[2], "q31_wrapping", "half_away", kind.min, kind.max
    )
    assert np.array_equal(got["mul"], product.numpy())


@pytest.mark.parametrize("seed", range(4))
def test_a_convolution_of_codes_is_an_exact_requantized_sum(seed: int) -> None:
    d = Draw(f"conv/{seed}")
    codes, weights, bias = d.array([2, 4, 6, 5], "uint8"), d.array([6, 2, 3, 2], "int8"), d.array([6], "int32")
    scales, zeros = [d.scale() for _ in range(6)], [d.zero("int8") for _ in range(6)]
    with Graph("g") as graph:
        x, w = Tensor([2, 4, 6, 5], name="x", dtype="uint8"), Tensor(ttype="coeff", data=weights, dtype="int8")
        tpul.conv_quant(
            x,
            w,
            Tensor(ttype="coeff", data=bias, dtype="int32"),
            pad=[1, 0, 2, 1],
            group=2,
            input_scale=0.125,
            weight_scale=scales,
            output_scale=40.0,
            input_zp=17,
            weight_zp=zeros,
            output_zp=-5,
            out_dtype="int8",
            out_name="y",
        )
    centred = torch.from_numpy(codes).double() - 17
    filters = torch.from_numpy(weights).double() - torch.tensor(zeros).double().reshape(-1, 1, 1, 1)
    wide = torch.nn.functional.pad(centred, (0, 1, 1, 2))
    sums = torch.nn.functional.conv2d(wide, filters, torch.from_numpy(bias).double(), groups=2).long()
    multiplier, right = fixed_point(0.125 * torch.tensor(scales, dtype=torch.float64) / 40.0)
    along = (1, -1, 1, 1)
    wanted = requantize_integers(
        sums, multiplier.reshape(along), 31 - right.reshape(along), -5, "q31_wrapping_left", "half_away", -128, 127
    )
    assert np.array_equal(run(graph, {"x": codes})["y"], wanted.numpy())


def test_inference_does_not_load_torchs_compiler() -> None:
    """For many operators, torch imports its compiler when it runs without data, which takes seconds."""
    program = (
        "import sys; from lang_calls import CALLS, build\n"
        "[build(name, 0) for name in CALLS]\n"
        "assert 'torch._dynamo' not in sys.modules\n"
    )
    path = [str(ROOT), str(ROOT / "tests/unit")]
    subprocess.run([sys.executable, "-c", program], check=True, env={**os.environ, "PYTHONPATH": os.pathsep.join(path)})
