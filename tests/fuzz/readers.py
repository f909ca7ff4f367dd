"""Every reader of files that others write, with a sound file of its own and the mutations that know its form."""

from __future__ import annotations

import io
import json
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree as ET

import mutations as m
import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "unit"))
from top_graphs import convolution

from quantizer.conformance.campaign.journal import JOURNAL, PLAN, Journal
from quantizer.conformance.campaign.plan import Plan
from quantizer.conformance.campaign.record import Totals
from quantizer.conformance.campaign.work import Tally
from quantizer.conformance.defects.gallery import OUTCOMES, read_outcomes
from quantizer.conformance.faults.without_effect import FILE, read_places
from quantizer.conformance.generation.builder import build_case
from quantizer.conformance.generation.choice_sources import HashChoices
from quantizer.conformance.generation.hashing import key
from quantizer.conformance.real.reports import FOLDER, SAMPLES, read_reports, read_samples
from quantizer.conformance.setup.options import Options
from quantizer.conformance.setup.session import open_session
from quantizer.conformance.setup.xfails import read_xfails
from quantizer.conformance.stored.files import read_goldens, read_replay
from quantizer.conformance.target import Target
from quantizer.conformance.trials.trial import Trial
from quantizer.conformance.vectors.difference import differences
from quantizer.conformance.vectors.export import bundle
from quantizer.conformance.vectors.judging import judge, records
from quantizer.conformance.vectors.reading import opened
from quantizer.core.case import Case
from quantizer.core.dtypes import dtype
from quantizer.core.facts import Facts
from quantizer.core.graph_spec import load_graph_spec
from quantizer.core.library import load_library, load_schemes, load_spec, read_platform
from quantizer.core.rooms import DISTRIBUTION, _declared
from quantizer.core.vectors import MANIFEST
from quantizer.ir.formats import compass, top_mlir
from quantizer.ir.formats.npz import read_npy, read_npz, zip_bytes
from quantizer.ir.graph import FREE, Graph, Tensor
from quantizer.optimize.cfg import parse_cfg
from quantizer.optimize.datasets import read_array, read_columns
from quantizer.optimize.per_layer import LayerKey
from quantizer.optimize.pickled_arrays import read_arrays
from quantizer.optimize.settings import read_opt_config
from quantizer.reporting import history, junit, page, terminal
from quantizer.reporting.annotations import annotate
from quantizer.reporting.diff import compare
from quantizer.reporting.history import ratios, runs, trend
from quantizer.reporting.machine import MACHINE, machine_of
from quantizer.reporting.statement import read_statement, state
from quantizer.reporting.store import read_kills, read_run, read_run_facts, read_timings
from quantizer.reporting.thresholds import read_thresholds
from quantizer.runtime.engines import frames
from quantizer.runtime.engines.builtin import BuiltinEngine
from quantizer.runtime.engines.greeting import greeting_of
from quantizer.runtime.engines.serve import PROTOCOL
from quantizer.runtime.isolation import wire
from quantizer.runtime.sample_data import read_batches

ROOT = Path(__file__).parents[2]
CASES, SPECS = ROOT / "cases", ROOT / "op_specs"
CONTROL = {*map(chr, range(32)), "\x7f", "\x85", "\x9b", "\u202e"} - {"\n", "\t"}


@dataclass(frozen=True)
class Reader:
    """One reader: file name, valid content, function that reads it, mutations, and frequency."""

    name: str
    file: str
    sound: bytes
    read: Callable[[Path], object]
    forms: tuple[m.Mutation, ...] = ()
    weight: int = 4
    beside: tuple[tuple[str, bytes], ...] = ()


def _first(pattern: str) -> Path:
    return min(CASES.glob(pattern))


def _of_records(path: Path) -> None:
    """Read records and write every report of them: no control character reaches one, and JUnit stays XML."""
    records = read_run(path)
    ET.fromstring(junit.render(records).encode())
    shown = ["\n".join(annotate(records)), page.render(records, title="run", diff=compare(SOUND, records))]
    assert not CONTROL.intersection("".join(shown)), "a control character reaches a report"
    "".join(terminal.render(records))


