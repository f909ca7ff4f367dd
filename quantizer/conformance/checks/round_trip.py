"""round_trip: written to every format that can hold it and read back, the graph gives the same numbers."""

from __future__ import annotations

import math

import torch

from quantizer.conformance.trials.trial import Trial
from quantizer.core.case import AttrValue, AxisOrder
from quantizer.core.dtypes import dtype
from quantizer.core.errors import UnsupportedError
from quantizer.core.layer_format import LayerFormat
from quantizer.core.shapes import tensor_shapes
from quantizer.core.verdict import Verdict, failure, inconclusive, passed
from quantizer.ir.formats.layer_files import LayerFile, layer_files, written_and_read
from quantizer.ir.graph import Graph, Node, Tensor
from quantizer.runtime.executor import to_node_order

CHECK = "round_trip"


def round_trip(trial: Trial) -> Verdict | None:
    """Write the float graph to each format that holds it and read it back: it is the same, bit for bit.

    Then the codes are equal, too, because every part of a run is a function of the graph. Inconclusive where no format
    can hold the case.
    """
    files = layer_files(trial.spec)
    if not files:
        return inconclusive(CHECK, "no file format holds this operator")
    verdicts = [_through(trial, file, trial.spec.formats[name]) for name, file in files.items()]
    decided = [verdict for verdict in verdicts if verdict.status != "inconclusive"]
    # a failure in any format fails; otherwise a verdict that decides comes before an inconclusive one
    return next((verdict for verdict in decided if verdict.failing), (decided or verdicts)[0])


def _through(trial: Trial, file: LayerFile, form: LayerFormat) -> Verdict:
    """Return the verdict on one file format."""
    specs = {trial.spec.op: trial.spec}
    try:
        written = file.foreign(float_graph(trial, file.ORDER), specs)
    except UnsupportedError as err:
        return inconclusive(CHECK, str(err))
    back = written_and_read(file, written, specs)
    node = next((item for item in back.nodes if item.op == trial.spec.op), None)
    if node is None:
        return failure(CHECK, "the operator is not recognised in the file that was written")
    return _difference(trial, back, node, form, file.ORDER) or passed(CHECK, elements=math.prod(trial.output_shape))


def _difference(trial: Trial, graph: Graph, node: Node, form: LayerFormat, order: AxisOrder) -> Verdict | None:
    """Return a failure where attributes, shapes or constants came back changed."""
    if node.activation != trial.case.activation:
        return failure(CHECK, f"the fused activation was {trial.case.activation} and came back as {node.activation}")
    for name, value in _written_attrs(trial, form).items():
        if node.attrs.get(name) != value:
            return failure(CHECK, f"attribute {name} was {value!r} and came back as {node.attrs.get(name)!r}")
    # a file leaves out absent operands at the end, so `node.inputs` may be shorter
    for name, read_name in zip(trial.spec.inputs, node.inputs, strict=False):
        if read_name is not None and name not in trial.tensors and _holds_zeros(form, graph.tensor(read_name), name):
            continue
        if (read_name is None) != (name not in trial.tensors):
            return failure(CHECK, f"operand {name} came back {'absent' if read_name is None else 'present'}")
        if read_name is None:
            continue
        item, tensor = trial.spec.inputs[name], graph.tensor(read_name)
        wanted = to_node_order(trial.tensors[name], order, spatial=item.spatial)
        if tensor.shape != tuple(wanted.shape):
            return failure(CHECK, f"operand {name} came back with shape {list(tensor.shape)}, was {list(wanted.shape)}")
        if item.role != "activation" and (tensor.data is None or not torch.equal(tensor.data, wanted)):
            return failure(CHECK, f"constant {name} came back with other values")
    made = [tuple(graph.tensor(name).shape) for name in node.outputs]
    if made != (wanted_shapes := _output_shapes(trial, order)):
        return failure(CHECK, f"outputs came back with shapes {made}, were {wanted_shapes}")
    return None


def _output_shapes(trial: Trial, order: AxisOrder) -> list[tuple[int, ...]]:
    """Return the shape of every tensor that the operator makes, in *order*."""
    spatial = next(iter(trial.spec.outputs.values())).spatial
    shapes = tensor_shapes(trial.spec, trial.case.shapes, trial.case.attrs)
    return [tuple(to_node_order(torch.empty(shape), order, spatial=spatial).shape) for shape in shapes]


def _written_attrs(trial: Trial, form: LayerFormat) -> dict[str, AttrValue]:
    """Return the attributes as the file stores them: axes from the front if the format has no negative ones."""
    attrs, rank = trial.case.attrs, len(next(iter(trial.case.shapes.values())))
    return {
        name: value % rank if name in form.from_front and isinstance(value, int) else value
        for name, value in attrs.items()
    }


def _holds_zeros(form: LayerFormat, tensor: Tensor, name: str) -> bool:
    """Return whether *tensor* is the zeros that a file has for absent operand *name*."""
    return name in form.zeros and tensor.data is not None and not bool(tensor.data.any())


def float_graph(trial: Trial, order: AxisOrder) -> Graph:
    """Return the case as a float graph whose spatial tensors have *order*, constants included."""
    spec, tensors = trial.spec, {}
    for name, values in trial.tensors.items():
        arranged = to_node_order(values, order, spatial=spec.inputs[name].spatial).contiguous()
        constant = spec.inputs[name].role != "activation"
        # the float graph: indices are the only integers
        form = "int32" if spec.inputs[name].kind == "index" else "float32"
        tensors[name] = Tensor(name, tuple(arranged.shape), dtype(form), arranged if constant else None)
    output = next(iter(spec.outputs.values()))
    made = _output_shapes(trial, order)
    outputs = ("y",) if output.pieces is None else tuple(f"y{i}" for i in range(len(made)))
    for name, shape in zip(outputs, made, strict=True):
        tensors[name] = Tensor(name, shape, dtype("int32" if output.kind == "index" else "float32"))
    inputs = tuple(name if name in trial.tensors else None for name in spec.inputs)
    node = Node(spec.op, spec.op, inputs, outputs, trial.case.attrs, order, activation=trial.case.activation)
    feeds = tuple(name for name in trial.tensors if spec.inputs[name].role == "activation")
    return Graph(spec.op, (node,), tensors, feeds, outputs)
