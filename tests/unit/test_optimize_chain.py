"""The flow on a chain of movement, resize and normalization layers: any batch size, written and read back."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from quantizer.core.dtypes import DTYPES
from quantizer.core.library import load_library
from quantizer.ir.formats import compass
from quantizer.ir.formats.compass_read_back import with_parameters
from quantizer.ir.graph import Graph, Node, Tensor
from quantizer.ops import load_built_ins
from quantizer.optimize.cfg import parse_cfg
from quantizer.optimize.running import Runner, real
from quantizer.optimize.steps import optimize

LIBRARY = load_library()
load_built_ins()
F32 = DTYPES["float32"]
CFG = """[Common]
graph = float.txt
bin = float.bin
model_name = chain
dataset = NumpyDataset
calibration_data = calib.npy
calibration_batch_size = {batch}
calibration_strategy_for_activation = extrema
output_dir = .
out_ir_name = quant
activation_bits = {bits}
"""
CHAIN = (
    ("slice", {"begin": (0, 1, -1, 0), "end": (1, 4, -7, 4), "strides": (1, 1, -1, 1)}, (1, 3, 6, 4)),
    ("resize_bilinear", {"size": (6, 9), "mode": "half_pixel"}, (1, 6, 9, 4)),
    ("instance_norm", {"epsilon": 1e-5}, (1, 6, 9, 4)),
    ("space_to_depth", {"block": 3}, (1, 2, 3, 36)),
    ("resize_nearest", {"size": (4, 3), "mode": "asymmetric", "rounding": "floor"}, (1, 4, 3, 36)),
    ("reduce_max", {"axes": (2,), "keepdims": True}, (1, 4, 1, 36)),
    ("squeeze", {"axes": (2,)}, (1, 4, 36)),
    ("replicate", {"repeats": (1, 1, 2)}, (1, 4, 72)),
)
POOLED = (("channel_shuffle", {"groups": 2}, (1, 5, 6, 4)), ("global_max_pool2d", {}, (1, 1, 1, 4)))


Layers = tuple[tuple[str, dict[str, object], tuple[int, ...]], ...]


def chain(layers: Layers) -> Graph:
    tensors = {"x": Tensor("x", (1, 5, 6, 4), F32)}
    nodes, last = [], "x"
    for op, attrs, shape in layers:
        inputs: tuple[str, ...] = (last,)
        if op == "instance_norm":
            for name, values in (
                ("gamma", torch.tensor([1.0, 0.5, 2.0, 1.5])),
                ("beta", torch.tensor([0.0, 0.3, -1, 0.1])),
            ):
                tensors[name] = Tensor(name, (4,), F32, values)
            inputs = (last, "gamma", "beta")
        last = f"{op}_out"
        tensors[last] = Tensor(last, shape, F32)
        nodes.append(Node(op, op, inputs, (last,), attrs, "channels_last"))  # type: ignore[arg-type]
    return Graph("chain", tuple(nodes), tensors, ("x",), (last,))


@pytest.mark.parametrize(
    ("layers", "bits", "steps"), [(CHAIN, 8, 6), (CHAIN, 16, None), (POOLED, 8, 1), (POOLED, 16, 1)]
)
def test_a_chain_is_quantized_written_and_read_back(
    tmp_path: Path, layers: Layers, bits: int, steps: int | None
) -> None:
    """Batches of one and of three give the same IR; codes of the written IR stay near the float graph (8 bits)."""
    data = torch.sin(torch.arange(6 * 5 * 6 * 4) * 0.37).reshape(6, 5, 6, 4) * 3
    compass.write(compass.foreign(chain(layers), LIBRARY.specs), tmp_path / "float.txt", tmp_path / "float.bin")
    np.save(tmp_path / "calib.npy", data.numpy())
    texts = []
    for batch in (1, 3):
        work = optimize(parse_cfg(CFG.format(batch=batch, bits=bits), tmp_path / "opt.cfg"), LIBRARY)
        texts.append((tmp_path / "quant.txt").read_text() + str((tmp_path / "quant.bin").read_bytes()))
    assert texts[0] == texts[1]
    graph = compass.native(compass.read(tmp_path / "quant.txt", tmp_path / "quant.bin"), LIBRARY.specs)
    platform = LIBRARY.platform("compass")
    graph = with_parameters(graph, LIBRARY.specs, platform)
    runner = Runner(LIBRARY.specs, platform.quantizer, 1)
    (codes,) = runner.outputs(graph, {"x": data})
    (direct,) = runner.outputs(work.quantized_graph, {"x": data})
    assert torch.equal(codes, direct)
    params = graph.tensor(graph.outputs[0]).qparams
    assert params is not None
    (wanted,) = runner.outputs(work.float_graph, {"x": data})
    if steps is not None:
        assert float((real(codes, params) - wanted).abs().max()) < steps * float(params.scale)