def _of_history(path: Path) -> None:
    trend(path)
    ratios(path)
    for name in runs(path):
        history.of_run(path, name)


def _of_journal(path: Path) -> None:
    totals = Totals()
    for entry in Journal(path.parent, PLANNED).entries():
        totals.add(entry)
    totals.record(PLANNED, "tree")


def _bytes(write: Callable[[Path], object]) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "made"
        write(path)
        return path.read_bytes()


def _npy(values: object, **options: bool) -> bytes:
    stream = io.BytesIO()
    np.save(stream, np.asarray(values), **options)
    return stream.getvalue()


XFAILS = b"""xfails:
- {id: off, ops: [add], platforms: [ort], predicate: "True", checks: [arithmetic], reason: r, since: 2026-01-01, owner: o, expires: 2027-01-01, case: c.json}
"""
LAYERS = {name: LayerKey(number, name, "Convolution") for number, name in enumerate(("conv", "add"))}
PLANNED = Plan(("relu-a8-ideal", "add-a8-ort"), 130, 1)
SOUND = read_run(ROOT / "reports/baselines/gate.jsonl")[:6]
RECORDS = b"".join((ROOT / "reports/baselines/gate.jsonl").read_bytes().splitlines(keepends=True)[:6])
FACTS = {
    "quantizer": "1",
    "python": "3.11.0",
    "packages": {"numpy": "2"},
    "engine": "builtin",
    "profile": "gate",
    "seed": None,
    "checks": ["float"],
    "selection": [],
    "arguments": "",
    "files": {"op_specs/schemes.yaml": "0" * 64},
    "shard": "1/3",
    "specs": {"abs": {"version": "1", "path": "op_specs/abs.yaml", "sha256": "0" * 64, "lines": {"op": 1}}},
    "tree": {"commit": "0" * 40, "tree": "0" * 40, "date": "2026-01-01", "clean": True},
}
FIGURES = history.Figures(0.5, 30.0, 1.0, 4, 0, 1, 3, 4)
DICT = {"x": np.arange(6, dtype=np.float32).reshape(2, 3), "y": np.arange(2)}
COMPASS = CASES / "reference/compass/elt_add/default"
REPLAY = min((ROOT / "quantizer/platforms/compass/cases/defects").glob("*.json")).read_bytes()
CASE = Case.from_dict(json.loads(REPLAY)["case"], "replay")


def _entry() -> bytes:
    tally = Tally(0, "relu-a8-ideal")
    tally.broke("no case could be built")
    whole = json.loads(tally.to_json())
    whole["failures"].append({"cause": "c", "check": "float", "finding": "f", "case": CASE.to_json()})
    whole |= {"checks": {"float": {"pass": 3}}, "histograms": {"float": [0] * 21}}
    shrunk = {"shrunk": "c", "of": 0, "case": CASE.to_json()}
    return b"".join(json.dumps(entry, sort_keys=True).encode() + b"\n" for entry in (whole, shrunk))


def _mlir(path: Path) -> None:
    top_mlir.from_bytes(path.read_text("utf-8", "replace"), WEIGHTS, "module")


def _module() -> tuple[str, dict[str, np.ndarray]]:
    text, packed = top_mlir.to_bytes(convolution(), "net", "TOP_QUANTIZED")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "net.npz"
        path.write_bytes(packed)
        return text, read_npz(path)


MODULE, WEIGHTS = _module()


def _vectors() -> dict[str, bytes]:
    """Return the files of a small bundle."""
    library = open_session(Options(root=ROOT)).library
    target = Target(library.spec("relu"), library.scheme("a8"), library.platform("ideal"))
    return bundle([target], 2, 1, 1 << 20)


def _of_vectors(path: Path) -> None:
    """Read all of a bundle, judge invalid results, and compare it with itself."""
    with opened(path) as one, opened(path) as other:
        for case in one.manifest.cases:
            for operand in case.operands:
                one.array(operand.values)
        records(judge(one, path.parent))
        list(differences(one, other))


def _message(frame: frames.Frame) -> bytes:
    stream = io.BytesIO()
    frames.send(stream, frame)
    return stream.getvalue()


