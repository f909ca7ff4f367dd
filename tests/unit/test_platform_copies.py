"""A renamed copy of a platform computes and is judged like the original, or lint refuses it."""

import re
from pathlib import Path

import pytest
import torch
import yaml

from quantizer.conformance.generation.builder import build_case
from quantizer.conformance.generation.choice_sources import HashChoices
from quantizer.conformance.generation.hashing import key
from quantizer.conformance.judging.judge import judge
from quantizer.conformance.spec_checks.platform_trials import _said, platform_problems
from quantizer.conformance.target import Target
from quantizer.conformance.trials.trial import Trial
from quantizer.core.arithmetics import COMPOSING
from quantizer.core.library import load_library
from quantizer.core.linting import lint
from quantizer.core.rooms import declared_platforms, oracle_of
from quantizer.core.variants import Variant
from quantizer.core.verdict import Verdict, Worst
from quantizer.ops import REGISTRY, Registration, load_built_ins
from quantizer.runtime.engines.builtin import BuiltinEngine

OPERATORS = ("add", "clip", "leaky_relu", "reduce_mean", "softmax", "tanh")
"""Of the rooms' own functions and oracles, and one of the generic arithmetic."""
CASES = 2
PLATFORMS = sorted(declared_platforms())


@pytest.fixture(scope="module", autouse=True)
def built_ins():
    load_built_ins()


def copied(folder: Path, name: str, *changes: tuple[str, str]) -> Path:
    """Write the file of platform *name* as that of `my_<name>` below *folder*, with *changes* to its text; return the file."""
    text = load_library().platform_paths[name].read_text(encoding="utf-8")
    for old, new in ((f"platform: {name}\n", f"platform: my_{name}\n"), *changes):
        assert text.count(old) == 1
        text = text.replace(old, new)
    file = folder / "platforms" / f"my_{name}.yaml"
    file.parent.mkdir(exist_ok=True)
    file.write_text(text, encoding="utf-8")
    return file


@pytest.fixture(scope="module")
def copies(tmp_path_factory):
    folder = tmp_path_factory.mktemp("copies")
    for name in PLATFORMS:
        copied(folder, name)
    return folder


def judged(target, case):
    trial = Trial(target, case, BuiltinEngine())
    said = [(v.check, v.status, v.ratio, v.elements, v.failed, v.vacuous, v.width) for v in judge(trial)]
    return trial, said


@pytest.mark.parametrize("name", PLATFORMS)
def test_a_copy_computes_and_is_judged_as_the_original(copies, name):
    library = load_library([copies])
    shipped, copy = library.platform(name), library.platform(f"my_{name}")
    compared = 0
    for spec in map(library.spec, OPERATORS):
        schemes = library.schemes_for(spec, shipped)
        assert library.schemes_for(spec, copy) == schemes
        for scheme in dict.fromkeys((*schemes[:1], *schemes[-1:])):
            one, other = (Target(spec, library.scheme(scheme), platform) for platform in (shipped, copy))
            for index in range(CASES):
                case = build_case(one, HashChoices(key(index, one.id, "copy"), {"data": "random"}))
                first, said = judged(one, case)
                second, repeated = judged(other, case.but(platform=copy.platform))
                assert repeated == said
                assert torch.equal(torch.from_numpy(first.got), torch.from_numpy(second.got))
                assert first.parameters.numbers == second.parameters.numbers
                compared += 1
    assert compared


def test_copies_are_not_refused(copies):
    assert lint([copies]) == ([], {"spec": 0, "platform": len(PLATFORMS), "schemes file": 0})
    assert [*platform_problems([f"my_{name}" for name in ("compass", "tflite_ref", "torch_x86")], [copies])] == []


def test_platforms_with_own_functions_declare_their_owner():
    library = load_library()
    families = {spec.quantization.family for spec in library.specs.values()}
    bound = {entry.platform for entry in REGISTRY.all() if entry.platform is not None}
    bound |= {name for name in PLATFORMS if any(oracle_of(family, (name,)) for family in families)}
    for name in PLATFORMS:
        platform = library.platform(name)
        chosen: set[Variant] = {*platform.requantize.values()}
        chosen |= {choice.variant for choices in platform.variants.values() for choice in choices}
        if name in bound or not chosen <= COMPOSING.keys():
            assert platform.functions == name


