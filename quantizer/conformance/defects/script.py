"""Writes a stored case as a stand-alone script of the engine's own API and numpy, without this package.

The script can be attached to a bug report as it is. It computes the expected codes first: sums of centred codes in
int64, scales in float64, one rounding. Then it runs the engine and compares. If the expected codes depend on more than
that, such as a table or two roundings, the script lists them with their origin.
"""

from __future__ import annotations

import importlib
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quantizer.conformance.checks.invariance import planned, stitched
from quantizer.conformance.defects.script_formulas import formula
from quantizer.conformance.failures.message import graph_line
from quantizer.conformance.trials.trial import Trial
from quantizer.core.errors import UnsupportedError
from quantizer.core.wording import visible
from quantizer.runtime.engines.forms.npz import container
from quantizer.runtime.engines.frames import Array
from quantizer.runtime.engines.lowering import Lowered, load_lowering
from quantizer.runtime.engines.scripts import (
    WIDTH,
    Source,
    Writer,
    array_text,
    assigned,
    needed_imports,
)

NEAREST = 0.5 + 1e-3
"""A code that is further than this from the exact result, in steps, is wrong under any rounding."""
SHOWN = 16
"""The largest number of elements that a script prints."""
TRIES = 20
"""The most runs in which a script looks for a result that changes from run to run."""
ROUNDINGS: Mapping[str, Callable[[NDArray[Any], int], NDArray[Any]]] = {
    "np.rint(steps) + z_y": lambda steps, zero: np.rint(steps) + zero,
    "np.rint(steps + z_y)": lambda steps, zero: np.rint(steps + zero),
    "np.sign(steps) * np.floor(np.abs(steps) + 0.5) + z_y": lambda steps, zero: (
        np.sign(steps) * np.floor(np.abs(steps) + 0.5) + zero
    ),
    "np.floor(steps + 0.5) + z_y": lambda steps, zero: np.floor(steps + 0.5) + zero,
}
"""A rounding as text in a script -> the same rounding as a function."""
AWAY = "np.sign(steps) * np.floor(np.abs(steps) + 0.5) + z_y"
NOWHERE = "np.rint(steps) + z_y"


@dataclass(frozen=True)
class Told:
    """The facts that a script prints, and its inputs besides the case."""

    title: str
    lines: tuple[str, ...] = ()
    severity: str | None = None
    declared: bool = False
    """Whether our functions of the platform have the defect, too."""
    unstable: bool = False
    environment: Mapping[str, str] | None = None
    """Variables that select the kernels, set before the engine is imported."""


@dataclass(frozen=True)
class Expected:
    """The lines that set `expected`, the expression of wrong elements in terms of `got`, and the expected codes."""

    lines: tuple[str, ...]
    wrong: str
    codes: Array


def repro(trial: Trial, lowering: str, variant: str, writer: str, told: Told) -> str:
    """Return the script of *trial*, which runs on the built-in engine.

    *lowering*: the module that lowers to the form. *writer*: `module:function`, a `Writer`. Raises UnsupportedError, or
    RefusedError for a case that the form cannot hold.
    """
    form = load_lowering(lowering)
    if (missing := form.supports(trial.spec, trial.target.scheme, trial.target.platform, variant)) is not None:
        raise UnsupportedError(missing)
    lowered = form.lower(trial.call, trial.codes, trial.parameters, variant)
    known = {name: _operand(trial, name, lowered.job.feeds.get(name)) for name in trial.codes}
    module, _, function = writer.partition(":")
    write: Writer = getattr(importlib.import_module(module), function)
    source, expected = write(lowered.job, known), expected_codes(trial, told)
    arranged = _arranged(lowered, trial.output_shape)
    infinite = [] if np.isfinite(trial.y_hat).all() else ['np.seterr(all="ignore")  # an infinity saturates']
    body = [*infinite, *_operands(trial, known), "", *expected.lines, "", *_run(source, arranged, expected, told)]
    environment = [f'os.environ["{name}"] = "{value}"' for name, value in (told.environment or {}).items()]
    standard = sorted({*needed_imports([*body, *environment]), "import sys", *_standard(source.imports)})
    others = [line for line in source.imports if line not in standard]
    head = [
        *_docstring(trial, told),
        "",
        *standard,
        "",
        *environment,
        *([""] if environment else []),
        *sorted(["import numpy as np", *others], key=_isort),
    ]
    return "\n".join([*head, "", *body]) + "\n"