def _of_answers(path: Path) -> None:
    """Read an engine's answer to two jobs."""
    with path.open("rb") as stream:
        if (frame := frames.receive(stream)) is not None:
            frames.replies(frame, JOBS)


def _of_greeting(path: Path) -> None:
    with path.open("rb") as stream:
        if (frame := frames.receive(stream)) is not None:
            greeting_of(frame.header)


def _of_plugin(path: Path) -> None:
    """Read the result of a plugin's function."""
    with path.open("rb") as stream:
        if (frame := frames.receive(stream)) is not None:
            wire.Reader(frame.arrays, lambda _: PLATFORM, lambda _, __: None).read(frame.header.get("result"))


def _given() -> bytes:
    """Return the message that holds parameters of a case."""
    writer = wire.Writer(lambda _: 0, lambda _: (1, 1))
    library = open_session(Options(root=ROOT)).library
    target = Target(library.spec("conv2d"), library.scheme("w8a8"), PLATFORM)
    choices = HashChoices(key(1, target.id), {})
    trial = Trial(target, build_case(target, choices), BuiltinEngine())
    return _message(frames.Frame({"result": writer.write(trial.parameters)}, arrays=writer.arrays))


PLATFORM = load_library().platform("ideal")
JOBS = (
    frames.Job(b"", {}, declared=(("int8", (2, 3)),)),
    frames.Job(b"", {}),
)
ANSWERS = frames.Frame({"replies": [{"outputs": 1}, {"outputs": 0, "error": "no"}]}, arrays=(np.ones((2, 3), np.int8),))
GREETING = {"protocol": PROTOCOL, "name": "sim", "version": "1", "form": "npz", "operators": ["relu"], "floats": True}
PROJECT = f'[project]\nname = "{DISTRIBUTION}"\n[project.entry-points."quantizer.engines"]\nsim = "a.b:C"\n'.encode()
VECTORS = _vectors()
FED = Graph("fed", (), {"x": Tensor("x", (FREE, 3), dtype("float32"))}, ("x",), ("x",))
JSON = (m.json_line, m.json_line, m.json_line)
READERS = (
    Reader("records", "records.jsonl", RECORDS, _of_records, JSON, 10),
    Reader("run facts", "run.json", json.dumps(FACTS).encode(), lambda path: read_run_facts(path.parent), JSON, 6),
    Reader("timings", "timings.jsonl", b'{"id":"a","seconds":1.5}\n{"id":"b","seconds":2}\n', lambda path: read_timings(path.parent), JSON, 6),
    Reader("kills", "kills.json", b'{"pairs": [{"fault": "f", "op": "add", "outcome": "killed"}]}', read_kills, JSON, 6),
    Reader("statement", "s.json", state(SOUND, Facts.model_validate(FACTS)).to_json().encode(), lambda path: read_statement(path.read_text("utf-8", "replace"), "s"), JSON, 2),
    Reader("replay", "replay.json", REPLAY, read_replay, JSON, 8),
    Reader("golden", "add.jsonl", b"".join((CASES / "golden/add.jsonl").read_bytes().splitlines(keepends=True)[:5]), read_goldens, JSON, 4),
    Reader("faults without effect", FILE.name, b'{"fault": "f", "ops": ["add"], "reason": "r"}\n', lambda path: read_places(path.parents[1]), JSON, 4),
    Reader("plan", PLAN, PLANNED.to_json().encode(), lambda path: Journal(path.parent, PLANNED), JSON, 8),
    Reader("journal", JOURNAL, _entry(), _of_journal, JSON, 8, beside=((PLAN, PLANNED.to_json().encode()),)),
    Reader("history", "h.sqlite", _bytes(lambda path: [history.append(path, f"run {n}", {"add": FIGURES, "mul": FIGURES}) for n in (1, 2)]), _of_history, (m.flip,), 6),
    Reader("tox.ini", "tox.ini", b"[quantizer]\nfail_on = new-failure, coverage\nfactor = 1.25\nlsb = 0.25\n", lambda path: read_thresholds(path.parent), (), 8),
    Reader("pyproject", "pyproject.toml", b'[tool.quantizer]\nfail_on = ["coverage"]\nfactor = 1.5\nlsb = 0\n', lambda path: read_thresholds(path.parent), (), 8),
    Reader("npz", "a.npz", m.arrays(**DICT), read_npz, (m.archive, m.archive), 8),
    Reader("npy", "a.npy", _npy(DICT["x"]), read_npy, (m.npy_header, m.npy_header), 8),
    Reader("pickled npy", "d.npy", _npy(DICT, allow_pickle=True), read_arrays, (m.npy_header,), 10),
    Reader("columns", "d.npy", _npy(DICT, allow_pickle=True), read_columns, (m.npy_header,), 4),
    Reader("list of files", "list.txt", b"a.npy\na.npy\n# comment\n", read_array, (), 4, beside=(("a.npy", _npy(DICT["x"])),)),
    Reader("cfg", "opt.cfg", (COMPASS / "opt.cfg").read_bytes(), lambda path: parse_cfg(path.read_bytes().decode("utf-8", "replace"), path), (m.digits,), 6),
    Reader("opt_config", "c.json", b'{"conv": {"q_bits_weight": "8"}, "add": {}}', lambda path: read_opt_config(path, LAYERS), JSON, 4),
    Reader("Compass IR", "quant.txt", (COMPASS / "quant.txt").read_bytes(), lambda path: compass.read(path, path.with_suffix(".bin")), (m.digits,), 3,
           beside=(("quant.bin", (COMPASS / "quant.bin").read_bytes()),)),
    Reader("Top MLIR", "module.mlir", MODULE.encode(), _mlir, (m.digits,), 4),
    Reader("spec", "relu.yaml", (SPECS / "relu.yaml").read_bytes(), load_spec, (m.digits,), 2),
    Reader("platform", "ort.yaml", load_library().platform_paths["ort"].read_bytes(), read_platform, (m.digits,), 1),
    Reader("schemes", "schemes.yaml", (SPECS / "schemes.yaml").read_bytes(), load_schemes, (m.digits,), 1),
    Reader("graph spec", "add_relu.yaml", (ROOT / "graph_specs/add_relu.yaml").read_bytes(), load_graph_spec, (m.digits,), 3),
    Reader("gallery", OUTCOMES.name, (ROOT / OUTCOMES).read_bytes()[:2000].rpartition(b"},")[0] + b"}}", read_outcomes, JSON, 4),
    Reader("reports of bugs", f"{FOLDER}/reports.jsonl", b"".join((CASES / FOLDER / "reports.jsonl").read_bytes().splitlines(keepends=True)[:5]),
           lambda path: read_reports(path.parents[1]), JSON, 4),
    Reader("samples of bugs", f"{FOLDER}/{SAMPLES}", (CASES / FOLDER / SAMPLES).read_bytes(), lambda path: read_samples(path.parents[1]), JSON, 3),
    Reader("machine", MACHINE, b'{"version": 1, "processor": "x86", "kernels": {"torch": "AVX2"}, "figures": {"relu-a8-ideal": {"float": 0.5}}}',
           lambda path: machine_of(path.parent), JSON, 4),
    Reader("manifest of vectors", MANIFEST, VECTORS[MANIFEST], lambda path: _of_vectors(path.parent), JSON, 4,
           beside=tuple((name, content) for name, content in VECTORS.items() if name != MANIFEST)),
    Reader("zip of vectors", "b.zip", zip_bytes(VECTORS), _of_vectors, (m.archive,), 4),
    Reader("samples", "s.npz", m.arrays(x=np.ones((4, 3), np.float32)), lambda path: read_batches(path, FED, 2), (m.archive, m.archive), 4),
    Reader("sample", "s.npy", _npy(np.ones((4, 3), np.float32)), lambda path: read_batches(path, FED, 2), (m.npy_header, m.npy_header), 4),
    Reader("xfails", "x.yaml", XFAILS, read_xfails, (m.digits,), 3),
    Reader("answers of an engine", "answers", _message(ANSWERS), _of_answers, (m.message, m.message), 4),
    Reader("greeting of an engine", "greeting", _message(frames.Frame(GREETING)), _of_greeting, (m.message, m.message), 4),
    Reader("answer of a plugin", "answer", _given(), _of_plugin, (m.message, m.message, m.message), 6),
    Reader("entry points of a checkout", "pyproject.toml", PROJECT, lambda path: _declared(path, "quantizer.engines"), (), 3),
    *(Reader(f"platform {name}", f"{name}.yaml", load_library().platform_paths[name].read_bytes(), read_platform, (m.digits,), 1)
      for name in ("ideal", "compass", "tosa", "tflite_ref", "xnnpack", "torch_x86", "tpulang")),
)  # fmt: skip


