"""The spec item fails for unsupported operators and for keys of a spec without effect."""

import re
from pathlib import Path

from quantizer.conformance.run.spec_item import spec_problems
from quantizer.conformance.setup.options import Options
from quantizer.conformance.setup.session import open_session

SPEC = """\
op: {name}
version: "1.0"
summary: The input times a whole number.
dims:
  shape: {{type: shape, rank: [1, 3], min: 1, max: 4}}
attrs:
  gain: {{min: 1, max: 3, bins: {{one: {{max: 1}}, more: {{min: 2}}}}}}
inputs:
  x: {{axes: shape}}
outputs:
  y: {{}}
shape:
  y: shape
constraints:
  - {{require: gain >= 1, error: "gain={{gain}} must be at least 1"}}
error_model: {{kind: linear, terms: 1}}
quantization: {{family: gain}}
tiling:
  "*": {{rule: independent}}
oracle: none
"""
MODULE = '''\
"""The input times a whole number."""
from quantizer.numerics.requantize_accumulator import requantize_terms
from quantizer.numerics.quantize import centred
from quantizer.ops import operator


@operator("{name}")
def reference(x, *, {attrs}):
    """Return gain x."""
    return gain * x


@operator("{name}")
def quantized(x, *, {attrs}, parameters):
    """Multiply, then round once."""
    return requantize_terms({{"x": gain * centred(x, parameters.inputs["x"])}}, parameters)
'''
GAIN_BINS = "more: {min: 2}"
DEFECTS = {
    "right": ("", "", None),
    "bin_beyond": (
        GAIN_BINS,
        GAIN_BINS + ', beyond: {min: "len(shape) + 3"}',
        "bin_beyond-spec: *bin_beyond.yaml:7:*: attrs.gain.bins.beyond: no generated case of any target reaches this bin. "
        "Widen the domain of gain, or of what bounds it, or remove the bin.",
    ),
    "never_tiled": (
        "{rule: independent}",
        '{rule: independent, when: "len(shape) > 5"}',
        "never_tiled-spec: *never_tiled.yaml:19:*: tiling.*.when: holds in no generated case: the axis is never cut.*",
    ),
    "never_related": (
        "oracle:",
        'properties: [{relation: zero_preserving, when: "gain > 7"}]\noracle:',
        "never_related-spec: *: properties.0.when: holds in no generated case: the relation is never judged.*",
    ),
    "idle_exclude": (
        "oracle:",
        "excludes: [{scheme: w8a8, reason: it has no weights}]\noracle:",
        "idle_exclude-spec: *: excludes.0: excludes nothing: without it the same schemes and platforms apply. Remove it.",
    ),
    "unread_key": (
        "terms: 1",
        "terms: 1, axis: 0",
        "unread_key-spec: *unread_key.yaml:16:*: error_model.axis: nothing reads it, whatever the case. Remove it.",
    ),
    "unknown_system": (
        "dims:",
        "names: {onxx: Mul}\ndims:",
        "unknown_system-spec: *: names.onxx: nothing reads the names of that system. Did you mean 'onnx'?",
    ),
    "idle_attr": (
        "attrs:",
        "attrs:\n  mode: {type: bool}",
        "idle_attr-spec: *: attrs.mode: decides nothing: no expression outside the constraints names it, and the reference "
        "gives the same for every value. Use it, or remove it.",
    ),
    "idle_constraint": (
        "constraints:",
        'constraints:\n  - {require: gain >= 0, error: "gain={gain} must not be negative"}',
        "idle_constraint-reject: constraint 0 (gain >= 0): no graph breaks it alone. Remove it, or widen a domain.",
    ),
}


def write(root: Path, name: str, old: str = "", new: str = "") -> None:
    text = SPEC.format(name=name)
    assert old in text
    (root / "my_specs").mkdir(exist_ok=True)
    (root / "my_plugins").mkdir(exist_ok=True)
    (root / "my_specs" / f"{name}.yaml").write_text(text.replace(old, new, 1) if old else text)
    attrs = "gain, mode" if "mode:" in new else "gain"
    (root / "my_plugins" / f"{name}.py").write_text(MODULE.format(name=name, attrs=attrs))


