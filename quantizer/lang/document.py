"""docs/tpulang.md: every operator function of TpuLang, with a short description."""

from __future__ import annotations

import inspect

from quantizer.lang import FUNCTIONS
from quantizer.lang.current import Function

GROUPS = (
    "NN/matrix",
    "binary",
    "binary shift",
    "misc",
    "quant",
    "pool",
    "activation",
    "sort",
    "arrange",
    "vision",
    "compare",
    "shape",
    "norm",
    "select",
    "tail",
    "custom",
    "first TpuLang",
)
"""The groups of TpuLang's own list, in its order; the last holds functions of its first version."""


def functions_document() -> str:
    """Return the document as markdown: a section for each group, a line for each function."""
    own = [item for item in FUNCTIONS.values() if item.group != GROUPS[-1]]
    lines = [
        "# TpuLang's operator functions",
        "",
        f"All {len(own)} functions of TpuLang build, infer, run and are exported. Every function except `custom` also "
        "takes",
        "`out_name`. Written by `quantizer.lang.document.functions_document`.",
    ]
    for group in GROUPS:
        chosen = sorted((item for item in FUNCTIONS.values() if item.group == group), key=lambda item: item.name)
        lines += ["", f"## {group} ({len(chosen)})", "", "| function | what it does |", "|---|---|"]
        lines += [_line(item) for item in chosen]
    return "\n".join((*lines, ""))


def _line(item: Function) -> str:
    says = (inspect.getdoc(item.call) or "").splitlines()[0].rstrip(".")
    return f"| `{item.name}({', '.join(_arguments(item))})` | {says.replace('|', chr(92) + '|')} |"


def _arguments(item: Function) -> list[str]:
    """Return the arguments as text: those with a default as name=default."""
    found = inspect.signature(item.call).parameters.values()
    return [
        own.name if own.default is own.empty else f"{own.name}={own.default!r}"
        for own in found
        if own.name != "out_name"
    ]
