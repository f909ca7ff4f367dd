"""Generated ONNX models of whole numbers, on which every runtime must agree to the last bit."""

from __future__ import annotations

import math
import random

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


class Builder:
    """Adds nodes one by one; every tensor holds whole numbers of at most 8, so that float32 sums are exact."""

    def __init__(self, seed: int, opset: int) -> None:
        self.random = random.Random(seed)
        self.opset = opset
        self.shape = (self.random.randint(1, 2), 4, self.random.randint(4, 7), self.random.randint(4, 7))
        self.shapes: dict[str, tuple[int, ...]] = {"x": self.shape}
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, np.ndarray] = {}

    def whole(self, *shape: int) -> np.ndarray:
        values = [self.random.randint(-2, 2) for _ in range(math.prod(shape))]
        return np.array(values, np.float32).reshape(shape)

    def constant(self, values: np.ndarray) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = values
        return name

    def indices(self, *values: int) -> str:
        return self.constant(np.array(values, np.int64))

    def add(self, op: str, inputs: list[str], shape: tuple[int, ...], **attrs: object) -> str:
        name = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [name], name=f"n{len(self.nodes)}", **attrs))
        self.shapes[name] = shape
        return name

    def small(self, name: str) -> str:
        low, high = self.constant(np.float32(-8)), self.constant(np.float32(8))
        return self.add("Clip", [name, low, high], self.shapes[name])

    def step(self) -> None:
        r = self.random
        x = r.choice(list(self.shapes)[-4:])
        shape = self.shapes[x]
        same = [name for name, other in self.shapes.items() if other == shape]
        choice = r.choice(
            ["unary", "binary", "layout", "reduce", "index", "choose", "image", "image", "image", "matrix"]
        )
        if choice == "unary":
            self.add(r.choice(["Relu", "Neg", "Abs", "Floor", "Round", "Identity", "Sign"]), [x], shape)
        elif choice == "binary":
            y = r.choice([*same, self.constant(self.whole(shape[-1]))])
            self.small(self.add(r.choice(["Add", "Sub", "Mul", "Max", "Min"]), [x, y], shape))
        elif choice == "layout":
            self._layout(x, shape)
        elif choice == "reduce":
            axis = r.randrange(len(shape))
            kept = tuple(1 if i == axis else size for i, size in enumerate(shape))
            inputs, attrs = ([x, self.indices(axis)], {}) if self.opset >= 13 else ([x], {"axes": [axis]})
            self.small(self.add("ReduceSum", inputs, kept, keepdims=1, **attrs))
        elif choice == "index":
            axis = r.randrange(len(shape))
            picks = [r.randrange(-shape[axis], shape[axis]) for _ in range(r.randint(1, 4))]
            after = tuple(len(picks) if i == axis else size for i, size in enumerate(shape))
            self.add("Gather", [x, self.indices(*picks)], after, axis=axis)
        elif choice == "choose":
            mask = self.add("Greater", [x, self.constant(np.float32(0))], ())
            del self.shapes[mask]
            self.add("Where", [mask, x, r.choice(same)], shape)
        elif choice == "matrix":
            size = r.randint(1, 5)
            w = self.constant(self.whole(shape[-1], size))
            self.small(self.add("MatMul", [x, w], (*shape[:-1], size)))
        elif len(shape) == 4:
            self._image(x, shape)

    def _layout(self, x: str, shape: tuple[int, ...]) -> None:
        r = self.random
        kind = r.choice(["Transpose", "Reshape", "Concat", "Slice", "Pad", "Tile"])
        axis = r.randrange(len(shape))
        if kind == "Transpose":
            perm = r.sample(range(len(shape)), len(shape))
            self.add(kind, [x], tuple(shape[i] for i in perm), perm=perm)
        elif kind == "Reshape":
            self.add(kind, [x, self.indices(0, -1)], (shape[0], math.prod(shape[1:]))) if len(shape) > 1 else None
        elif kind == "Concat":
            after = tuple(2 * size if i == axis else size for i, size in enumerate(shape))
            self.add(kind, [x, x], after, axis=axis - len(shape))
        elif kind == "Slice":
            start, step = r.randint(-3, 2), r.choice([1, 2, -1])
            end = 2**40 if step > 0 else -(2**40)
            after = len(range(shape[axis])[start:end:step])
            if after:
                names = [self.indices(v) for v in (start, end, axis, step)]
                self.add(kind, [x, *names], tuple(after if i == axis else n for i, n in enumerate(shape)))
        elif kind == "Pad":
            pads = [r.randint(0, 2) for _ in range(2 * len(shape))]
            after = tuple(n + pads[i] + pads[i + len(shape)] for i, n in enumerate(shape))
            self.add(kind, [x, self.indices(*pads), self.constant(np.float32(r.randint(-1, 1)))], after)
        elif math.prod(shape) < 500:
            after = tuple(2 * n if i == axis else n for i, n in enumerate(shape))
            self.add(kind, [x, self.indices(*[2 if i == axis else 1 for i in range(len(shape))])], after)

    def _image(self, x: str, shape: tuple[int, ...]) -> None:
        r = self.random
        n, c, h, w = shape
        kind = r.choice(["Conv", "MaxPool", "GlobalMaxPool", "Resize", "DepthToSpace", "ConvTranspose"])
        pads, stride = [r.randint(0, 1) for _ in range(4)], [r.randint(1, 2), r.randint(1, 2)]
        k = [r.randint(1, 3), r.randint(1, 3)]
        sizes = [(size + pads[i] + pads[i + 2] - k[i]) // stride[i] + 1 for i, size in enumerate((h, w))]
        if kind == "Conv" and min(sizes) > 0:
            groups = c if r.random() < 0.3 else 1
            weight = self.whole(c if groups > 1 else 3, c // groups, *k)
            inputs = [x, self.constant(weight), self.constant(self.whole(weight.shape[0]))]
            after = (n, weight.shape[0], *sizes)
            self.small(self.add(kind, inputs, after, pads=pads, strides=stride, group=groups, kernel_shape=k))
        elif kind == "ConvTranspose":
            weight = self.constant(self.whole(c, 2, *k))
            after = (n, 2, (h - 1) * stride[0] + k[0], (w - 1) * stride[1] + k[1])
            self.small(self.add(kind, [x, weight], after, strides=stride))
        elif kind == "MaxPool" and min(sizes) > 0 and min(k) > 1:
            self.add(kind, [x], (n, c, *sizes), kernel_shape=k, pads=pads, strides=stride)
        elif kind == "GlobalMaxPool":
            self.add(kind, [x], (n, c, 1, 1))
        elif kind == "Resize" and h * w < 100:
            scales = self.constant(np.array([1, 1, 2, 2], np.float32))
            attrs = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
            roi = "" if self.opset >= 13 else self.constant(np.zeros(0, np.float32))
            self.add(kind, [x, roi, scales], (n, c, 2 * h, 2 * w), mode="nearest", **attrs)
        elif kind == "DepthToSpace" and c % 4 == 0:
            self.add(kind, [x], (n, c // 4, 2 * h, 2 * w), blocksize=2, mode=r.choice(["DCR", "CRD"]))

    def model(self, nodes: int) -> onnx.ModelProto:
        while len(self.nodes) < nodes:
            self.step()
        kept = [name for name in list(self.shapes)[-3:] if name != "x"]
        outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in kept]
        given = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 4, "h", "w"])
        constants = [numpy_helper.from_array(values, name) for name, values in self.constants.items()]
        graph = helper.make_graph(self.nodes, "generated", [given], outputs, constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=8)
