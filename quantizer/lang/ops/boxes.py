"""Boxes: non-maximum suppression."""

from __future__ import annotations

from quantizer.lang import arguments as a
from quantizer.lang.current import get_default_graph, operator
from quantizer.lang.errors import LangError
from quantizer.lang.graph import Result
from quantizer.lang.tensor import Tensor

FORMATS = ("PYTORCH", "TENSORFLOW")


@operator("vision")
def nms(
    boxes: Tensor,
    scores: Tensor,
    box_format: str = "PYTORCH",
    max_box_num_per_class: int = 0,
    out_name: str | None = None,
) -> Tensor:
    """Return [batch, class, box] of boxes that no better box of their class overlaps, at most a given number a class.

    boxes: [n, boxes, 4], PYTORCH as centre and size, TENSORFLOW as corners. scores: [n, classes, boxes]. The call has
    no thresholds, so ONNX's defaults hold: every score counts, any overlap drops the box with the lower score, and 0
    boxes for each class means that none is returned.
    """
    a.tensor("boxes", boxes, ("float32",), 3)
    a.tensor("scores", scores, ("float32",), 3)
    if boxes.shape[2] != 4 or (scores.shape[0], scores.shape[2]) != boxes.shape[:2]:
        raise LangError(
            f"boxes {list(boxes.shape)} and scores {list(scores.shape)}: must be [n, boxes, 4] and [n, classes, boxes]."
        )
    attrs = {
        "center_point_box": int(a.one_of("box_format", box_format, FORMATS) == "PYTORCH"),
        "max_output_size": a.integer("max_box_num_per_class", max_box_num_per_class, least=0),
    }
    return get_default_graph().add("top.Nms", [boxes, scores], attrs, Result("float32"), out_name=out_name)[0]
