"""The dialect for xdsl takes what we write and refuses modules that mean nothing; shapes are those that torch makes."""

from __future__ import annotations

import random
import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from top_graphs import OPERATORS, convolution, graph_of

from quantizer.cli import main
from quantizer.core.errors import FormatError
from quantizer.ir.formats.top_mlir import to_bytes, write
from quantizer.ir.formats.top_ops import TOP_OPS
from quantizer.ir.formats.top_shapes import check, check_graph

ROUNDS = 60
WITHOUT_SHAPES = ("top.Custom", "top.Interp", "top.NonZero", "top.Nms", "top.Repeat", "top.Yuv2rgbFormula")
"""Operators that make shapes which the text does not say."""


def xdsl():
    pytest.importorskip("xdsl", reason="a second parser of MLIR: install the extra [mlir]")
    from quantizer.ir.formats import top_dialect

    return top_dialect


def text_of(*, quantized: bool = False) -> str:
    return to_bytes(convolution(quantized=quantized), "Conv", "TOP_QUANTIZED" if quantized else "TOP_F32")[0]


@pytest.mark.parametrize("quantized", [False, True])
def test_the_dialect_round_trips_our_text(quantized):
    dialect = xdsl()
    text = text_of(quantized=quantized)
    assert dialect.verify_text(text, "Conv.mlir") == 5
    module = dialect.Parser(dialect.context(), text).parse_module()
    assert dialect.verify_text(str(module), "again.mlir") == 5


MUTANTS = {
    'top.Conv at loc("conv0"): result 0 has shape [1, 8, 7, 7], must be [1, 8, 26, 26]': (
        False,
        "1x8x26x26x",
        "1x8x7x7x",
    ),
    "top.Conv at loc(\"conv0\"): attribute 'pads': must be an array of i64": (
        False,
        "pads = [0, 0, 0, 0]",
        'pads = "x"',
    ),
    "attribute 'kernel_shape' expected": (False, "kernel_shape = [3, 3], ", ""),
    "zero point -500: must be one of the codes [-128, 127]": (True, "0.1:-3", "0.1:-500"),
    "scale 0.0: must be positive": (True, "0.1:-3", "0.0:-3"),
    "'i32' cannot hold codes": (True, "i8:f32, 0.1", "i32:f32, 0.1"),
    "codes -129:127: must lie in [-128, 127]": (True, "i8:f32, 0.1", "i8<-129:127>:f32, 0.1"),
    "8 scales along axis 1 of shape [7, 3, 3, 3]": (
        True,
        "8x3x3x3x!quant.uniform<i8:f32:0",
        "7x3x3x3x!quant.uniform<i8:f32:1",
    ),
    "Operation top.Convo is not registered": (False, '"top.Conv"', '"top.Convo"'),
    "attribute 'group': must be an integer of type i64": (False, "1 : i64", "1 : si32"),
    "attribute 'do_relu': must be true or false": (False, "do_relu = false", "do_relu = 0 : i64"),
    "no attribute 'do_rely'": (False, "do_relu = false", "do_rely = false"),
    "SSA value %2 is already defined": (False, "%3 = ", "%2 = "),
    "pads [0, 0, 0]: must be 4 numbers": (False, "pads = [0, 0, 0, 0]", "pads = [0, 0, 0]"),
    "strides [0, 1]: must be 2 positive numbers": (False, "strides = [1, 1]", "strides = [0, 1]"),
    "filter has shape [8, 3, 3, 3], kernel_shape is [5, 3]": (False, "kernel_shape = [3, 3]", "kernel_shape = [5, 3]"),
    "group 3: must divide the 8 filters": (False, "group = 1", "group = 3"),
    "filter has shape [8, 3, 3, 3] and group 2: the input has 3 channels": (False, "group = 1", "group = 2"),
    "does not fit into [28, 28]": (False, "dilations = [1, 1]", "dilations = [20, 1]"),
}


@pytest.mark.parametrize("message", MUTANTS)
def test_an_invalid_module_is_refused(message):
    dialect = xdsl()
    quantized, old, new = MUTANTS[message]
    text = text_of(quantized=quantized)
    assert old in text
    with pytest.raises(FormatError) as caught:
        dialect.verify_text(text.replace(old, new), "Conv.mlir")
    assert message in str(caught.value)
    assert str(caught.value).startswith("Conv.mlir:")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("op", OPERATORS)
