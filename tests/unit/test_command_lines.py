"""A wrong command line of `quantizer` or pytest gets a one-line error that suggests a correct one."""

from __future__ import annotations

import pytest

from quantizer.cli import COMMANDS, main

WRONG = [
    ("", "no COMMAND is given. Write one of spec, optimize,"),
    ("cse", "'cse': no such command. Did you mean 'case'?"),
    ("--verson", "--verson: no such option."),
    ("spec", "no VERB is given. Write one of lint, schema, list, new."),
    ("spec lnt", "VERB: 'lnt': must be one of lint, schema, list, new. Did you mean 'lint'?"),
    ("spec new", "NAME missing. Write quantizer spec new NAME."),
    (
        "spec new x --kind fusd",
        "--kind: 'fusd': must be one of elementwise, table, custom, fused. Did you mean 'fused'?",
    ),
    ("spec new x y", "quantizer spec new: y: one argument too many. Write quantizer spec new NAME."),
    ("spec new --knd fused", "--knd: no such option. Did you mean '--kind'?"),
    ("report --format json", "--format: no such option. Options of a VERB follow its name. Write one of diff,"),
    ("campaign --exampls 3", "quantizer campaign: --exampls: no such option. Did you mean '--examples'?"),
    ("campaign --examples", "--examples: has no value. Write --examples "),
    ("campaign --examples x", "--examples: 'x': must be a whole number."),
    ("faults --workers 0", "--workers: '0': must be a whole number from 1 to 1048576."),
    ("vectors export --cases x -o a", "--cases: 'x': must be a whole number from 1 to 1048576."),
    ("campaign -x", "-x: no such option. Options: --cluster, --examples"),
    ("campaign --examples 1 --workers 2 --cluster x", "--cluster and --workers exclude each other. Remove one."),
    ("optimize", "one of -c/--cfg, -p/--plugin, -f/--field, --compare must be given."),
    ("case export b.json", "-o/--output missing. Write quantizer case export --output OUTPUT FILE."),
    ("compare a.npz", "REFERENCE.npz missing. Write quantizer compare TARGET.npz REFERENCE.npz."),
]


@pytest.mark.parametrize(("line", "text"), WRONG)
def test_a_wrong_command_line_gets_a_one_line_error(line, text, capsys):
    assert main(line.split()) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert text in err


@pytest.mark.parametrize("command", COMMANDS)
def test_an_unknown_option_is_named_before_missing_ones(command, capsys):
    assert main([command, "--no-such-option"]) == 2
    err = capsys.readouterr().err
    assert f"error: quantizer {command}: --no-such-option: no such option." in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    "line", ["campaign --example x", "campaign --examples=x", "compare -- a", "analyse m --seed -1"]
)
def test_abbreviations_values_and_positional_words_are_not_unknown_options(line, capsys):
    assert main(line.split()) == 2
    assert "no such option" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--op-platfrom=ort"], "--op-platfrom: no such option. Did you mean '--op-platform'?"),
        (["--op-zzz"], "--op-zzz: no such option. See `pytest --help`."),
        (["--op-engine=onnxruntime", "--op-engine-command=x"], "each names the engine under test. Remove one."),
    ],
)
def test_a_wrong_option_of_pytest_is_answered_in_one_line(options, text, pytester):
    result = pytester.runpytest_subprocess("-p", "quantizer_conformance", *options)
    assert result.ret == 4
    assert any(text in line for line in result.errlines)
