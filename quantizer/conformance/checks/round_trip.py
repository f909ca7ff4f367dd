"""round_trip: written to every format that can hold it and read back, the graph gives the same numbers."""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch

from quantizer.conformance.checks.elements import judge_codes
from quantizer.conformance.trial import Trial
from quantizer.core.dtypes import dtype
from quantizer.core.errors import QuantizerError
from quantizer.core.verdict import Verdict, failure, hole
from quantizer.ir.formats import compass
from quantizer.ir.graph import Graph, Node, Tensor
from quantizer.runtime.executor import to_node_order, to_operator_order

CHECK = "round_trip"


def round_trip(trial: Trial) -> Verdict | None:
    """Write the float graph as Compass IR, read it back, quantize and run it again: the same codes.

    None where the format cannot hold the case.
    """
    form = trial.spec.formats.compass
    if form is None:
        return hole(CHECK, "no file format holds this operator")
    try:
        written = compass.foreign(float_graph(trial), {trial.spec.op: trial.spec})
    except QuantizerError:
        return None
    with tempfile.TemporaryDirectory(prefix="quantizer-") as folder:
        paths = Path(folder, "graph.txt"), Path(folder, "graph.bin")
        compass.write(written, *paths)
        back = compass.native(compass.read(*paths), {trial.spec.op: trial.spec})
    node = next((item for item in back.nodes if item.op == trial.spec.op), None)
    if node is None:
        return failure(CHECK, "the operator is not recognised in the file that was written")
    again = _read_back(trial, back, node)
    if isinstance(again, Verdict):
        return again
    got = again.outcome.codes.numpy()
    return judge_codes(CHECK, trial, trial.got, trial.got, got=got, made_of="the codes before the graph was written")


def _read_back(trial: Trial, graph: Graph, node: Node) -> Trial | Verdict:
    """Return the trial of the graph that was read; a failure where attributes, shapes or constants changed."""
    attrs = {name: node.attrs[name] for name in trial.spec.attrs if name in node.attrs}
    missing = trial.case.attrs.keys() - attrs.keys()
    lost = {name: trial.case.attrs[name] for name in missing}
    changed = [name for name, value in attrs.items() if value != trial.case.attrs[name]]
    if changed:
        name = changed[0]
        return failure(CHECK, f"attribute {name} was {trial.case.attrs[name]!r} and came back as {attrs[name]!r}")
    again = Trial(trial.target, trial.case.but(attrs={**attrs, **lost}), trial.engine)
    tensors = dict(trial.tensors)
    for name, read_name in zip(trial.spec.inputs, node.inputs, strict=False):
        item = trial.spec.inputs[name]
        if read_name is None or item.role == "activation":
            continue
        data = graph.tensor(read_name).data
        if data is None:
            return failure(CHECK, f"constant {name} came back without values")
        values = to_operator_order(data, node.order, spatial=item.spatial)
        if values.shape != trial.tensors[name].shape or not torch.equal(values, trial.tensors[name]):
            return failure(CHECK, f"constant {name} came back with other values")
        tensors[name] = values
    again.__dict__["tensors"] = tensors
    return again


def float_graph(trial: Trial) -> Graph:
    """Return the case as a float graph in the order of Compass files (channels last), constants included."""
    spec, tensors = trial.spec, {}
    for name, values in trial.tensors.items():
        arranged = to_node_order(values, "channels_last", spatial=spec.inputs[name].spatial).contiguous()
        constant = spec.inputs[name].role != "activation"
        tensors[name] = Tensor(name, tuple(arranged.shape), dtype("float32"), arranged if constant else None)
    output = next(iter(spec.outputs.values()))
    shape = tuple(to_node_order(torch.empty(trial.output_shape), "channels_last", spatial=output.spatial).shape)
    tensors["y"] = Tensor("y", shape, dtype("int32" if output.kind == "index" else "float32"))
    inputs = tuple(name if name in trial.tensors else None for name in spec.inputs)
    node = Node(spec.op, spec.op, inputs, ("y",), trial.case.attrs, "channels_last")
    feeds = tuple(name for name in trial.tensors if spec.inputs[name].role == "activation")
    return Graph(spec.op, (node,), tensors, feeds, ("y",))