def test_a_copy_of_an_unknown_platform_is_refused_with_a_suggestion(tmp_path):
    file = copied(tmp_path, "compass", ("functions: compass\n", "functions: compas\n"))
    problems, _ = lint([file])
    assert len(problems) == 1
    assert (
        problems[0]
        .splitlines()[0]
        .endswith(
            "my_compass.yaml:5:12: functions: 'compas': no room has a platform of that name. Did you mean 'compass'?"
        )
    )


def test_a_copy_with_another_rounding_is_refused(tmp_path):
    file = copied(tmp_path, "tosa", ("\nrounding: half_away\n", "\nrounding: half_even\n"))
    problems, _ = lint([file])
    assert any("is the arithmetic of one system" in problem for problem in problems)


def test_a_copy_with_an_unsupported_setting_is_refused(tmp_path):
    copied(tmp_path, "compass", ("  scale: float32_steps\n", "  scale: float32\n"))
    assert any("tables.alignment: linspace: " in problem for problem in lint([tmp_path])[0])
    problems = [*platform_problems(["my_compass"], [tmp_path])]
    assert any("my_compass.yaml: sine-a16-my_compass: parameters: " in problem for problem in problems)
    assert all(len(problem.splitlines()) == 1 for problem in problems)
    assert all(problem.endswith("has the functions of compass, and changes parameters.scale") for problem in problems)


def test_a_copy_with_a_changed_setting_is_refused_by_key(tmp_path):
    copied(tmp_path, "tosa", ("\nrounding: half_away\n", "\nrounding: half_even\n"))
    wanted = "under all settings of tosa, and this file changes rounding. Keep"
    assert any(wanted in problem for problem in lint([tmp_path])[0])


def test_a_copy_needs_no_releases_of_its_original(tmp_path):
    file = copied(tmp_path, "torch_qnnpack")
    content = yaml.safe_load(file.read_text(encoding="utf-8"))
    del content["releases"]
    file.write_text(yaml.safe_dump(content), encoding="utf-8")
    assert lint([file])[0] == []


def test_a_failed_trial_shows_got_and_expected():
    worst = Worst("factor[a]", (), "1/2", "32640", "the multiplier")
    said = _said(Verdict("parameters", "fail", elements=18, failed=4, worst=worst))
    assert said.endswith(": factor[a] is 32640, expected 1/2 (the multiplier)") and said.startswith(
        "parameters: 4 of 18"
    )


def test_a_function_of_the_copy_precedes_that_of_the_original():
    own = Registration("leaky_relu", "quantized", lambda *_, **__: None, (1,), "my_compass", "plugin")
    places = ("my_compass", "compass")
    assert REGISTRY.find("leaky_relu", "quantized", places) is REGISTRY.find("leaky_relu", "quantized", "compass")
    with REGISTRY.overridden("leaky_relu", "quantized", own.function, "my_compass"):
        assert REGISTRY.entry("leaky_relu", "quantized", places).function is own.function
        assert REGISTRY.built_in("leaky_relu", "quantized", places) is REGISTRY.find(
            "leaky_relu", "quantized", "compass"
        )


def test_a_copy_without_defects_is_told_the_missing_ones(tmp_path):
    file = copied(tmp_path, "compass")
    content = yaml.safe_load(file.read_text(encoding="utf-8"))
    del content["defects"], content["ops_named_for"]
    file.write_text(yaml.safe_dump({**content, "functions": "compass", "ops": ["sigmoid"]}), encoding="utf-8")
    problem, *cases = platform_problems(["my_compass"], [tmp_path])
    assert "my_compass.yaml: sigmoid-a16-my_compass: parameters: " in problem
    assert cases
    assert all(re.search(r" in the case of defect \w+ of compass\. Keep its `defects`\.$", case) for case in cases), (
        cases
    )
    assert re.search(r"\. compass declares defects of it: \w+(, \w+)*\. Keep its `defects`\.$", problem), problem


def test_omitted_defects_show_in_their_stored_cases(tmp_path):
    file = copied(tmp_path, "torch_fbgemm")
    content = yaml.safe_load(file.read_text(encoding="utf-8"))
    del content["defects"]
    changed = {**content, "functions": "torch_fbgemm", "ops": ["leaky_relu", "fully_connected"]}
    file.write_text(yaml.safe_dump(changed), encoding="utf-8")
    problems = [*platform_problems(["my_torch_fbgemm"], [tmp_path])]
    said = "add: tiled fails in the case of defect vector_body_rounds_differently of torch_fbgemm. Keep its `defects`."
    assert any(problem.endswith(said) for problem in problems), problems