def _standard(imports: Sequence[str]) -> list[str]:
    return [line for line in imports if line in ("import tempfile", "from importlib.metadata import version")]


def _isort(line: str) -> tuple[bool, str]:
    return line.startswith("from"), line.lower()


def _docstring(trial: Trial, told: Told) -> list[str]:
    case = f"Case: {graph_line(trial.case)}, data {trial.case.data.set}, found by generated cases of quantizer."
    lines = map(_quoted, (*told.lines, case))
    paragraphs = [textwrap.fill(line, WIDTH, break_long_words=False) for line in lines]
    title = textwrap.wrap(_quoted(told.title), WIDTH - 3)
    return [f'"""{title[0]}', *title[1:], "", *paragraphs, '"""']


def _quoted(text: str) -> str:
    """Escape a text of a stored case for a docstring, so that it cannot end the docstring and become code."""
    return visible(text).replace("\\", "\\\\").replace('"""', "'''")


def _operand(trial: Trial, name: str, fed: Array | None) -> Array:
    """Return the codes of an operand in the type in which a model takes them."""
    values: Array = trial.codes[name].numpy()
    if fed is not None and fed.dtype != np.float32:
        return values.astype(fed.dtype)
    if trial.spec.inputs[name].kind == "value":
        return values.astype(container(trial.qparams(name)))
    return values.astype(np.float32) if trial.spec.inputs[name].kind == "real" else values


def _operands(trial: Trial, known: Mapping[str, Array]) -> list[str]:
    lines = []
    for name, values in known.items():
        lines += assigned(name, array_text(values))
        if trial.spec.inputs[name].kind != "value":
            continue
        params = trial.qparams(name)
        scale, zero = _scales(params.scale.numpy()), _zeros(params.zero_point.numpy())
        both = f"s_{name}, z_{name} = {scale}, {zero}"
        lines += [both] if len(both) <= WIDTH else [*assigned(f"s_{name}", scale), *assigned(f"z_{name}", zero)]
    y = trial.output
    return [*lines, f"s_y, z_y = {_scales(y.scale.numpy())}, {_zeros(y.zero_point.numpy())}"]


def _scales(values: Array) -> str:
    """Return scales as float64 text: they are float32 numbers, whose products float64 holds exactly."""
    doubles = values.astype(np.float64)
    return repr(float(doubles)) if doubles.ndim == 0 else f"np.array({doubles.tolist()})"


def _zeros(values: Array) -> str:
    return str(int(values)) if values.ndim == 0 else f"np.array({values.astype(np.int64).tolist()})"


@np.errstate(all="ignore")
def expected_codes(trial: Trial, told: Told) -> Expected:
    """Return the expected codes: by a formula if there is one, else as numbers with their origin."""
    y, own = trial.output, trial.got
    if trial.spec.outputs["y"].kind == "index" or y.scale.dim():
        return _numbers(own, "the operator's real result, computed in float64")
    scale, zero = float(y.scale), int(y.zero_point)
    steps = trial.y_hat / scale
    rounded = {text: np.clip(rule(steps, zero), y.qmin, y.qmax).astype(np.int64) for text, rule in ROUNDINGS.items()}
    lines = formula(trial)
    far = bool((np.abs(own - np.clip(steps + zero, y.qmin, y.qmax)) > NEAREST).any())
    rule = AWAY if trial.target.platform.rounding == "half_away" else NOWHERE
    # the expected codes cannot come from our functions, which have the defect, too
    if told.declared and not far:
        return _of_another_run(trial, own, lines, rounded)
    # the rounding that gives our codes: the script then states a formula instead of a list of numbers
    right = next((text for text, codes in rounded.items() if not told.declared and (codes == own).all()), rule)
    exact = told.severity not in ("memory", "wrong") and not told.declared
    # no formula gives these codes, or there is none
    if (exact and (rounded[right] != own).any()) or lines is None:
        return _numbers(own if exact else rounded[right], _origin(trial))
    # a wrong result is further off than any rounding, so a script need not choose between roundings
    wrong = "got != expected" if exact else f"np.abs(got - np.clip(steps + z_y, {y.qmin}, {y.qmax})) > {NEAREST}"
    return Expected((*_stated(trial, lines, right),), wrong, rounded[right])