def test_the_dialect_knows_every_operator_of_the_table(op):
    """Random shapes are mostly invalid: then only the shapes may be refused."""
    dialect = xdsl()
    for seed in range(4):
        graph = graph_of(op, seed)
        text = to_bytes(graph, "one", "TOP_F32")[0]
        try:
            check_graph(graph)
        except FormatError as err:
            with pytest.raises(FormatError) as caught:
                dialect.verify_text(text, "one.mlir")
            assert str(err).split(f"({op}): ")[1] == str(caught.value).rpartition("): ")[2], text
        else:
            assert dialect.verify_text(text, "one.mlir") > 0


@pytest.mark.parametrize("op", OPERATORS)
def test_the_dialect_refuses_a_wrong_kind_and_a_missing_attribute(op):
    dialect = xdsl()
    for key, attribute in TOP_OPS[op].attributes.items():
        graph = graph_of(op, 0)
        node = graph.nodes[0]
        text = to_bytes(graph.with_node(replace(node, attrs=_only(node.attrs, key, op))), "one", "TOP_F32")[0]
        for wrong in ('"x"', "1.5 : f32", "[1.5 : f32]"):
            if key not in _only(node.attrs, key, op) or (
                attribute.kind == "string" and not attribute.choices and wrong == '"x"'
            ):
                continue
            start, end = _place(text, op, key)
            with pytest.raises(FormatError, match=f"attribute '{key}': must be"):
                dialect.verify_text(f"{text[:start]}{key} = {wrong}{text[end:]}", "one.mlir")
        if attribute.required:
            start, end = _place(text, op, key)
            stripped = (text[:start].rstrip(", ") + text[end:]).replace("{, ", "{")
            with pytest.raises(FormatError, match=f"attribute '{key}' expected"):
                dialect.verify_text(stripped, "one.mlir")


def _only(attrs, key, op):
    """The attribute *key* in addition to the required ones."""
    return {k: v for k, v in attrs.items() if k == key or TOP_OPS[op].attributes[k].required}


def _place(text: str, op: str, key: str) -> tuple[int, int]:
    """Where an attribute begins and ends: at a comma or brace outside of brackets and strings."""
    found = re.search(rf'"{op}"\(.*?[{{ ]({key} = )', text)
    assert found is not None
    depth, at = 0, found.end()
    for piece in re.finditer(r'"(?:[^"\\]|\\.)*"|.', text[at:]):
        if not depth and piece[0] in ",}":
            return found.start(1), at + piece.start()
        depth += (piece[0] in "[{") - (piece[0] in "]}")
    raise AssertionError(text)


def meta(*shape: int) -> torch.Tensor:
    return torch.empty(shape, device="meta")


