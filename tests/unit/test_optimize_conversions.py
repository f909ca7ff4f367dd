"""Conversions between layers of codes and layers in floating point: one for all readers where all of them need it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from quantizer.optimize import steps
from quantizer.optimize.cfg import read_cfg
from tests.unit.one_layer import LIBRARY, noise

FLOAT = "float16_preferred!"


def layer(number: int, name: str, kind: str, bottoms: list[str], lines: str = "") -> str:
    def each(item: str) -> str:
        return f"[{','.join(item for _ in bottoms)}]"

    return (
        f"\nlayer_id={number}\nlayer_name={name}\nlayer_type={kind}\nlayer_bottom=[{','.join(bottoms)}]\n"
        f"layer_bottom_shape={each('[2,5]')}\nlayer_bottom_type={each('float32')}\n"
        f"layer_top=[{name}_out]\nlayer_top_shape=[[2,5]]\nlayer_top_type=[float32]\n{lines}"
    )


def converted(folder: Path, floats: str) -> list[tuple[str, tuple[str, ...]]]:
    """Return kind and inputs of the layers of a graph in which two branches read one layer and are added."""
    text = "model_name=fork\nlayer_number=5\ninput_tensors=[in_out]\noutput_tensors=[sum_out]\n"
    text += layer(0, "in", "Input", [])
    text += layer(1, "stem", "Abs", ["in_out"])
    text += layer(2, "left", "Activation", ["stem_out"], "method=TANH\n")
    text += layer(3, "right", "Activation", ["stem_out"], "method=SIGMOID\n")
    text += layer(4, "sum", "Eltwise", ["left_out", "right_out"], "method=ADD\nwith_activation=NONE\n")
    (folder / "float.txt").write_text(text)
    (folder / "float.bin").write_bytes(b"")
    np.save(folder / "calib.npy", noise(4, 5))
    lines = {
        "graph": folder / "float.txt",
        "bin": folder / "float.bin",
        "dataset": "NumpyDataset",
        "calibration_data": folder / "calib.npy",
        "calibration_batch_size": 2,
        "trigger_float_op": "disable & " + " ".join(f"<{{{name}}}:{FLOAT}>" for name in floats.split()),
    }
    (folder / "opt.cfg").write_text("[Common]\n" + "".join(f"{key} = {value}\n" for key, value in lines.items()))
    graph = steps.quantized(read_cfg(folder / "opt.cfg"), LIBRARY).quantized_graph
    return [(node.op, tuple(str(name) for name in node.inputs)) for node in graph.order]


@pytest.mark.parametrize(
    ("floats", "to_float", "to_codes"),
    [("left right", 1, 2), ("left", 1, 1), ("left right sum", 1, 0), ("stem", 1, 1), ("stem left", 1, 2)],
)
def test_readers_share_a_conversion_only_if_all_need_it(
    tmp_path: Path, floats: str, to_float: int, to_codes: int
) -> None:
    kinds = [kind for kind, _ in converted(tmp_path, floats)]
    assert (kinds.count("DeQuantize"), kinds.count("Quantize")) == (to_float, to_codes)


def test_two_readers_share_one_conversion(tmp_path: Path) -> None:
    made = dict(converted(tmp_path, "left right"))
    assert made["tanh"] == made["sigmoid"] != ("stem_out",)
