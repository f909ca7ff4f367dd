"""Mixed precision by search: the last layer from which more bits suffice, and the flow that writes the result."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from quantizer.core.errors import FormatError
from quantizer.core.library import load_library
from quantizer.ops import load_built_ins
from quantizer.optimize import steps
from quantizer.optimize.autosearch import last_place
from quantizer.optimize.cfg import read_cfg
from quantizer.optimize.work import Work

load_built_ins()
LIBRARY = load_library()
NET = Path(__file__).parents[2] / "cases" / "reference" / "compass_net"


@pytest.mark.parametrize("count", [1, 2, 7, 12])
def test_the_search_returns_the_last_satisfying_place(count: int) -> None:
    for last in range(count + 1):
        asked: list[int] = []
        assert last_place(count, lambda place: asked.append(place) or place <= last) == last  # noqa: B023
        assert len(asked) <= 3 + 2 * count.bit_length()
    assert last_place(count, lambda place: False) == 0  # noqa: ARG005


def run(tmp_path: Path, search: str, say: list[str] | None = None, **changes: str) -> Work:
    given = dict(line.split(" = ") for line in (NET / "plain" / "opt.cfg").read_text().splitlines()[1:])
    given |= {key: str(NET / "plain" / given[key]) for key in ("graph", "bin", "calibration_data", "data", "label")}
    given |= {
        "mixed_precision_auto_search": search,
        "metric": "MaxAbsErrorMetric",
        "output_dir": str(tmp_path),
        **changes,
    }
    (tmp_path / "opt.cfg").write_text("[Common]\n" + "".join(f"{key} = {value}\n" for key, value in given.items()))
    return steps.optimize(read_cfg(tmp_path / "opt.cfg"), LIBRARY, (say if say is not None else []).append)


def labels(tmp_path: Path) -> dict[str, str]:
    """Return the float graph's own outputs as labels, so that a metric says how far the quantized graph is."""
    work = run(tmp_path, "0,0,L")
    found = [work.runs.outputs(work.float_graph, feeds)[0] for feeds, _ in work.validation.batches()]  # type: ignore[union-attr]
    np.save(tmp_path / "float.npy", np.concatenate([values.numpy() for values in found]))
    return {"label": str(tmp_path / "float.npy")}


def bits(work: Work) -> list[int]:
    return [own.number("activation_bits") for own in work.settings.values()]


def test_mixed_precision_widens_as_few_layers_as_needed(tmp_path: Path) -> None:
    own = labels(tmp_path)
    plain = run(tmp_path, "0,0,L", **own)
    (error, _) = (score.value for score in plain.scores)
    assert bits(run(tmp_path, f"100,{-1.01 * error:.9f},G", **own)) == [8] * 7
    said: list[str] = []
    work = run(tmp_path, f"100,{-0.7 * error:.9f},G", said, **own)
    wide = bits(work)
    assert sorted(wide) == wide
    assert 0 < wide.count(16) < 7
    assert work.scores[0].value <= 0.7 * error
    assert work.settings["sig"].number("bias_bits") == 48
    first = list(work.settings)[wide.index(16)]
    assert any(f"from layer '{first}' on 16 bits" in text for text in said)


def test_mixed_precision_falls_back_to_floating_point_last(tmp_path: Path) -> None:
    own = labels(tmp_path)
    said: list[str] = []
    work = run(tmp_path, "100,0,G", said, **own)
    assert set(bits(work)) == {16}
    assert work.scores[0].value == 0.0
    assert list(work.floats) == sorted(work.settings)
    assert any("on float32" in text for text in said)


def test_a_search_needs_scores_that_are_numbers(tmp_path: Path) -> None:
    with pytest.raises(
        FormatError, match="mixed_precision_auto_search: compares scores: name dataset, data and metric"
    ):
        run(tmp_path, "1,0,L", metric="")