def agrees(op: str, attrs: dict, operands: list, made: object, weights: tuple[bool, ...] = ()) -> None:
    """The rule takes the shapes that torch makes, and no others."""
    results = [tuple(item.shape) for item in (made if isinstance(made, list | tuple) else [made])]
    check(op, attrs, operands, results, weights=weights or (False,) * len(operands))
    grown = [(*shape, 7) for shape in results]
    with pytest.raises(ValueError, match="must be"):
        check(op, attrs, operands, grown, weights=weights or (False,) * len(operands))


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_windows_have_the_shapes_of_torch(rank):
    rng = random.Random(rank)
    functions = {
        1: (F.conv1d, F.conv_transpose1d),
        2: (F.conv2d, F.conv_transpose2d),
        3: (F.conv3d, F.conv_transpose3d),
    }
    many = lambda low, high: tuple(rng.randint(low, high) for _ in range(rank))  # noqa: E731
    for _ in range(ROUNDS):
        group, kernel, stride, dilation, pad = rng.choice((1, 2)), many(1, 3), many(1, 3), many(1, 2), many(0, 2)
        size = many(6, 9)
        n, ic, oc = rng.randint(1, 2), group * rng.randint(1, 3), group * rng.randint(1, 3)
        window = {"kernel_shape": kernel, "strides": stride, "dilations": dilation, "pads": pad + pad, "group": group}
        x, w = meta(n, ic, *size), meta(oc, ic // group, *kernel)
        made = functions[rank][0](x, w, None, stride, pad, dilation, group)
        agrees("top.Conv", window, [tuple(x.shape), tuple(w.shape), (oc,)], made, (False, True, True))
        more = tuple(rng.randrange(max(s, d)) for s, d in zip(stride, dilation, strict=True))
        w = meta(ic, oc // group, *kernel)
        made = functions[rank][1](x, w, None, stride, pad, more, group, dilation)
        held = (oc // group, ic, *kernel)
        agrees(
            "top.Deconv", {**window, "output_padding": more}, [tuple(x.shape), held, (oc,)], made, (False, True, True)
        )
        held = (oc, ic // group, *kernel)
        agrees(
            "top.Deconv", {**window, "output_padding": more}, [tuple(x.shape), held, (oc,)], made, (False, True, True)
        )
        agrees("top.Deconv", {**window, "output_padding": more}, [tuple(x.shape), tuple(w.shape), (oc,)], made)


def test_pools_have_the_shapes_of_torch():
    rng = random.Random(0)
    for _ in range(ROUNDS * 2):
        kernel, stride = (rng.randint(2, 4), rng.randint(2, 4)), (rng.randint(1, 4), rng.randint(1, 4))
        pad, up = (rng.randint(0, 1), rng.randint(0, 1)), rng.random() < 0.5
        x = meta(1, 2, rng.randint(5, 12), rng.randint(5, 12))
        spans = [x.shape[i + 2] + 2 * pad[i] - kernel[i] for i in range(2)]
        if up and any(-(-spans[i] // stride[i]) * stride[i] >= x.shape[i + 2] + pad[i] for i in range(2)):
            continue  # torch drops a window that begins in the padding
        attrs = {"kernel_shape": kernel, "strides": stride, "pads": pad + pad, "ceil_mode": up}
        for op, made in (
            ("top.MaxPool", F.max_pool2d(x, kernel, stride, pad, ceil_mode=up)),
            ("top.AvgPool", F.avg_pool2d(x, kernel, stride, pad, ceil_mode=up)),
        ):
            agrees(op, attrs, [tuple(x.shape)], made)
    agrees("top.MaxPool", {"kernel_shape": (), "strides": (1, 1), "pads": (0,) * 4}, [(2, 3, 5, 7)], meta(2, 3, 1, 1))


def test_products_have_the_shapes_of_numpy_and_of_the_notes():
    rng = random.Random(2)
    for _ in range(ROUNDS):
        leading = tuple(rng.randint(1, 3) for _ in range(rng.randrange(3)))
        other = tuple(rng.choice((1, size)) for size in leading[rng.randrange(len(leading) + 1) :])
        rows, inner, columns = (rng.randint(1, 5) for _ in range(3))
        a, b = meta(*leading, rows, inner), meta(*other, inner, columns)
        agrees("top.MatMul", {}, [tuple(a.shape), tuple(b.shape), (columns,)], a @ b)
        turned = (*other, columns, inner)
        agrees("top.MatMul", {"right_transpose": True}, [tuple(a.shape), turned, (columns,)], a @ b)
        flat = (a @ b).reshape(-1, columns)
        agrees("top.MatMul", {"keep_dims": False}, [tuple(a.shape), tuple(b.shape), (columns,)], flat)
    check("top.MatMul", {}, [(1, 512, 7, 7), (25088, 4096), (4096,)], [(1, 4096)])
    check("top.MatMul", {}, [(4, 5, 6), (6,), ()], [(4, 5)], absent=(False, False, True))
    with pytest.raises(ValueError, match="the inner sizes 6 and 7 differ"):
        check("top.MatMul", {}, [(4, 6), (7, 2), (2,)], [(4, 2)])


def test_movement_has_the_shapes_of_torch():
    rng = random.Random(3)
    for _ in range(ROUNDS):
        x = meta(*(rng.randint(1, 5) for _ in range(rng.randint(1, 4))))
        rank, shape = x.dim(), tuple(x.shape)
        axis = rng.randrange(-rank, rank)
        order = tuple(rng.sample(range(rank), rank))
        agrees("top.Permute", {"order": order}, [shape], x.permute(order))
        agrees("top.Reshape", {"shape": (-1, shape[-1])}, [shape], x.reshape(-1, shape[-1]))
        agrees("top.Reshape", {"shape": (0, -1)}, [shape], x.reshape(shape[0], -1))
        agrees("top.Flatten", {"start_dim": axis}, [shape], x.flatten(axis))
        agrees("top.Unsqueeze", {"axes": (axis,)}, [shape], x.unsqueeze(axis))
        agrees("top.Squeeze", {"axes": (axis,)}, [(*x.unsqueeze(axis).shape,)], x)
        times = tuple(rng.randint(1, 3) for _ in shape)
        agrees("top.Tile", {"tile": times}, [shape], x.tile(times))
        agrees("top.Expand", {"shape": (2, *shape)}, [shape], x.expand(2, *shape))
        others = [shape[: axis % rank] + (size,) + shape[axis % rank + 1 :] for size in (2, 3)]
        agrees("top.Concat", {"axis": axis}, [shape, *others], torch.cat([x, *(meta(*item) for item in others)], axis))
        start, step = rng.randrange(shape[axis]), rng.randint(1, 2)
        cut = {"offset": (start,), "ends": (shape[axis],), "steps": (step,), "axes": (axis,)}
        index = [slice(None)] * rank
        index[axis] = slice(start, None, step)
        check("top.Slice", cut, [shape, (), (), ()], [tuple(x[tuple(index)].shape)], absent=(False, True, True, True))
        pads = [rng.randint(0, 2) for _ in range(2 * rank)]
        theirs = [pads[i + rank * end] for i in reversed(range(rank)) for end in range(2)]
        agrees("top.Pad", {"paddings": tuple(pads), "mode": "constant"}, [shape], F.pad(x, theirs))
        agrees(
            "top.Reduce", {"axes": (axis,), "keepdims": True, "mode": "ReduceSum"}, [shape], x.sum(axis, keepdim=True)
        )
        places = meta(3).long()
        agrees("top.Gather", {"axis": axis}, [shape, (3,)], torch.index_select(x, axis, places))
        count = rng.randint(1, shape[axis])
        agrees("top.TopK", {"axis": axis, "K": count}, [shape], list(x.topk(count, axis)))
        agrees("top.Sort", {"axis": axis}, [shape], list(x.sort(axis)))
        agrees("top.Arg", {"axis": axis, "keepdims": True, "mode": "ArgMax"}, [shape], list(x.max(axis, keepdim=True)))
        sizes = [1] * shape[axis]
        parts = list(x.split(sizes, axis))
        agrees("top.Split", {"axis": axis, "num": len(parts)}, [shape], parts)
        stretched = meta(*(1 if rng.random() < 0.5 else size for size in shape))
        for op in ("top.Add", "top.Compare", "top.BinaryShift"):
            agrees(op, {}, [shape, tuple(stretched.shape)], x + stretched)
        agrees("top.Softmax", {"axis": axis}, [shape], x.softmax(axis))
        agrees("top.Shape", {"start": 0, "end": rank}, [shape], meta(rank))


def test_shapes_that_are_not_known_are_not_judged():
    check("top.Conv", {}, [None, (8, 3, 3, 3), (8,)], [(1, 2)])
    check("top.Conv", {}, [(1, -1, 8, 8), (8, 3, 3, 3), (8,)], [(1, 2)])
    check("top.Relu", {}, [(1, 2)], [None])


def test_every_operator_has_a_shape_rule_or_is_listed():
    from quantizer.ir.formats.top_shapes import CHECKED

    assert {*OPERATORS} - CHECKED == {*WITHOUT_SHAPES}


def test_the_command_verifies_files(tmp_path: Path, capsys):
    xdsl()
    files = write(convolution(quantized=True), tmp_path, "Conv", "TOP_QUANTIZED")
    assert main(["mlir", "verify", str(files.text)]) == 0
    assert "5 operations of Top, 2 weights: sound for the reader and for xdsl" in capsys.readouterr().out
    text = files.text.read_text()
    for old, new, message in (
        ("1x8x26x26x", "1x8x7x7x", "result 0 has shape [1, 8, 7, 7], must be [1, 8, 26, 26]"),
        ("0.1:-3", "0.1:-500", "zero point -500"),
        ('"top.Conv"', '"top.Convo"', "Did you mean 'top.Conv'"),
    ):
        files.text.write_text(text.replace(old, new))
        assert main(["mlir", "verify", str(files.text)]) == 2
        assert message in capsys.readouterr().err


def test_the_command_names_the_missing_package(tmp_path: Path, capsys, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "xdsl", None)
    assert main(["mlir", "verify", str(tmp_path / "no.mlir")]) == 2
    assert "pip install 'quantizer-conformance[mlir]'" in capsys.readouterr().err


def test_scales_of_weights_may_name_axis_1_as_tpulang_does():
    dialect = xdsl()
    text = text_of(quantized=True).replace("i8:f32:0, {", "i8:f32:1, {")
    assert dialect.verify_text(text, "Conv.mlir") == 5
