"""Float IRs of one layer, with inputs and constants, for tests of the Compass flow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from quantizer.core.library import load_library
from quantizer.ir.formats import compass
from quantizer.ir.graph import Graph
from quantizer.ops import load_built_ins
from quantizer.optimize import steps
from quantizer.optimize.cfg import read_cfg
from quantizer.optimize.comparing import read_back
from quantizer.optimize.work import Work

load_built_ins()
LIBRARY = load_library()
Array = np.ndarray[Any, Any]
SCHEMES: Mapping[str, Mapping[str, object]] = {
    "default": {"calibration_strategy_for_activation": "mean"},
    "ext": {},
    "pc_asym": {
        "quantize_method_for_weight": "per_channel_symmetric_restricted_range",
        "quantize_method_for_activation": "per_tensor_asymmetric",
    },
    "a16": {
        "activation_bits": 16,
        "weight_bits": 16,
        "bias_bits": 48,
        "lut_items_in_bits": 10,
        "quantize_method_for_weight": "per_channel_symmetric_restricted_range",
    },
}
"""The four configurations of the recorded runs, calibrated by extrema but for the first."""


def noise(*shape: int, seed: int = 0) -> Array:
    """Return numbers around 0 without a period."""
    return (6 * np.sin((np.arange(np.prod(shape)) + 7 * seed) * 12.9898) ** 3).astype(np.float32).reshape(shape)


@dataclass(frozen=True)
class Ran:
    """The result of optimizing one layer."""

    work: Work
    text: str
    graph: Graph
    """In Compass vocabulary, as a reader of the file sees it."""
    inputs: list[Array]
    """Codes that the layer reads, of the last sample."""
    outputs: list[Array]
    """Codes that it makes of them."""

    @property
    def params(self) -> dict[str, Any]:
        """Return the parameters of the written layer."""
        return dict(self._node.attrs)

    @property
    def constants(self) -> dict[str, tuple[str, Array]]:
        """Key -> (type, values)."""
        found = {}
        for key, name in zip(self._keys, self._node.inputs[len(self._node.inputs) - len(self._keys) :], strict=True):
            tensor = self.graph.tensor(str(name))
            assert tensor.data is not None
            found[key] = tensor.dtype.name, tensor.data.numpy()
        return found

    def scale(self, name: str) -> Any:
        """Return codes per unit of a tensor."""
        return self._qparams(name).steps.numpy()

    def zero(self, name: str) -> int:
        """Return Compass's zero point of a tensor."""
        return -int(self._qparams(name).zero_point)

    def ends(self, name: str) -> tuple[int, int]:
        """Return the smallest and the largest code of a tensor."""
        return self._qparams(name).qmin, self._qparams(name).qmax

    def ratio(self, *, shift: int = 0) -> Array:
        """Return multiplier and shift of the layer as float64, one or one for each channel, *shift* places more."""
        if "scale" in self.constants:
            mantissa, places = (self.constants[key][1].astype(np.float64) for key in ("scale", "shift"))
        else:
            mantissa, places = (np.float64(self.params[key]) for key in ("scale_value", "shift_value"))
        return np.asarray(mantissa * 2.0 ** (shift - places))

    def _qparams(self, name: str) -> Any:
        return self.work.quantized_graph.tensor(name).qparams

    @property
    def _node(self) -> Any:
        (node,) = [node for node in self.graph.nodes if node.op != "Input"]
        return node

    @property
    def _keys(self) -> tuple[str, ...]:
        return tuple(self._node.extra["compass.constants"])


def ran(
    folder: Path,
    kind: str,
    inputs: Sequence[Sequence[Array]],
    outputs: Sequence[Sequence[int]],
    lines: str = "",
    constants: Mapping[str, Array] | None = None,
    **cfg: object,
) -> Ran:
    """Run the flow on a layer of *inputs* (x0, x1, ...; of each its samples) and *outputs* (y0, ...: shapes)."""
    names, tops = [f"x{i}" for i in range(len(inputs))], [f"y{i}" for i in range(len(outputs))]
    shapes = [list(samples[0].shape) for samples in inputs]
    text = (
        f"model_name=one\nlayer_number={len(names) + 1}\ninput_tensors={_list(names)}\noutput_tensors={_list(tops)}\n"
    )
    for number, (name, shape) in enumerate(zip(names, shapes, strict=True)):
        text += _layer(number, name, "Input", [], [], [name], [shape])
    text += _layer(len(names), "one", kind, names, shapes, tops, outputs)
    blob = b""
    for key, values in (constants or {}).items():
        text += f"{key}_type={values.dtype.name}\n{key}_offset={len(blob)}\n{key}_size={values.nbytes}\n"
        text += f"{key}_shape={_list(values.shape)}\n"
        blob += values.tobytes()
    (folder / "float.txt").write_text(text + lines)
    (folder / "float.bin").write_bytes(blob)
    given = {
        "graph": folder / "float.txt",
        "bin": folder / "float.bin",
        "calibration_data": folder / ("calib.npy" if len(names) == 1 else "calib.npz"),
        "dataset": "NumpyDataset" if len(names) == 1 else "NumpyMultiInputDataset",
        "calibration_strategy_for_activation": "extrema",
        **cfg,
    }
    samples = {name: np.concatenate(values) for name, values in zip(names, inputs, strict=True)}
    if len(names) == 1:
        np.save(folder / "calib.npy", samples["x0"])
    else:
        np.savez(folder / "calib.npz", *samples.values())
    (folder / "opt.cfg").write_text("[Common]\n" + "".join(f"{key} = {value}\n" for key, value in given.items()))
    work = steps.quantized(read_cfg(folder / "opt.cfg"), LIBRARY)
    written, data = compass.to_bytes(compass.foreign(work.quantized_graph, LIBRARY.specs))
    feeds = {name: torch.from_numpy(values[-1]) for name, values in zip(names, inputs, strict=True)}
    found = [
        {name: made.numpy() for name, _, made in work.runs.forward(graph, feeds)}
        for graph in (work.quantized_graph, read_back(written, data, LIBRARY))
    ]
    assert all(np.array_equal(found[0][name], found[1][name]) for name in (*names, *tops))
    graph = compass.from_bytes(written, data)
    return Ran(work, str(written), graph, [found[0][name] for name in names], [found[0][name] for name in tops])


def _layer(
    number: int,
    name: str,
    kind: str,
    bottoms: Sequence[str],
    sizes: Sequence[Sequence[int]],
    tops: Sequence[str],
    made: Sequence[Sequence[int]],
) -> str:
    return (
        f"\nlayer_id={number}\nlayer_name={name}\nlayer_type={kind}\nlayer_bottom={_list(bottoms)}\n"
        f"layer_bottom_shape={_list(map(_list, sizes))}\nlayer_bottom_type={_list(['float32'] * len(bottoms))}\n"
        f"layer_top={_list(tops)}\nlayer_top_shape={_list(map(_list, made))}\nlayer_top_type={_list(['float32'] * len(tops))}\n"
    )


def _list(items: Any) -> str:
    return f"[{','.join(map(str, items))}]"
