"""A plugin that replaces a built-in function: the vendor's run reports it, and judges it on request."""

import os
import subprocess
import sys

import pytest

from quantizer.conformance.run import shipped

PLUGIN = '''\
"""The vendor's relu of platform compass."""
from quantizer.numerics.requantize_accumulator import requantize_terms
from quantizer.numerics.quantize import centred
from quantizer.ops import operator


@operator("relu", platform="compass")
def quantized_compass(x, *, parameters):
    """Cut at the zero point, round once."""
    return {result}
'''
RIGHT = 'requantize_terms({"x": centred(x, parameters.inputs["x"]).clamp(min=0)}, parameters)'
OFF_BY_ONE = RIGHT + " + 1"


def replace_relu(vendor, result=RIGHT):
    vendor.write()
    (vendor.root / "my_plugins" / "their_relu.py").write_text(PLUGIN.format(result=result))
    vendor.pytester.makeini("[pytest]\ntestpaths = my_specs\nop_plugins = my_plugins\nop_shipped = relu\n")


def test_replacing_a_function_adds_items_of_its_platform(vendor):
    replace_relu(vendor)
    result = vendor.pytest("--collect-only", "-q", "-p", "no:xdist")
    found = [line.rpartition("::")[2] for line in result.outlines if "relu.yaml::" in line]
    assert found == ["relu-a8-compass", "relu-a8s-compass", "relu-a16-compass"]


def test_a_named_platform_is_judged_even_if_plugins_replace_others(vendor):
    """An installed plugin replaces relu on compass; the run asks for another platform, or for an engine."""
    replace_relu(vendor)
    result = vendor.pytest("--collect-only", "-q", "-p", "no:xdist", "--op-shipped=relu", "--op-platform=ideal")
    assert "relu.yaml::relu-a8-ideal" in result.stdout.str()
    assert "compass" not in result.stdout.str()


def test_a_path_on_the_command_line_overrides_the_ini_file(vendor):
    replace_relu(vendor)
    result = vendor.pytest("--collect-only", "-q", "-p", "no:xdist", "my_specs")
    assert "relu.yaml" not in result.stdout.str()
    result = vendor.pytest("--collect-only", "-q", "-p", "no:xdist", "my_specs", "--op-shipped=relu")
    assert "relu.yaml::relu-a8-compass" in result.stdout.str()


def test_a_wrong_replacement_fails_and_its_rerun_command_works(vendor):
    replace_relu(vendor, OFF_BY_ONE)
    result = vendor.pytest("-k", "relu-a8-compass", "-p", "no:xdist")
    assert result.ret == 1
    result.stdout.fnmatch_lines(
        [
            "relu-a8-compass: arithmetic: *",
            "  rerun       pytest -k relu-a8-compass --op-shipped=relu --op-plugins=my_plugins",
            "replaced: relu.quantized on compass 1 (*their_relu*)",
        ]
    )
    again = vendor.pytest("-k", "relu-a8-compass", "--op-shipped=relu", "-p", "no:xdist")
    again.assert_outcomes(failed=1, deselected=10)


def test_a_replacement_that_no_item_judged_is_named(vendor):
    replace_relu(vendor)
    vendor.pytester.makeini("[pytest]\ntestpaths = my_specs\nop_plugins = my_plugins\nop_scheme = a8\n")
    result = vendor.pytest("-p", "no:xdist")
    result.stdout.fnmatch_lines(
        [
            "not judged: relu.quantized on compass 1 (*) replaces a built-in, and no item of it ran. Add --op-shipped=relu."
        ]
    )


def test_a_name_that_is_not_a_shipped_operator_is_refused(vendor):
    vendor.write()
    result = vendor.run("--op-shipped=relo")
    assert result.ret == 4
    result.stderr.fnmatch_lines(["ERROR: --op-shipped=relo: no such operator. Did you mean 'relu'?*"])


def test_the_spec_of_an_installed_operator_is_suggested(tmp_path):
    (tmp_path / "orca_gate.yaml").touch()
    said = shipped._of_package("orca_gate", [tmp_path])
    assert said.startswith("an installed package has it, it is not shipped. Write pytest ")
    assert shipped._of_package("relo", [tmp_path]) == ""


@pytest.mark.nightly
def test_a_misspelt_operator_is_named_beside_an_installed_package(vendor):
    """The run has loaded the package's plugin: a hint that looks for its specs must not load it again."""
    vendor.write()
    (metadata := vendor.root / "vendor_ops-1.0.dist-info").mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: vendor-ops\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[quantizer.operators]\ndouble = double\n")
    path = os.pathsep.join(map(str, (vendor.root, vendor.root / "my_plugins", *sys.path)))
    words = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--op-shipped=relo"]
    environment = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run(words, cwd=vendor.root, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 4, done.stdout
    assert "--op-shipped=relo: no such operator. Did you mean 'relu'?" in done.stderr


def test_an_ini_file_may_have_several_names_in_a_line(vendor):
    replace_relu(vendor)
    vendor.pytester.makeini("[pytest]\nop_plugins = my_plugins\nop_shipped = relu conv2d\nop_platform = ideal ort\n")
    result = vendor.pytest("--collect-only", "-q", "-p", "no:xdist", "--op-scheme=a8")
    found = [line.rpartition("::")[2] for line in result.outlines if "/relu.yaml::" in line or "/conv2d.yaml::" in line]
    assert found == ["relu-a8-ideal", "conv2d-reject"]


def test_shipped_specs_and_goldens_run_in_their_own_folder(pytester):
    asked = ("-p", "no:xdist", "--collect-only", "-q", "--op-shipped=conv2d", "--op-platform=ideal", "--op-scheme=w8a8")
    assert ids(pytester.runpytest_inprocess(*asked)) == ["conv2d-w8a8-ideal", "conv2d-reject"]
    stored = pytester.mkdir("cases") / "golden"
    stored.mkdir()
    (stored / "conv2d.jsonl").touch()
    assert ids(pytester.runpytest_inprocess(*asked)) == ["conv2d-w8a8-ideal", "conv2d-golden", "conv2d-reject"]


def test_a_run_without_a_spec_suggests_options(pytester):
    result = pytester.runpytest_inprocess("-p", "no:xdist", "-q", "--op-platform=ideal")
    assert result.ret == 5
    result.stdout.fnmatch_lines(["quantizer: no spec is here. *--op-shipped=conv2d."])


def ids(result):
    return [line.rpartition("::")[2] for line in result.outlines if "conv2d.yaml::" in line]