def _of_another_run(trial: Trial, own: Array, lines: Sequence[str] | None, rounded: Mapping[str, Array]) -> Expected:
    """Return as expected what the kernel gives for the case in parts; without parts, the declared rounding."""
    if trial.case.tiles.sizes:
        codes = stitched(trial, planned(trial, trial.case.tiles))
        if (codes != own).any():
            cut = " x ".join(f"{axis} {size}" for axis, size in trial.case.tiles.sizes.items())
            return _numbers(codes, f"the same numbers computed in parts ({cut}): neither order is wrong alone")
    if lines is not None and (rounded[AWAY] != own).any():
        return Expected((*_stated(trial, lines, AWAY),), "got != expected", rounded[AWAY])
    raise UnsupportedError("the case shows no difference that a script could print")


def _origin(trial: Trial) -> str:
    return f"what the arithmetic declared for {trial.target.platform.platform} gives, restated in integers"


def _numbers(codes: Array, origin: str) -> Expected:
    text = assigned("expected", array_text(codes.astype(np.int64)))
    comment = textwrap.wrap(f"# Right: {origin}.", WIDTH, subsequent_indent="# ")
    return Expected((*comment, *text), "got != expected", codes)


def _stated(trial: Trial, lines: Sequence[str], rounding: str) -> list[str]:
    y = trial.output
    activation = {"none": [], "relu": ["real = np.maximum(real, 0)"], "relu6": ["real = np.clip(real, 0, 6)"]}
    return [
        "# Right: the value of the codes in integers and float64, rounded once.",
        *lines,
        *activation[trial.case.activation],
        "steps = real / s_y",
        f"expected = np.clip({rounding}, {y.qmin}, {y.qmax}).astype(np.int64)",
    ]


def _run(source: Source, arranged: str, expected: Expected, told: Told) -> list[str]:
    count = expected.codes.size
    versions = ", ".join((*source.versions, "numpy {np.__version__}"))
    first = "" if count <= SHOWN else f"[:{SHOWN}]"
    lines = [
        f'print(f"{versions}")',
        f'print("expected", expected.ravel(){first}.tolist(), flush=True)',
    ]
    found = [
        *source.lines,
        f"got = {arranged}.astype(np.int64)",
        'assert got.shape == expected.shape, f"shape {got.shape}, right is {expected.shape}"',
        f"wrong = {expected.wrong}",
    ]
    if told.unstable or told.severity == "memory":
        inside = [*found, "if wrong.any():", "    break"]
        found = [f"for _ in range({TRIES}):  # what is read may change from run to run", *(f"    {x}" for x in inside)]
    if count <= SHOWN:
        shown = ['print("got     ", got.ravel().tolist())']
    else:
        shown = [
            "at = np.flatnonzero(wrong)[:8]",
            'print("at element ", at.tolist())',
            'print("expected is", expected.ravel()[at].tolist())',
            'print("got         ", got.ravel()[at].tolist())',
        ]
    return [*lines, *found, *shown, 'print("differs" if wrong.any() else "agrees")', "sys.exit(int(wrong.any()))"]


def _arranged(lowered: Lowered, shape: tuple[int, ...]) -> str:
    """Return the expression that turns `got` into the operator's result, found by lowering numbered elements."""
    places = np.arange(int(np.prod(shape)), dtype=np.int64)
    texts = {
        "got": shape,
        "np.moveaxis(got, -1, 1)": (shape[:1] + shape[2:] + shape[1:2]) if len(shape) > 1 else shape,
        **{f"np.expand_dims(got, {axis})": shape[:axis] + shape[axis + 1 :] for axis in range(len(shape))},
    }
    for candidate in dict.fromkeys(texts.values()):
        if np.prod(candidate) != places.size:
            continue
        sent = places.reshape(candidate)
        try:
            found = np.asarray(lowered.result((sent, np.array(0))))
        except (ValueError, IndexError):
            continue
        if found.shape != shape:
            continue
        if np.array_equal(found, places.reshape(shape)):
            return "got" if candidate == shape else f"got.reshape({list(shape)})"
        # the usual layouts have an expression; any other is a list of places
        if len(shape) > 1 and np.array_equal(found, np.moveaxis(sent, -1, 1)):
            return "np.moveaxis(got, -1, 1)"
        return f"got.ravel()[{array_text(found)}]"
    raise UnsupportedError("the outcome of the engine has no shape that a script could turn into the operator's")
