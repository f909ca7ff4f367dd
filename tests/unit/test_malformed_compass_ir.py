"""Malformed Compass IR: one error with file, line, key and value, and nothing is written."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from quantizer.core.dtypes import DTYPES
from quantizer.core.errors import FormatError, QuantizerError
from quantizer.ir.formats.compass import read, write
from quantizer.ir.formats.compass_graph import Blob
from quantizer.ir.formats.compass_text import Entry, Section
from quantizer.ir.graph import Graph, Node

REFERENCE = Path(__file__).parents[2] / "cases" / "reference" / "compass" / "conv3x3" / "pc_asym"
TEXT = (REFERENCE / "quant.txt").read_text()
BLOB = (REFERENCE / "quant.bin").read_bytes()


def line_of(text: str, line: str, nth: int = 1) -> int:
    """Return the number of the nth line that begins with *line*."""
    return [i for i, found in enumerate(text.split("\n"), 1) if found.startswith(line)][nth - 1]


def edit(old: str, new: str, nth: int = 1) -> Callable[[str], str]:
    """Return a change of the nth line that begins with *old* into *new*."""

    def change(text: str) -> str:
        lines = text.split("\n")
        lines[line_of(text, old, nth) - 1] = new
        return "\n".join(lines)

    return change


def drop(key: str, nth: int = 1) -> Callable[[str], str]:
    """Return a change that removes the nth line of *key*."""

    def change(text: str) -> str:
        lines = text.split("\n")
        del lines[line_of(text, f"{key}=", nth) - 1]
        return "\n".join(lines)

    return change


TOP = line_of(TEXT, "layer_id=1")
Row = tuple[Callable[[str], str], int | tuple[str, int], str, str]


def line(new: str, what: str, nth: int = 1) -> Row:
    """Return the row for the nth line of a key that becomes *new*; the error stands at that line."""
    key = new.partition("=")[0]
    return edit(f"{key}=", new, nth), (f"{key}=", nth), key, what


ROWS: list[Row] = [
    # structure of the text
    (lambda text: "", 1, "model_name", "the file is empty"),
    (lambda text: "\n \n\t\n", 1, "model_name", "the file is empty"),
    (drop("model_name"), 1, "model_name", "missing in the section that starts here: write model_name=..."),
    (edit("model_name", "model_name="), 1, "model_name", "empty: write a value after '='"),
    line("group=1=2", "'1=2' holds a second '='"),
    (edit("group=", "group 1"), ("group 1", 1), "'group 1'", "no '=': every line is key=value"),
    (edit("group=", "# note"), ("# note", 1), "'# note'", "there are no comments"),
    (edit("group=", "=1"), ("=1", 1), "'=1'", "no key before '='"),
    (edit("group=", "group=\x001"), ("group=", 1), r"'group=\x001'", r"control character '\x00': remove it"),
    (edit("group=", "kernel_x=3"), ("kernel_x=3", 2), "kernel_x", f"already on line {line_of(TEXT, 'kernel_x')}"),
    (edit("group=", "compass.constants=3"), ("compass.", 1), "compass.constants", "are reserved: rename it"),
    (lambda text: text.replace("\n\nlayer_id=0", "\nlayer_id=0"), ("layer_id=0", 1), "layer_id", "end the header with"),
    (lambda text: text.replace("\n\nlayer_id=1", "\nlayer_id=1"), ("layer_id=1", 1), "layer_id", "already on line 6"),
    # header
    (edit("layer_number", "layer_number=3"), 2, "layer_number", "says 3, but 2 layers follow: write 2"),
    (edit("layer_number", "layer_number=two"), 2, "layer_number", "must be an integer, got 'two'"),
    (edit("layer_number", "layer_number=true"), 2, "layer_number", "must be an integer, got 'true'"),
    (edit("input_tensors", "input_tensors=in0"), 3, "input_tensors", "got 'in0': write a list of names like [a,b]"),
    (edit("input_tensors", "input_tensors=[in]"), 3, "input_tensors", "makes the tensor 'in'. Did you mean 'in0'?"),
    (edit("input_tensors", "input_tensors=[in0,in0]"), 3, "input_tensors", "[in0,in0] names a tensor twice"),
    line("input_tensors=[conv3x3_out]", "'conv3x3_out' is computed by layer 'conv3x3'"),
    (edit("output_tensors", "output_tensors=[y]"), 4, "output_tensors", "no layer makes the tensor 'y'"),
    (edit("output_tensors", "output_tensors=[]"), 4, "output_tensors", "names no tensor"),
    # layers
    *((drop(key, 2), TOP, key, "missing in the section that starts here") for key in (
        "layer_id", "layer_name", "layer_type", "layer_bottom", "layer_top", "layer_top_shape", "layer_top_type",
    )),
    line("layer_id=0", "'0' is used on line 6 already", nth=2),
    line("layer_id=x", "must be an integer, got 'x'", nth=2),
    line("layer_name=in0", "'in0' is used on line 7 already", nth=2),
    line("layer_bottom=[im0]", "'im0'. Did you mean 'in0'?", nth=2),
    line("layer_bottom=[in0,]", "a list item is empty", nth=2),
    line("layer_bottom=[conv3x3:weights]", "'conv3x3:weights'", nth=2),
    line("layer_bottom_shape=[[1,8,8,5]]", "says [[1,8,8,5]], the layers before say [[1,8,8,4]]", nth=2),
    line("layer_bottom_type=[int16]", "say [int8]: write that", nth=2),
    line("layer_top=[in0]", "tensor 'in0' is made on line 12 already", nth=2),
    (edit("layer_top=[conv", "layer_top=[conv3x3_out,b]"),
     ("layer_top_shape=", 2), "layer_top_shape", "1 entries for the 2 tensors"),
    line("layer_top_shape=[1,8,8,4]", "4 entries for the 1 tensors"),
    line("layer_top_shape=[5]", "'5' is not a shape"),
    line("layer_top_shape=[[1,8,8,-4]]", "size '-4': must be an integer from 1"),
    line("layer_top_shape=[[1,8,0,4]]", "size '0'"),
    line("layer_top_shape=[[1,8.0,8,4]]", "size '8.0'"),
    line("layer_top_shape=[[1,true,8,4]]", "size 'true'"),
    line("layer_top_shape=[[4294967296]]", "size '4294967296'"),
    line(f"layer_top_shape=[[{'1,' * 16}1]]", "17 axes: at most 16"),
    line("layer_top_type=[int9]", "no number format 'int9'. Did you mean"),
    line("layer_top_type=[8]", "no number format '8'"),
    line("layer_top_type=int8", "must be a list like [...], got 'int8'"),
    line("group=99999999999999999999", "99999999999999999999 is too large"),
    line("group=1e999", "1e999 is too large"),
    line(f"group={'[' * 17}{']' * 17}", "lists are nested deeper than 16"),
    line("group=[1,[2]", "1 ']' missing at the end of the list"),
    line("group=[1]]", "']' after the end of the list"),
    line("group=[[1][2]]", "a ',' is missing before '['"),
    # quantization numbers
    line("layer_top_scale=[nan]", "scale 'nan': must be a positive finite number"),
    line("layer_top_scale=[0.0]", "scale 0.0: must be a positive"),
    line("layer_top_scale=[-2.5]", "scale -2.5: must be a positive"),
    line("layer_top_scale=[inf]", "scale inf"),
    line("layer_top_scale=[1e39]", "scale 1e+39"),
    line("layer_top_scale=[1e-46]", "scale 1e-46"),
    line("layer_top_scale=[true]", "scale 'true'"),
    line("layer_top_scale=[1.0,2.0]", "2 entries for the 1 tensors"),
    line("layer_top_scale=[[1.0,2.0]]", "2 scales along axis -1 of shape [1, 8, 8, 4]"),
    (drop("layer_top_scale"), 6, "layer_top_scale", "missing next to layer_top_zp"),
    line("layer_top_zp=[-128]", "zero point -128: its negative must be one of the codes [-128, 127]"),
    line("layer_top_zp=[-2147483648]", "zero point -2147483648"),
    line("layer_top_zp=[1.5]", "zero point '1.5': must be an integer"),
    line("layer_top_zp=[]", "0 entries for the 1 tensors"),
    line("layer_top_range=[[-129,127]]", "[-129, 127] leaves the codes of int8"),
    line("layer_top_range=[[5,-5]]", "[5,-5]: must be a pair"),
    line("layer_top_range=[3]", "3: must be a pair"),
    line("layer_top_range=[]", "0 entries for the 1 tensors"),
    # constants
    (drop("weights_shape"), TOP, "weights_shape", "missing next to weights_type, weights_offset, weights_size"),
    (drop("weights_offset"), TOP, "weights_offset", "missing next to weights_type, weights_size, weights_shape"),
    line("weights_type=int7x", "no number format 'int7x'"),
    line("weights_size=215", "215 bytes, but shape [6, 3, 3, 4] of int8 takes 216"),
    (edit("weights_shape", "weights_shape=[6,3,3,5]"), ("weights_size", 1), "weights_size", "of int8 takes 270"),
    line("weights_shape=[6,3,3,0]", "size '0'"),
    (edit("weights_type", "weights_type=float32"), ("weights_size", 1), "weights_size", "of float32 takes 864"),
    line("weights_offset=-1", "216 bytes at offset -1 do not lie in"),
    line("weights_offset=200", "do not lie in"),
    line("weights_offset=1e3", "must be an integer, got '1e3'"),
    (edit("weights_offset", "weights_offset=[0]"),
     ("weights_type", 1), "weights_type", "must be a list of 1 like weights_offset"),
    line("shift_offset=250", "bytes 250 to 256 overlap scale_offset on line"),
    (edit("kernel_x", "weights=3"),
     ("weights_offset", 1), "weights_offset", "constant 'weights' is in this section already"),
    line("weights_type=bool", "bytes other than 0 and 1"),
    (edit("weights_type", "weights_type=aligned_int4"), 0, "graph 'conv3x3'", "tensor 'conv3x3:weights': code"),
    (edit("weights_zp_type", "weights_zp_type=float32"),
     ("weights_zp_offset", 1), "weights_zp_offset", "zero point '0.0': must be an integer"),
    (edit("biases_scale_shape", "biases_scale_shape=[5]"),
     ("biases_scale_size", 1), "biases_scale_size", "of float32 takes 20"),
]  # fmt: skip


IDS = [f"{number}-{row[2]}" for number, row in enumerate(ROWS)]


@pytest.mark.parametrize(("change", "place", "key", "what"), ROWS, ids=IDS)
def test_bad_text_is_refused_with_its_place(
    tmp_path: Path, change: Callable[[str], str], place: int | tuple[str, int], key: str, what: str
) -> None:
    """The message is `path:line: key: what`; the folder holds what it held before."""
    text = change(TEXT)
    assert text != TEXT
    path = tmp_path / "net.txt"
    path.write_text(text)
    (tmp_path / "net.bin").write_bytes(BLOB)
    line = line_of(text, *place) if isinstance(place, tuple) else place
    with pytest.raises(FormatError) as caught:
        read(path, tmp_path / "net.bin")
    message = str(caught.value)
    assert message.startswith(f"{path}:{line}: {key}: " if line else f"{path}: {key}: "), message
    assert what in message
    assert message.endswith((".", "?"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["net.bin", "net.txt"]


def test_bytes_that_are_not_utf8(tmp_path: Path) -> None:
    (tmp_path / "net.txt").write_bytes(TEXT.encode().replace(b"model_name=conv3x3\nl", b"model_name=conv3x3\n\xffl"))
    with pytest.raises(FormatError, match=r"net\.txt:2: byte 0xff is not UTF-8: save the text as UTF-8\."):
        read(tmp_path / "net.txt", REFERENCE / "quant.bin")


@pytest.mark.parametrize("name", ["absent", "folder", "nul\0", "long" * 99])
def test_a_missing_file_and_a_folder_are_refused_by_name(tmp_path: Path, name: str) -> None:
    (tmp_path / "folder").mkdir()
    for files in ((tmp_path / name, REFERENCE / "quant.bin"), (REFERENCE / "quant.txt", tmp_path / name)):
        with pytest.raises(
            FormatError, match=r"(absent|nul\\x00|long): no such file: name a file that exists\.|folder: not a file"
        ):
            read(*files)


def test_a_truncated_bin_file_is_refused(tmp_path: Path) -> None:
    """Every truncation is refused, and the message tells both numbers."""
    (tmp_path / "net.txt").write_text(TEXT)
    for size in range(0, len(BLOB), 7):
        (tmp_path / "net.bin").write_bytes(BLOB[:size])
        with pytest.raises(FormatError, match=rf"net\.txt:\d+: \w+_offset: .* which has {size} bytes"):
            read(tmp_path / "net.txt", tmp_path / "net.bin")


@pytest.mark.parametrize(
    ("offset", "number", "where"),
    [
        (258, float("nan"), "weights_scale_offset: scale nan"),
        (262, 0.0, "weights_scale_offset: scale 0.0"),
        (306, -1.0, "biases_scale_offset: scale -1.0"),
    ],
)
def test_bad_scales_of_constants(tmp_path: Path, offset: int, number: float, where: str) -> None:
    raw = bytearray(BLOB)
    raw[offset : offset + 4] = torch.tensor(number).numpy().tobytes()
    (tmp_path / "net.bin").write_bytes(raw)
    with pytest.raises(FormatError, match=rf"quant\.txt:\d+: {where}: must be a positive finite number"):
        read(REFERENCE / "quant.txt", tmp_path / "net.bin")


def test_constant_zero_points_outside_their_codes_are_refused(tmp_path: Path) -> None:
    raw = bytearray(BLOB)
    raw[282:286] = torch.tensor(-200, dtype=torch.int32).numpy().tobytes()
    (tmp_path / "net.bin").write_bytes(raw)
    with pytest.raises(FormatError, match=r"weights_zp_offset: zero point -200: its negative must be one of the codes"):
        read(REFERENCE / "quant.txt", tmp_path / "net.bin")


def test_nan_weights_are_refused_by_name(tmp_path: Path) -> None:
    source = REFERENCE.parent / "default"
    raw = bytearray((source / "float.bin").read_bytes())
    raw[4:8] = torch.tensor(torch.nan).numpy().tobytes()
    (tmp_path / "net.bin").write_bytes(raw)
    with pytest.raises(
        FormatError, match=r"float\.txt: graph 'conv3x3': tensor 'conv3x3:weights': NaN at \[0, 0, 0, 1\]"
    ):
        read(source / "float.txt", tmp_path / "net.bin")


def test_overlapping_constants_do_not_multiply_memory(tmp_path: Path) -> None:
    """Constants may share all their bytes; a thousand that overlap are refused before they fill the memory."""
    (tmp_path / "net.bin").write_bytes(bytes(1000))
    header = "model_name=m\n\nlayer_id=0\nlayer_name=a\nlayer_type=Source\nlayer_bottom=[]\nlayer_top=[a]\n"
    header += "layer_top_shape=[[1]]\nlayer_top_type=[float32]\n"

    def constants(step: int) -> str:
        rows = (
            f"c{i}_type=uint8\nc{i}_offset={i * step}\nc{i}_size=500\nc{i}_shape=[500]"
            for i in range(2 + 100 // (1 + step))
        )
        return "\n".join(rows)

    (tmp_path / "net.txt").write_text(header + constants(0))
    assert read(tmp_path / "net.txt", tmp_path / "net.bin").tensors["a:c101"].shape == (500,)
    (tmp_path / "net.txt").write_text(header + constants(1))
    with pytest.raises(FormatError, match=r"c1_offset: bytes 1 to 501 overlap c0_offset on line 11"):
        read(tmp_path / "net.txt", tmp_path / "net.bin")


def test_overlapping_constants_are_refused_before_reading_all() -> None:
    """As soon as the claims exceed the file, not when everything was read."""
    entries = {key: Entry(key, "0", number) for number, key in enumerate(("a", "b"), 1)}
    section = Section("net.txt", 1, entries)
    with (REFERENCE / "quant.bin").open("rb") as file:
        blob = Blob("net.bin", file)
        assert len(blob.take(section, "a", 0, blob.size)) == len(BLOB)
        assert len(blob.take(section, "a", 0, blob.size)) == len(BLOB)
        with pytest.raises(FormatError, match=r"net\.txt:2: b: bytes 1 to 338 overlap a on line 1"):
            blob.take(section, "b", 1, blob.size - 1)


def _renamed(**changes: object) -> Callable[[Graph], Graph]:
    return lambda graph: graph.with_node(replace(graph.node("conv3x3"), **changes))  # type: ignore[arg-type]


def _attr(key: str, value: object) -> Callable[[Graph], Graph]:
    def change(graph: Graph) -> Graph:
        node = graph.node("conv3x3")
        return graph.with_node(replace(node, attrs={**node.attrs, key: value}))  # type: ignore[dict-item]

    return change


UNWRITABLE: list[tuple[Callable[[Graph], Graph], str]] = [
    (lambda graph: graph.with_(name="a=b"), "graph 'a=b': model_name: 'a=b' has a '='"),
    (lambda graph: graph.with_(name=""), "model_name: empty: give it a name"),
    (
        lambda graph: graph.with_(nodes=graph.nodes[1:]),
        "input 'in0' has no Input layer: pass the graph through foreign()",
    ),
    (
        _renamed(op="conv2d", extra={}),
        "layer 'conv3x3': 'conv2d' is not a Compass layer: pass the graph through foreign()",
    ),
    (_renamed(op="Conv\n"), "layer_type: 'Conv\\n' has a '=', a control character"),
    (_renamed(extra={}), "input 'conv3x3:weights' is a constant without a Compass name"),
    (_renamed(inputs=("in0", None, "conv3x3:biases")), "an input is absent"),
    (_attr("group", "5"), "group: '5' would be read back as 5"),
    (_attr("group", float("nan")), "would be read back as 'nan'"),
    (_attr("group", 1 << 64), "too large"),
    (_attr("group", ("a,b",)), "would be read back as"),
    (_attr("layer_top", 1), "parameter 'layer_top': the layer's own lines"),
    (_attr("weights_type", 1), "parameter 'weights_type': the layer's own lines or constants"),
    (_attr("x=y", 1), "'x=y' has a '='"),
    (_attr("", 1), "parameter: empty"),
    (
        lambda graph: graph.with_tensors(replace(graph.tensor("in0"), dtype=DTYPES["int48"], qparams=None)),
        "has no int48",
    ),
    (lambda graph: graph.with_(outputs=("gone",)), "output 'gone': no such tensor"),
]


@pytest.mark.parametrize(("change", "what"), UNWRITABLE)
def test_an_unwritable_graph_writes_no_file(tmp_path: Path, change: Callable[[Graph], Graph], what: str) -> None:
    graph = change(read(REFERENCE / "quant.txt", REFERENCE / "quant.bin"))
    with pytest.raises(QuantizerError, match=re.escape(what)):
        write(graph, tmp_path / "net.txt", tmp_path / "net.bin")
    assert list(tmp_path.iterdir()) == []


def test_names_with_commas_cannot_be_written(tmp_path: Path) -> None:
    graph = read(REFERENCE / "quant.txt", REFERENCE / "quant.bin")
    tensor = replace(graph.tensor("in0"), name="a,b")
    layer: Node = replace(graph.node("in0"), outputs=("a,b",))
    broken = graph.with_(nodes=(layer,), tensors={"a,b": tensor}, inputs=("a,b",), outputs=("a,b",))
    with pytest.raises(FormatError, match="a name must not be empty, or hold ','"):
        write(broken, tmp_path / "net.txt", tmp_path / "net.bin")
    assert list(tmp_path.iterdir()) == []


def test_a_failed_write_leaves_the_old_files(tmp_path: Path) -> None:
    """Neither file changes when one cannot be replaced, and no draft remains."""
    graph = read(REFERENCE / "quant.txt", REFERENCE / "quant.bin")
    (tmp_path / "net.bin").write_bytes(b"old")
    with pytest.raises(FormatError, match=r"net\.txt: cannot be written: "):
        write(graph, tmp_path / "net.bin" / "net.txt", tmp_path / "other.bin")
    with pytest.raises(FormatError, match="text and constants need a file each"):
        write(graph, tmp_path / "net.bin", tmp_path / "net.bin")
    assert (tmp_path / "net.bin").read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["net.bin"]
