"""Train a network on scikit-learn's digits, export it to ONNX, quantize and analyse it, and run the QDQ model elsewhere."""

from __future__ import annotations

import argparse
import sys
import tempfile
import warnings
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import torch
from onnx import TensorProto, helper
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn import functional

from quantizer.ir import Graph
from quantizer.runtime import (
    IntegerExecutor,
    TorchExecutor,
    dispatch_graph,
    error_table,
    export_qdq,
    graphwise_error_analyse,
    integer_graph,
    layerwise_error_analyse,
    load_onnx_graph,
    quantize_graph,
)
from quantizer.runtime import QuantizationProperty as P
from quantizer.runtime.setting import INT8, Setting

TRAINING = 1437
"""Images to train on, the first four fifths; the other 360 are from other writers."""
CALIBRATION, BATCH = 256, 64
THRESHOLD = 0.005
"""What int8 may lose: half a point."""
POWERS = Setting(
    activations=P.PER_TENSOR | P.LINEAR | P.SYMMETRICAL | P.POWER_OF_2,
    weights=P.PER_CHANNEL | P.LINEAR | P.SYMMETRICAL | P.POWER_OF_2,
    bias=True,
)
"""Scales of powers of two: float32 sums are then exact, so that no order of additions can move a code."""


def trained(images: Tensor, labels: Tensor, *, epochs: int, seed: int) -> nn.Sequential:
    """Return two convolutions and a classifier, trained on images [n, 1, 8, 8]; the same for the same seed."""
    source = torch.Generator().manual_seed(seed)
    model = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(128, 10),
    )
    for layer in (model[0], model[3], model[7]):
        nn.init.kaiming_uniform_(layer.weight, nonlinearity="relu", generator=source)
        nn.init.zeros_(layer.bias)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
    for _ in range(epochs):
        for batch in torch.randperm(len(images), generator=source).split(BATCH):
            optimizer.zero_grad()
            functional.cross_entropy(model(images[batch]), labels[batch]).backward()
            optimizer.step()
    return model.eval()


def exported(model: nn.Module, path: Path) -> None:
    """Write the network with torch's own exporter, the one that needs no package besides onnx."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        torch.onnx.export(
            model,
            (torch.zeros(1, 1, 8, 8),),
            str(path),
            dynamo=False,
            opset_version=17,
            input_names=["image"],
            output_names=["logits"],
            dynamic_axes={"image": {0: "n"}, "logits": {0: "n"}},
        )


def codes_elsewhere(path: Path, images: Tensor, tensors: list[str]) -> list[np.ndarray]:
    """Return the codes of tensors that ONNX Runtime has in the QDQ model, its graph as it is."""
    model = onnx.load(path)
    model.graph.output.extend(helper.make_tensor_value_info(f"{t}#codes", TensorProto.INT8, None) for t in tensors)
    options = onnxruntime.SessionOptions()
    # no fusion: the codes of tensors inside a fused node would not exist
    options.intra_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run([f"{t}#codes" for t in tensors], {"image": images.numpy()})


def equal_codes(graph: Graph, path: Path, images: Tensor) -> list[tuple[str, int, int, int]]:
    """Return (tensor, codes, how many ONNX Runtime has as the float executor, and as the integer one), in order."""
    tensors = [node.outputs[0] for node in graph.order]
    configs = {node.outputs[0]: node.parameters.output_quantization_config[0] for node in graph.order}
    floats = TorchExecutor(graph).forward(images, tensors)
    integers = IntegerExecutor(integer_graph(graph, inputs={"image": images})).codes(images, tensors)
    rows = []
    for name, value, codes, theirs in zip(
        tensors, floats, integers, codes_elsewhere(path, images, tensors), strict=True
    ):
        expected = torch.from_numpy(theirs).long()
        same = [int((found == expected).sum()) for found in (configs[name].codes(value), codes)]
        rows.append((name, expected.numel(), *same))
    return rows


def run(folder: Path, *, epochs: int, seed: int) -> int:
    """Train, write digits.onnx and digits_qdq.onnx into *folder*, say what became of them; 1 where codes differ."""
    data = load_digits()
    images = torch.from_numpy(data.images).float()[:, None] / 16
    labels = torch.from_numpy(data.target).long()
    model = trained(images[:TRAINING], labels[:TRAINING], epochs=epochs, seed=seed)
    exported(model, folder / "digits.onnx")
    graph = load_onnx_graph(folder / "digits.onnx")
    batches = [[part] for part in images[:CALIBRATION].split(BATCH)]
    plain, quantized = (quantize_graph(dispatch_graph(graph), batches, setting) for setting in (INT8, POWERS))
    test, wanted = images[TRAINING:], labels[TRAINING:]
    shares = []
    float_one = TorchExecutor(graph, platform="fp32")
    for name, executor in (
        ("float", float_one),
        ("int8", TorchExecutor(plain)),
        ("int8 pow2", TorchExecutor(quantized)),
    ):
        shares.append(float((executor.forward(test)[0].argmax(1) == wanted).float().mean()))
        sys.stdout.write(f"{name:<10} top-1 {100 * shares[-1]:.2f}%\n")
    for title, analyse in (("graph-wise", graphwise_error_analyse), ("layer-wise", layerwise_error_analyse)):
        sys.stdout.write(f"\n{title}\n{error_table(analyse(quantized, batches))}\n")
    export_qdq(quantized, folder / "digits_qdq.onnx")
    rows = equal_codes(quantized, folder / "digits_qdq.onnx", test)
    sys.stdout.write("\ncodes of ONNX Runtime, equal in the float executor and in the integer one\n")
    for name, count, floats, integers in rows:
        sys.stdout.write(f"{name}: {floats} and {integers} of {count}\n")
    same = all(count == floats == integers for _, count, floats, integers in rows)
    return int(not same or shares[0] - shares[1] > THRESHOLD)


def main(arguments: list[str] | None = None) -> int:
    """Run the example; 1 where a code differs, or int8 loses more than half a point."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=15, help="of training (15)")
    parser.add_argument("--seed", type=int, default=0, help="of initial values and of the order of images (0)")
    parser.add_argument("--output", type=Path, help="folder for the two models; else they are not kept")
    options = parser.parse_args(arguments)
    if options.epochs < 1 or options.seed < 0:
        parser.error("--epochs must be 1 or more, --seed 0 or more")
    with tempfile.TemporaryDirectory() as spare:
        folder = options.output or Path(spare)
        folder.mkdir(parents=True, exist_ok=True)
        return run(folder, epochs=options.epochs, seed=options.seed)


if __name__ == "__main__":
    sys.exit(main())
