"""Errors by operation: measures against hand values; the degraded operation is blamed."""

from __future__ import annotations

import math

import pytest
import torch
from test_qdq import network, numbers, quantized

from quantizer.core.errors import GraphError
from quantizer.runtime.analysis import Sums, _error, error_table, graphwise_error_analyse, layerwise_error_analyse


def test_measures_by_hand():
    sums = Sums()
    sums.add(torch.tensor([3.0, 4.0]), torch.tensor([3.0, 3.0]))
    found = _error(network().nodes[0], sums)
    assert found.sqnr == pytest.approx(10 * math.log10(25))
    assert found.cosine == pytest.approx(21 / (5 * math.sqrt(18)))
    assert found.mse == 0.5
    with pytest.raises(GraphError, match="compared"):
        sums.add(torch.ones(2), torch.ones(3))


def test_error_analysis_blames_the_degraded_operation():
    graph, batches = quantized(), [[numbers(4, 3, 8, 8, seed=s)] for s in (30, 31)]
    config = graph.node("conv2").parameters.output_quantization_config[0]
    before = {error.name: error for error in layerwise_error_analyse(graph, batches)}
    assert min(before.values(), key=lambda error: error.sqnr).name != "conv2"
    config.scale = config.scale * 16
    after = layerwise_error_analyse(graph, batches)
    assert min(after, key=lambda error: error.sqnr).name == "conv2"
    assert [e for e in after if e.name != "conv2"] == [e for e in before.values() if e.name != "conv2"]
    whole = graphwise_error_analyse(graph, batches)
    assert [error.name for error in whole] == [node.name for node in graph.order]
    assert max(whole[0].sqnr, whole[1].sqnr) > whole[2].sqnr + 10
    assert error_table(after).splitlines()[2].split()[0] == "conv2"


def test_nothing_to_analyse_is_an_error():
    with pytest.raises(GraphError, match="no operation is quantized"):
        layerwise_error_analyse(network(), [[numbers(1, 3, 8, 8)]])
    with pytest.raises(GraphError, match="at least one batch"):
        graphwise_error_analyse(quantized(), [])