def _quantized() -> bytes:
    """Return a model of one quantized operator."""
    from onnx import TensorProto, helper, numpy_helper

    constants = {"xs": np.float32(0.02), "xz": np.uint8(3), "ys": np.float32(0.03), "yz": np.uint8(1)}
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "xs", "xz"], ["xq"]),
        helper.make_node("DequantizeLinear", ["xq", "xs", "xz"], ["xd"]),
        helper.make_node("Relu", ["xd"], ["c"], "first"),
        helper.make_node("QuantizeLinear", ["c", "ys", "yz"], ["cq"]),
        helper.make_node("DequantizeLinear", ["cq", "ys", "yz"], ["y"]),
    ]
    value = helper.make_tensor_value_info
    ends = [value("x", TensorProto.FLOAT, [2, 3])], [value("y", TensorProto.FLOAT, None)]
    held = [numpy_helper.from_array(np.asarray(values), name) for name, values in constants.items()]
    graph = helper.make_graph(nodes, "net", *ends, held)
    made: bytes = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8
    ).SerializeToString()
    return made


def _of_nodes(path: Path) -> None:
    """Take the steps of `quantizer case from-onnx` before judging."""
    from quantizer.conformance.models.from_onnx import cuts_of
    from quantizer.runtime.onnx_model import load_onnx_graph
    from quantizer.runtime.sample_data import synthetic_batches

    graph = load_onnx_graph(path)
    cuts_of(graph, synthetic_batches(graph, 0, 1, 1)[0], open_session(Options(root=ROOT)), "ort")


