"""mvn_correction: the input of a normalization keeps more precision: a finer step after a coarse layer, or more bits.

Source: the Compass Optimizer's method of that name, defects included: with more bits the range is still that of the
narrow codes' step, so that codes of 16 bits have the step of 8 unless alpha asks for a finer one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import torch

from quantizer.core.errors import UnsupportedError
from quantizer.ir.formats.compass_params import scale_of
from quantizer.ir.graph import Graph, Node
from quantizer.numerics.qparams import QParams
from quantizer.optimize.global_methods import Method
from quantizer.optimize.layer_parameters import Calibrated, source_layers
from quantizer.optimize.passes import RESTRICTED
from quantizer.optimize.per_layer import LayerKey
from quantizer.optimize.settings import Settings
from quantizer.optimize.values import Value

NORMALIZATIONS = ("MVN", "LayerNorm", "InstanceNorm", "GroupNorm", "RMSNorm")
KEEPING = (
    *NORMALIZATIONS,
    "Convolution",
    "ConvTranspose",
    "Convolution3D",
    "ConvTranspose3D",
    "DepthwiseConv",
    "FullyConnected",
    "RNN",
    "BasicLSTM",
    "GRUv1",
    "GRUv3",
    "BatchNorm",
    "MatMul",
    "Eltwise",
    "Input",
    "Constant",
)
"""Layer types that compute outputs with their own precision; other layers only pass on their input."""
WIDE = 16


@dataclass(frozen=True)
class Corrected:
    """Settings and ranges after the method."""

    settings: Mapping[str, Settings]
    ranges: Mapping[str, Calibrated]


def mvn_corrected(
    graph: Graph, method: Method, keys: Mapping[str, LayerKey], tensors: Mapping[str, QParams], before: Corrected
) -> Corrected:
    """Return settings and ranges for a native float graph whose tensors would have the parameters *tensors*.

    Each normalization to which *method* applies narrows the range of the nearest layer before it that keeps precision:
    to the step sqrt(s_x * s_y) * max(alpha, sqrt(s_x / s_y)), s being codes per unit. From mode 1 on both layers get
    the method's bits, and those of the generations between. UnsupportedError for scales per channel.
    """
    work = _Work(graph, method.numbers, keys, tensors, dict(before.settings), dict(before.ranges))
    for node in graph.order:
        if node.name in keys and keys[node.name].type in NORMALIZATIONS and method.concerns(keys[node.name]):
            work.correct(node)
    return Corrected(work.settings, work.ranges)


@dataclass
class _Work:
    graph: Graph
    numbers: Mapping[str, float]
    keys: Mapping[str, LayerKey]
    tensors: Mapping[str, QParams]
    settings: dict[str, Settings]
    ranges: dict[str, Calibrated]

    def correct(self, node: Node) -> None:
        """Correct the input of one normalization."""
        read, maker, directly = self._kept(node)
        x, y = self.tensors[read], self.tensors[node.outputs[0]]
        if scale_of(x).numel() != 1 or scale_of(y).numel() != 1:
            raise UnsupportedError(
                f"layer {node.name!r}: mvn_correction takes one scale a tensor. Write per_tensor_... for it."
            )
        s_x, s_y = (scale_of(params).reshape(()).float() for params in (x, y))
        alpha = self.numbers["alpha"]
        steps = ((s_x * s_y) ** 0.5) * torch.maximum(torch.tensor(alpha), (s_x / s_y) ** 0.5)
        signed, span = x.dtype.kind == "int", x.qmax - x.qmin
        if self.numbers["mode"] >= 1:
            for name in self._between(node, maker, directly=directly):
                self._widen(name)
            span = (1 << WIDE) - 1
        if alpha > 0:
            # codes per unit to units: a range of `span` steps
            reach = float(span / steps)
            low, high = (-reach / 2, reach / 2) if signed else (0.0, reach)
            self.ranges[read] = replace(self.ranges[read], low=low, high=high)

    def _kept(self, node: Node) -> tuple[str, str, bool]:
        """Return the tensor of the nearest earlier layer that keeps precision, that layer, and whether it is next."""
        sources = source_layers(self.graph)
        name, directly = str(node.inputs[0]), True
        while True:
            maker = self.graph.producers.get(name)
            if maker is None:
                return name, sources[name].name, directly
            if self.keys[maker.name].type in KEEPING or not self._reads(maker):
                return maker.outputs[0], maker.name, directly
            name, directly = self._reads(maker)[0], False

    def _reads(self, node: Node) -> list[str]:
        return [name for name in node.inputs if name is not None and self.graph.tensor(name).data is None]

    def _between(self, node: Node, maker: str, *, directly: bool) -> Iterator[str]:
        """Yield the two layers, and those of the surrounding generations that the method's numbers select."""
        yield maker
        before, behind = int(self.numbers["before"]), int(self.numbers["behind"])
        if not directly or before > 0 or behind > 0:
            generations = self._generations()
            first, last = generations[maker] - before, generations[node.name] + behind
            # both bounds are exclusive; the two layers themselves are yielded in any case
            yield from (name for name, own in generations.items() if first < own < last)
        yield node.name

    def _generations(self) -> dict[str, int]:
        """Return the length of the longest path to each layer; 0 for inputs and constants."""
        sources = source_layers(self.graph)
        found = {node.name: 0 for node in sources.values()}
        for node in self.graph.order:
            makers = (
                self.graph.producers[name] if name in self.graph.producers else sources.get(name)
                for name in self._reads(node)
            )
            # graph.order lists producers first, so their lengths are known
            found[node.name] = 1 + max((found[maker.name] for maker in makers if maker is not None), default=-1)
        return found

    def _widen(self, name: str) -> None:
        own, kept = self.settings[name], self.numbers
        method = str(own["quantize_method_for_activation"])
        changed: dict[str, Value] = {
            key: int(kept[key]) for key in ("activation_bits", "weight_bits", "bias_bits", "multiplier_bits")
        }
        changed["lut_items_in_bits"] = int(kept["lut_bits"])
        # wide codes are symmetric in this flow, as symmetric_where_wide makes them
        changed["quantize_method_for_activation"] = RESTRICTED.get(
            method, method.replace("full_range", "restricted_range")
        )
        self.settings[name] = own.but(**changed)
