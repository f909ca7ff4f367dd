"""The graph, its order, its differences, and the rules that verify holds it to."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from quantizer.core.dtypes import DTYPES
from quantizer.core.errors import GraphError
from quantizer.ir.graph import Graph, Node, Tensor, container, same
from quantizer.ir.verify import verify
from quantizer.numerics.qparams import QParams

FLOAT, INT8 = DTYPES["float32"], DTYPES["int8"]


def params(scale: float = 0.5, zero_point: int = 3, **changes: object) -> QParams:
    made = QParams(INT8, torch.tensor(scale, dtype=torch.float64), torch.tensor(zero_point), -128, 127)
    return replace(made, **changes)  # type: ignore[arg-type]


def graph() -> Graph:
    """Return x -> relu -> h -> conv(w) -> y, with its nodes in file order."""
    tensors = (
        Tensor("x", (1, 2), FLOAT),
        Tensor("h", (1, 2), INT8, qparams=params()),
        Tensor("w", (3, 2), FLOAT, torch.arange(6.0).reshape(3, 2)),
        Tensor("y", (1, 3), FLOAT),
    )
    nodes = (
        Node("act", "relu", ("x",), ("h",)),
        Node("fc", "fully_connected", ("h", "w", None), ("y",), {"axis": 1, "pads": (0, 1)}, extra={"group": "a"}),
    )
    return Graph("net", nodes, {item.name: item for item in tensors}, ("x",), ("y",))


def test_lookups_name_the_nearest() -> None:
    net = graph()
    assert net.node("act") is net.nodes[0]
    assert net.tensor("w").is_constant
    assert not net.tensor("h").is_constant
    with pytest.raises(GraphError, match=r"graph 'net': no node 'atc'\. Did you mean 'act'\?"):
        net.node("atc")
    with pytest.raises(GraphError, match=r"graph 'net': no tensor 'zz'\."):
        net.tensor("zz")


def test_each_tensor_knows_its_producer_and_consumers() -> None:
    net = graph()
    twice = net.with_(nodes=(*net.nodes, Node("sum", "add", ("h", "h"), ("s",))))
    assert {name: node.name for name, node in net.producers.items()} == {"h": "act", "y": "fc"}
    assert [node.name for node in twice.consumers["h"]] == ["fc", "sum"]
    assert "y" not in net.consumers


def test_order_is_topological_and_stable() -> None:
    net = graph()
    assert net.order == net.nodes
    assert net.with_(nodes=net.nodes[::-1]).order == net.nodes


def test_order_of_a_long_chain_costs_no_stack() -> None:
    names = [f"t{i}" for i in range(20_001)]
    nodes = tuple(Node(f"n{i}", "relu", (names[i],), (names[i + 1],)) for i in range(20_000))
    chain = Graph("g", nodes[::-1], {name: Tensor(name, (1,), FLOAT) for name in names}, (names[0],), (names[-1],))
    assert chain.order == nodes
    verify(chain)


def test_replacing_a_node_or_tensor_keeps_the_old_graph() -> None:
    net = graph()
    assert net.with_node(replace(net.node("act"), op="abs")).nodes[0].op == "abs"
    assert net.with_tensors(Tensor("x", (5, 2), FLOAT)).tensor("x").shape == (5, 2)
    assert (net.tensor("x").shape, net.nodes[0].op) == ((1, 2), "relu")
    with pytest.raises(GraphError, match="no node 'other'"):
        net.with_node(replace(net.node("act"), name="other"))


def test_equal_graphs_have_no_difference() -> None:
    assert same(graph(), graph()) is None


def _with_data(values: torch.Tensor) -> Callable[[Graph], Graph]:
    return lambda net: net.with_tensors(replace(net.tensor("w"), data=values))


def _node(**changes: object) -> Callable[[Graph], Graph]:
    return lambda net: net.with_(nodes=(net.nodes[0], replace(net.nodes[1], **changes)))  # type: ignore[arg-type]


def _h(**changes: object) -> Callable[[Graph], Graph]:
    return lambda net: net.with_tensors(replace(net.tensor("h"), qparams=params(**changes)))  # type: ignore[arg-type]


NEGATIVE_ZERO = torch.arange(6.0).reshape(3, 2)
NEGATIVE_ZERO[0, 0] = -0.0
OTHER = torch.arange(6.0).reshape(3, 2)
OTHER[2, 1] = 5.0000005
DIFFERENCES = [
    (lambda net: net.with_(name="n"), r"graph\.name: 'net' against 'n'\."),
    (lambda net: net.with_(outputs=("y", "h")), r"graph\.outputs: 1 items against 2\."),
    (lambda net: net.with_(nodes=net.nodes[:1]), r"graph\.nodes: 2 items against 1\."),
    (lambda net: net.with_(extra={"z": -0.0, "k": 1}), r"graph\.extra\['k'\]: only in the second\."),
    (_node(attrs={"axis": True, "pads": (0, 1)}), r"nodes\[1 'fc'\]\.attrs\['axis'\]: 1 \(int\) against True \(bool\)"),
    (_node(attrs={"axis": 1, "pads": (0, 2)}), r"attrs\['pads'\]\[1\]: 1 against 2\."),
    (_node(attrs={"axis": 1}), r"attrs\['pads'\]: only in the first\."),
    (lambda net: net.with_(extra={"z": 0.0}), r"graph\.extra\['z'\]: -0\.0 against 0\.0\."),
    (_node(order="channels_last"), r"order: 'channels_first' against 'channels_last'\."),
    (_node(extra={"group": "b"}), r"extra\['group'\]: 'a' against 'b'\."),
    (_node(parameters=1), r"parameters: None \(NoneType\) against 1 \(int\)\."),
    (_h(zero_point=4), r"graph\.tensors\['h'\]\.qparams\.zero_point\[\]: 3 against 4\."),
    (_h(scale=math.nextafter(0.5, 1)), r"qparams\.scale\[\]: 0\.5 against 0\.5000000000000001\."),
    (_h(steps=torch.tensor(2.0)), r"qparams\.steps: None"),
    (_with_data(NEGATIVE_ZERO), r"graph\.tensors\['w'\]\.data\[0, 0\]: 0\.0 against -0\.0\."),
    (_with_data(OTHER), r"graph\.tensors\['w'\]\.data\[2, 1\]: 5\.0 against 5\.0000004"),
    (_with_data(torch.arange(6.0)), r"data: torch\.float32 \[3, 2\] against torch\.float32 \[6\]\."),
    (_with_data(torch.arange(6).reshape(3, 2)), r"data: torch\.float32 \[3, 2\] against torch\.int64 \[3, 2\]\."),
]


@pytest.mark.parametrize(("change", "sentence"), DIFFERENCES)
def test_first_difference_is_a_sentence(change: Callable[[Graph], Graph], sentence: str) -> None:
    found = same(graph().with_(extra={"z": -0.0}), change(graph().with_(extra={"z": -0.0})))
    assert found is not None
    with pytest.raises(ValueError, match=sentence):
        raise ValueError(found)


def test_nan_equals_itself_bit_for_bit() -> None:
    nan = _with_data(torch.full((3, 2), torch.nan))
    assert same(nan(graph()), nan(graph())) is None


@pytest.mark.parametrize("name", sorted(DTYPES))
def test_every_format_has_a_container(name: str) -> None:
    assert torch.zeros(2, dtype=torch.uint8).to(container(DTYPES[name])).shape == (2,)


def test_verify_accepts_sound_graphs() -> None:
    verify(graph())
    verify(_with_data(torch.full((3, 2), -math.inf))(graph()))
    layer = Node("in", "Input", (), ("x",))
    verify(graph().with_(nodes=(layer, *graph().nodes)))
    per_channel = params(scale=1.0).scale.expand(2)
    axis = params(scale=1.0, zero_point=0)
    verify(
        graph().with_tensors(
            Tensor("h", (1, 2), INT8, qparams=replace(axis, scale=per_channel, zero_point=torch.zeros(2), axis=1))
        )
    )


def test_a_subgraph_may_read_outer_tensors() -> None:
    tensors = {"x": graph().tensor("x"), "r": Tensor("r", (1, 2), FLOAT)}
    inner = Graph("body", (Node("n", "relu", ("x",), ("r",)),), tensors, (), ("r",))
    verify(graph().with_(subgraphs={"body": inner}))
    with pytest.raises(GraphError, match="graph 'body': node 'n': input 'x': no node, input or constant makes it"):
        verify(inner)


def _bad_params(**changes: object) -> Callable[[Graph], Graph]:
    def change(net: Graph) -> Graph:
        made = params()
        for name, value in changes.items():
            object.__setattr__(made, name, value)  # past the checks of QParams
        return net.with_tensors(replace(net.tensor("h"), qparams=made))

    return change


def _tensor(name: str, **changes: object) -> Callable[[Graph], Graph]:
    return lambda net: net.with_tensors(replace(net.tensor(name), **changes))  # type: ignore[arg-type]


NAN = torch.ones(3, 2)
NAN[1, 1] = torch.nan
F64 = torch.float64
VIOLATIONS = [
    (_node(name="act"), "2 nodes are called 'act'"),
    (_node(name=""), "a node has no name"),
    (lambda net: net.with_(inputs=("x", "x")), "2 inputs are called 'x'"),
    (_node(inputs=("hh", "w", None)), r"node 'fc': input 'hh': no such tensor\. Did you mean 'h'\?"),
    (lambda net: net.with_tensors(Tensor("free", (1,), FLOAT)).with_(outputs=("free",)), "output 'free': no node"),
    (lambda net: net.with_(outputs=("z",)), "output 'z': no such tensor"),
    (lambda net: net.with_(outputs=()), "no outputs: name at least one tensor"),
    (lambda net: net.with_(inputs=("z",)), "input 'z': no such tensor"),
    (lambda net: net.with_(inputs=("x", "w")), "input 'w' is a constant"),
    (_node(outputs=("q",)), "node 'fc': output 'q': no such tensor"),
    (_node(outputs=("h",)), "tensor 'h' is made by node 'act' and by node 'fc'"),
    (_node(outputs=("w",)), "tensor 'w' is made by a constant and by node 'fc'"),
    (_node(outputs=("x",)), "tensor 'x' is an input and is made by node 'fc'"),
    (lambda net: net.with_node(replace(net.node("act"), inputs=("y",))), r"cycle (act -> fc|fc -> act) -> \w+: a node"),
    (_node(inputs=("y", "w", None)), r"cycle fc -> fc: a node must not depend on its own output"),
    (lambda net: net.with_(tensors={**net.tensors, "other": net.tensor("x")}), "tensor 'x' is filed under 'other'"),
    (_tensor("x", shape=(1, 0)), r"tensor 'x': shape \[1, 0\]: every size must be at least 1, got 0"),
    (_tensor("x", shape=(-1, 2)), "got -1"),
    (_tensor("w", shape=(2, 3)), r"tensor 'w': declared shape \[2, 3\], data of shape \[3, 2\]"),
    (_tensor("w", dtype=DTYPES["float16"]), r"declared float16, kept as torch\.float16, data of torch\.float32"),
    (_with_data(NAN), r"tensor 'w': NaN at \[1, 1\]: constants must be numbers"),
    (_tensor("w", dtype=DTYPES["float8_e5m2"], data=NAN.to(torch.float8_e5m2)), r"NaN at \[1, 1\]"),
    (_tensor("w", dtype=DTYPES["int4"], data=torch.full((3, 2), 8).to(torch.int8)), r"code 8 at \[0, 0\]: int4 holds"),
    (_tensor("w", dtype=DTYPES["int4"], data=torch.full((3, 2), -9).to(torch.int8)), r"code -9 at \[0, 0\]"),
    (_tensor("w", dtype=DTYPES["uint12"], data=torch.full((3, 2), 5000, dtype=torch.uint16)), "code 5000"),
    (_bad_params(scale=torch.tensor(torch.nan, dtype=F64)), "tensor 'h': scale nan: must be positive and finite"),
    (_bad_params(scale=torch.tensor(0.0, dtype=F64)), "scale 0.0: must be positive"),
    (_bad_params(scale=torch.tensor(-1.0, dtype=F64)), "scale -1.0: must be positive"),
    (_bad_params(scale=torch.tensor(torch.inf, dtype=F64)), "scale inf: must be positive"),
    (_bad_params(zero_point=torch.tensor(128)), r"zero point 128: must be one of the codes \[-128, 127\]"),
    (_bad_params(qmin=4), r"zero point 3: must be one of the codes \[4, 127\]"),
    (_bad_params(dtype=DTYPES["uint8"]), "holds int8, its quantization parameters are for uint8"),
    (_bad_params(scale=torch.ones(2, dtype=F64)), r"have shapes \[2\] and \[\]"),
    (_bad_params(scale=torch.ones(2, dtype=F64), zero_point=torch.zeros(2)), r"scale of shape \[2\] along axis None"),
    (_bad_params(scale=torch.ones(3, dtype=F64), zero_point=torch.zeros(3), axis=1), "3 scales, axis 1 has 2 slices"),
]


@pytest.mark.parametrize(("change", "sentence"), VIOLATIONS)
def test_verify_names_the_violated_rule(change: Callable[[Graph], Graph], sentence: str) -> None:
    with pytest.raises(GraphError, match=sentence) as caught:
        verify(change(graph()))
    assert str(caught.value).startswith("graph 'net': ")