def optional() -> list[Reader]:
    """Return the readers of formats that need packages of the extras."""
    try:
        import onnx
        from onnx import TensorProto, helper
    except ImportError:
        return []
    from quantizer.ir.formats import caffe
    from quantizer.ir.formats import onnx as onnx_format
    from quantizer.ir.formats.caffe_proto import net_parameter

    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["h"]), helper.make_node("Add", ["h", "w"], ["y"])],
        "g",
        [value("x", TensorProto.FLOAT, [1, 3])],
        [value("y", TensorProto.FLOAT, [1, 3])],
        [helper.make_tensor("w", TensorProto.FLOAT, [3], [1.0, 2.0, 3.0])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    text = b'input: "x" input_shape { dim: 1 dim: 4 }\nlayer { name: "l" type: "InnerProduct" bottom: "x" top: "y" inner_product_param { num_output: 2 } }\n'
    net = net_parameter()()
    layer = net.layer.add(name="l")
    for shape in ((2, 4), (2,)):
        blob = layer.blobs.add(data=[1.0] * int(np.prod(shape)))
        blob.shape.dim.extend(shape)
    weights = net.SerializeToString()
    return [
        Reader("nodes of a model", "q.onnx", _quantized(), _of_nodes, (), 3),
        Reader("ONNX", "m.onnx", model.SerializeToString(), onnx_format.load, (), 5),
        Reader(
            "prototxt",
            "n.prototxt",
            text,
            lambda path: caffe.load(path, path.with_suffix(".caffemodel")),
            (m.digits,),
            4,
            beside=(("n.caffemodel", weights),),
        ),
        Reader(
            "caffemodel",
            "n.caffemodel",
            weights,
            lambda path: caffe.load(path.with_suffix(".prototxt"), path),
            (),
            4,
            beside=(("n.prototxt", text),),
        ),
    ]