def test_each_planted_spec_defect_fails_with_a_remedy(vendor):
    for name, (old, new, _) in DEFECTS.items():
        write(vendor.root, name, old, new)
    result = vendor.run("-k=-spec or -reject")
    result.assert_outcomes(failed=len(DEFECTS) - 1, passed=len(DEFECTS) + 1, deselected=len(DEFECTS) * 7)
    assert result.ret == 1
    for name, (_, _, message) in DEFECTS.items():
        if message is not None:
            result.stdout.fnmatch_lines([message.replace("[", "[[]")])
        else:
            result.stdout.no_fnmatch_line(f"{name}-*: *")


def test_a_reference_of_fewer_bits_than_float64_is_refused(vendor):
    write(vendor.root, "coarse")
    module = vendor.root / "my_plugins" / "coarse.py"
    module.write_text(module.read_text().replace("return gain * x\n", "return (gain * x.half()).double()\n"))
    result = vendor.run("-k=coarse-spec")
    assert result.ret == 1
    result.stdout.fnmatch_lines(["coarse-spec: coarse: the reference computes in float32 or less,*"])


def test_every_target_needs_a_golden(vendor):
    write(vendor.root, "right")
    assert vendor.run("-k", "golden", "--op-golden-update", "first goldens").ret == 0
    path = vendor.root / "cases/golden/right.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(line for line in lines if '"a16"' not in line))
    result = vendor.run("-k", "golden")
    assert result.ret == 1
    result.stdout.fnmatch_lines(["right-golden: right-a16-ideal: no golden in cases/golden/right.jsonl. Run pytest*"])


def test_a_function_without_a_spec_ends_the_run_and_is_named(vendor):
    write(vendor.root, "right")
    (vendor.root / "my_plugins" / "stray.py").write_text(MODULE.format(name="stray", attrs="gain"))
    result = vendor.run("-k", "spec")
    assert result.ret != 0
    output = result.stdout.str() + result.stderr.str()
    assert "operator 'stray' has no spec. Write stray.yaml (quantizer spec new)." in output


def test_a_run_of_one_spec_file_reports_other_functions_unjudged(vendor):
    write(vendor.root, "right")
    write(vendor.root, "other")
    result = vendor.pytest("my_specs/right.yaml", "--op-plugins=my_plugins", "-k=right-a8-ideal", "-q")
    assert result.ret == 0, result.stdout.str() + result.stderr.str()
    result.stdout.fnmatch_lines(["not judged: other.quantized 1 (my_plugins/other.py): no item of other ran."])


def test_a_built_in_reference_is_compared_with_its_oracle():
    session = open_session(Options(root=Path.cwd()))
    add = session.library.spec("add")
    assert spec_problems(session, add.model_copy(update={"oracle": "torch.add"})).problems == []
    (problem,) = spec_problems(session, add.model_copy(update={"oracle": "torch.sub"})).problems
    assert "torch.sub: the reference differs from the oracle by more than rounding." in problem


def test_the_oracles_that_ship_need_no_extra():
    library = open_session(Options(root=Path.cwd())).library
    oracles = {spec.oracle for spec in library.specs.values() if spec.oracle is not None}
    assert {oracle.partition(".")[0] for oracle in oracles} <= {"torch", "numpy", "none"}


def test_an_operator_without_found_faults_fails_its_spec_item(monkeypatch):
    session = open_session(Options(root=Path.cwd()))
    monkeypatch.setattr("quantizer.conformance.faults.kills.judge", lambda *_: [])
    problems = spec_problems(session, session.library.spec("reshape")).problems
    assert [re.sub(r"in \d+ cases", "in some cases", problem) for problem in problems] == [
        f"fault {fault} is found by no check in some cases: the operator is not judged. Give its `error_model` a kind that "
        "has bounds, and run `quantizer faults --op reshape`."
        for fault in (
            "input_zero_point_provided (provided zero point)",
            "one_code_up (output)",
            "reference_in_place (state)",
        )
    ]
