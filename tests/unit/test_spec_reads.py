"""Every key of a spec is used outside the rules that check specs."""

import itertools
from pathlib import Path

from torch.nn.functional import silu

from quantizer.conformance.checks.reject import reject_problems
from quantizer.conformance.faults import explicit_cases
from quantizer.conformance.generation.builder import build_case
from quantizer.conformance.generation.choice_sources import HashChoices
from quantizer.conformance.generation.hashing import key
from quantizer.conformance.judging.judge import judge
from quantizer.conformance.setup.options import Options
from quantizer.conformance.setup.session import Session, open_session
from quantizer.conformance.spec_checks.unused_keys import given_keys, recorded
from quantizer.conformance.trials.trial import Trial
from quantizer.core import roles
from quantizer.core import spec as models
from quantizer.core.library import read_spec
from quantizer.core.model import Model
from quantizer.ops import REGISTRY
from quantizer.plugins.oracle import oracle_function

TOLD = {
    "Domain.summary": "for readers of the spec",
    "Example.id": "for readers of the spec, and of what is wrong with the example",
    "Exclude.reason": "for readers of the spec",
    "Input.summary": "for readers of the spec",
    "Output.summary": "for readers of the spec",
    "Spec.summary": "for readers of the spec, and of `quantizer spec list`",
    "Spec.version": "for readers of the spec, and of `quantizer spec list`",
}
"""Keys that no case reads, and whom they are for."""
FOLDED = """\
op: folded
version: "1.0"
summary: The absolute value.
dims:
  shape: {type: shape, rank: [1, 2], min: 1, max: 4}
inputs:
  x: {axes: shape}
outputs:
  y: {}
shape:
  y: shape
error_model: {kind: piecewise_monotone, critical_points: [0.0]}
quantization: {family: movement}
tiling:
  "*": {rule: independent}
excludes: [{scheme: a16, platform: ideal, reason: a test}]
oracle: torch.abs
"""
"""What no shipped operator says yet."""
STAGED = """
op: gated
version: "1.0"
summary: SiLU of a gate times a second operand.
dims:
  shape: {type: shape, rank: [1, 2], min: 1, max: 4}
inputs:
  gate: {axes: shape}
  up: {axes: shape}
outputs:
  y: {}
shape:
  y: shape
error_model: {kind: custom}
quantization: {family: gated_product}
stages:
  act: {value: silu(gate), bits: 16, signed: true, rounding: half_even, scale: "max(abs(gate_low), abs(gate_high)) / 32767"}
  y: {value: act * up}
tiling:
  "*": {rule: independent}
oracle: none
"""
"""What no shipped operator has: more than one rounding."""
CASES = (6, 60)
"""Of every operator a few; of those that have a key that nothing has read by then, more."""
STEP = 11
"""One case of so many is run: examples, of which an operator may have many, come before what is generated."""


def test_a_run_reads_every_key_of_the_model(tmp_path: Path) -> None:
    every = {
        f"{model.__name__}.{key}"
        for model in vars(models).values()
        if isinstance(model, type) and issubclass(model, Model) and model is not Model
        for key in model.model_fields
    }
    (tmp_path / "folded.yaml").write_text(FOLDED)
    (tmp_path / "gated.yaml").write_text(STAGED)
    session = open_session(Options(root=Path.cwd(), specs=(tmp_path,)))
    read: set[str] = set()
    with (
        REGISTRY.overridden("folded", "reference", lambda x: x.abs(), None),
        REGISTRY.overridden("folded", "quantized", lambda x, parameters: x, None),
        REGISTRY.overridden("gated", "reference", lambda gate, up: silu(gate) * up, None),
        REGISTRY.overridden("gated", "quantized", lambda gate, up, parameters: gate, None),
    ):
        for cases, path in itertools.product(CASES, session.library.paths.values()):
            spec = read_spec(path)[0]
            if (every - read - TOLD.keys()) & _written(spec):  # else it has nothing more to read
                read |= _read(session, spec, cases)
    assert every - read == TOLD.keys(), "nothing reads a key: use it, remove it, or say whom it is for"


def _read(session: Session, spec: models.Spec, cases: int) -> set[str]:
    """Return `Class.key` of everything that a run of so many cases of *spec* reads of it."""
    held = _models(spec)
    with recorded() as found:
        # Targets of weights in blocks come last: their keys are read by a case of each, not by all that come before.
        blocks = [t for t in session.all_targets(spec) if t.scheme.weight is not None and t.scheme.weight.block]
        roles._with_weights.cache_clear()  # the session read the keys of an equal spec before
        own = [(target, build_case(target, HashChoices(key(0, target.id), {}))) for target in blocks]
        for target, case in [*own, *itertools.islice(explicit_cases(session, spec), None, cases * STEP, STEP)]:
            judge(Trial(target, case, session.engine))
        reject_problems(session.all_targets(spec)[0], session.engine)
        oracle_function(spec)
    return {f"{type(held[model]).__name__}.{name}" for model, name in found if model in held}


def _written(spec: models.Spec) -> set[str]:
    """Return `Class.key` of every key that *spec* writes."""
    return {f"{type(model).__name__}.{key}" for model in _models(spec).values() for key in model.model_fields_set}


def _models(value: object) -> dict[int, Model]:
    """Return id -> model of every model in *value*."""
    found: dict[int, Model] = {}
    inner: object = ()
    if isinstance(value, Model):
        found[id(value)] = value
        inner = [getattr(value, name) for name in type(value).model_fields]
    elif isinstance(value, dict | list):
        inner = value.values() if isinstance(value, dict) else value
    for part in inner:
        found |= _models(part)
    return found


def test_recording_leaves_models_as_they_were():
    spec = read_spec(Path("op_specs/reshape.yaml"))[0]
    with recorded() as found:
        assert spec.op == "reshape"
    assert (id(spec), "op") in found
    assert spec.version
    assert (id(spec), "version") not in found
    assert "__getattribute__" not in vars(Model)


def test_only_optional_written_keys_are_listed_with_their_place():
    spec = read_spec(Path("op_specs/reshape.yaml"))[0]
    places = [place for place, _ in given_keys(spec)]
    assert ("dims", "from_shape", "rank") in places
    assert ("op",) not in places
    assert ("names",) not in places
