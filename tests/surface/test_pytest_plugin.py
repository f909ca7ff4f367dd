"""The pytest plugin, as a vendor with own specs and plugins sees it."""

import json
import re
import sys
import xml.etree.ElementTree as ET

from quantizer.cli import main

OFF_BY_ONE = 'requantize_terms({"x": 2 * centred(x, parameters.inputs["x"])}, parameters) + 1'
HALF_UP = (
    '(2.0 * centred(x, parameters.inputs["x"]) * parameters.rescale.factors["x"] / parameters.rescale.divisor + 0.5)'
    '.floor().long().add(parameters.outputs["y"].zero_point)'
    '.clamp(parameters.outputs["y"].qmin, parameters.outputs["y"].qmax)'
)


def test_a_correct_operator_passes_except_for_its_missing_golden(vendor):
    vendor.write()
    result = vendor.run()
    result.assert_outcomes(passed=7, failed=1)
    result.stdout.fnmatch_lines(["*double-golden: cases/golden/double.jsonl: there is no golden. * Run pytest*"])


def test_goldens_and_records_do_not_depend_on_the_number_of_workers(vendor):
    vendor.write()
    assert vendor.run("-k", "golden", "--op-golden-update", "first goldens").ret == 0
    lines = (vendor.root / "cases/golden/double.jsonl").read_text().splitlines()
    assert len(lines) == 6
    assert {json.loads(line)["reason"] for line in lines} == {"first goldens"}

    apart = vendor.apart("-p", "no:xdist")
    assert apart.returncode == 0, apart.stdout
    alone = (vendor.root / "reports/out/records.jsonl").read_bytes()
    assert len(alone.splitlines()) > 6
    assert b"seconds" not in alone
    assert b"seconds" in (vendor.root / "reports/out/timings.jsonl").read_bytes()

    base = vendor.root / "base.jsonl"
    base.write_bytes(alone)
    assert vendor.run("-n", "2", "--op-report", "elsewhere", "--op-baseline", "base.jsonl").ret == 0
    for name in ("records.jsonl", "summary.json"):
        found = [(vendor.root / folder / name).read_bytes() for folder in ("reports/out", "elsewhere")]
        assert found[0] == found[1], name

    gone = base.read_text().splitlines()[0].replace("double-a16-ideal", "double-a99-ideal")
    base.write_text(base.read_text() + gone + "\n")
    result = vendor.run("--op-baseline", "base.jsonl")
    assert result.ret == 1
    result.stdout.fnmatch_lines(["baseline: *double-a99-ideal*"])


def test_a_golden_update_shows_and_stores_old_and_new_codes(vendor):
    vendor.write()
    assert vendor.run("-k", "golden", "--op-golden-update", "first goldens").ret == 0
    file = vendor.root / "cases/golden/double.jsonl"
    right = file.read_text()
    lines = [json.loads(line) for line in right.splitlines()]
    for line in lines:  # as if an earlier version had rounded two codes differently
        line["codes"][0] += 2
        line["codes"][-1] -= 1
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    result = vendor.run("-k", "golden", "--op-golden-update", "round half even")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["golden: double-a8-ideal: 2 of * codes change, by 2 LSB at most; SQNR * -> * dB"])
    found = [json.loads(line)["history"][0] for line in file.read_text().splitlines()]
    assert sum(entry["sqnr_before"] for entry in found) < sum(entry["sqnr_after"] for entry in found)
    for line, old in zip(map(json.loads, file.read_text().splitlines()), map(json.loads, right.splitlines())):
        assert line["codes"] == old["codes"]
        (entry,) = line["history"]
        assert (entry["reason"], entry["changed"], entry["lsb"]) == ("round half even", 2, 2)
        assert line["reason"] == "round half even"
    assert "history" not in right
    held = file.read_bytes()
    assert vendor.run("-k", "golden", "--op-golden-update", "nothing").ret == 0
    assert file.read_bytes() == held


def test_goldens_refuse_a_broken_operator_and_stay_unwritten(vendor):
    vendor.write(result=OFF_BY_ONE)
    result = vendor.run("-k", "golden", "--op-golden-update", "why")
    assert result.ret == 1
    assert not (vendor.root / "cases/golden/double.jsonl").exists()
    result.stdout.fnmatch_lines(["*arithmetic*fails on the golden case. Fix that before updating goldens.*"])


def test_goldens_are_never_written_under_ci(vendor, monkeypatch):
    vendor.write()
    monkeypatch.setenv("CI", "true")
    result = vendor.run("--op-golden-update", "why")
    assert result.ret == 4
    result.stderr.fnmatch_lines(["*--op-golden-update: goldens are never written under CI.*"])


def test_one_lsb_off_fails_with_element_interval_and_replay_file(vendor):
    vendor.write(result=OFF_BY_ONE)
    result = vendor.run("-k", "a8-ideal")
    assert result.ret == 1
    result.stdout.fnmatch_lines(
        [
            "double-a*-ideal: arithmetic: * of * elements outside their interval",
            "  worst       y[[]*[]]*ratio *",
            "  expected    * (code *)",
            "  got         * (code *)",
            "  allowed     *half_even of the provided sum*",
            "  suspect     the integer forward",
            "  graph       double(x: [[]1[]]) channels_first",
            "  rerun       pytest 'my_specs/double.yaml::double-a*-ideal' --op-plugins=my_plugins",
            "  replay      quantizer case replay reports/out/failures/double-a*.json --op-specs=my_specs/double.yaml"
            " --op-plugins=my_plugins",
        ]
    )
    printed = next(line.split()[1:] for line in result.outlines if line.startswith("  replay "))
    again = vendor.quantizer(*printed[1:])
    assert again.returncode == 1
    assert re.search(
        r"^double-a8-ideal: arithmetic: \d+ of \d+ elements outside their interval$", again.stdout, re.MULTILINE
    )
    assert main(["report", "html", str(vendor.root / "reports/out"), "-o", str(vendor.root / "page.html")]) == 0
    shown = re.search(
        r"case replay \S+/failures/\S+\.json( --op-specs[^<]*)</code>", (vendor.root / "page.html").read_text()
    )
    assert shown is not None
    assert shown[1] == " --op-specs=my_specs/double.yaml --op-plugins=my_plugins"


def test_a_case_replays_with_only_its_own_spec(vendor):
    vendor.write("other")
    (vendor.root / "my_specs").rename(vendor.root / "other_specs")
    vendor.write(result=OFF_BY_ONE)
    result = vendor.run("other_specs", "-k", "double-a8-ideal", "-p", "no:xdist")
    printed = next(line.split()[1:] for line in result.outlines if line.startswith("  replay "))
    assert "other_specs" not in " ".join(printed)
    again = vendor.quantizer(*printed[1:])
    assert (again.returncode, again.stderr) == (1, "")
    exported = vendor.quantizer("case", "export", *printed[3:], "-o", "exported")
    assert exported.returncode == 0, exported.stderr
    assert (vendor.root / "exported/case.npz").is_file()


def test_the_record_has_ratio_and_checks_of_the_failure(vendor):
    """The error grows with the size of the tensor, so the shrunk case has a smaller error."""
    vendor.write(result=f"{OFF_BY_ONE} * x.numel()")
    result = vendor.run("-k", "a8-ideal", "-p", "no:xdist")
    assert result.ret == 1
    text = result.stdout.str()
    (ratio,) = re.findall(r"^  worst .* ratio (\S+)$", text, re.MULTILINE)
    (line,) = (vendor.root / "reports/out/records.jsonl").read_text().splitlines()
    checks = json.loads(line)["checks"]
    assert f"{checks['arithmetic']['ratio']:.3g}" == ratio
    (also,) = re.findall(r"^  also  +(.*) fail$", text, re.MULTILINE) or [""]
    failed = {name for name, check in checks.items() if check.get("failed")}
    assert failed == {"arithmetic", *filter(None, also.split(", "))}


def test_ties_rounded_in_another_mode_fail(vendor):
    vendor.write(result=HALF_UP)
    result = vendor.run("-k", "a8-ideal")
    assert result.ret == 1
    result.stdout.fnmatch_lines(["double-a*-ideal: arithmetic: * of * elements outside their interval"])


def test_junit_carries_op_scheme_platform_and_ratio(vendor):
    vendor.write()
    vendor.run("--junit-xml", "out.xml", "-k", "a8-ideal")
    cases = ET.parse(vendor.root / "out.xml").getroot().iter("testcase")
    found = {case.get("name"): {p.get("name"): p.get("value") for p in case.iter("property")} for case in cases}
    assert found["double-a8-ideal"]["op"] == "double"
    assert found["double-a8-ideal"]["scheme"] == "a8"
    assert found["double-a8-ideal"]["platform"] == "ideal"
    assert 0 < float(found["double-a8-ideal"]["ratio"]) <= 1


DRAWS = """\
import json, pathlib

from quantizer.conformance.run import items

seeded_case, run, judged = items.seeded_case, items.Runner.run, set()

def noted(target, index, **named):
    case = seeded_case(target, index, **named)
    with pathlib.Path("draws.jsonl").open("a") as stream:
        stream.write(json.dumps([target.id, case.shapes["x"], case.data.seed]) + "\\n")
    return case

def first(self, case, **named):
    if self not in judged:  # an item that compares nothing fails; one case is enough
        judged.add(self)
        run(self, case, **named)

items.seeded_case, items.Runner.run = noted, first
"""


def generated(vendor, *args):
    """Return the generated cases of each item, in order, without those that rows request."""
    path = vendor.root / "draws.jsonl"
    path.write_text("")
    assert vendor.run(*args).ret == 0
    streams = {}
    for line in path.read_text().splitlines():
        item, *drawn = json.loads(line)
        streams.setdefault(item, []).append(drawn)
    return streams


def test_each_item_draws_its_own_cases_deterministically(vendor):
    vendor.write()
    (vendor.root / "conftest.py").write_text(DRAWS)
    found = generated(vendor, "-k", "ideal")
    assert [len(drawn) for drawn in found.values()] == [4] * 6
    assert len({json.dumps(drawn) for drawn in found.values()}) == 6
    assert generated(vendor, "-k", "ideal") == found
    assert generated(vendor, "-k", "a8-ideal", "--op-profile", "dev") == {}


def test_hypothesis_is_loaded_only_in_the_dev_profile(vendor):
    vendor.write()
    (vendor.root / "conftest.py").write_text(
        "import sys\ndef pytest_sessionfinish(session):\n    print('drawn' if 'hypothesis.core' in sys.modules else 'seeded')\n"
    )
    words = ("-k", "a8-ideal", "-s", "-p", "no:xdist", "--op-plugins=my_plugins", "--op-specs=my_specs", "my_specs")
    vendor.pytester.runpytest_subprocess(*words).stdout.fnmatch_lines(["*seeded*"])  # the warmed parent has loaded it
    for more, selected in ((), False), (("--op-profile", "dev"), True):
        shown = vendor.run("-m", "hypothesis", "-k", "a8-ideal", "--collect-only", "-q", *more).outlines
        assert ("my_specs/double.yaml::double-a8-ideal" in shown) == selected


def test_markers_select_items_by_op_and_scheme(vendor):
    vendor.write()
    result = vendor.run("-m", "op(name='double') and scheme(name='a8')", "--collect-only", "-q")
    result.stdout.fnmatch_lines(["my_specs/double.yaml::double-a8-ideal"])
    result.stdout.no_fnmatch_line("*a16*")


def test_wrong_values_are_usage_errors_that_name_the_legal_ones(vendor):
    vendor.write()
    for args, text in (
        (("--op-profile", "gte"), "--op-profile=gte: no such name. Did you mean 'gate'?*"),
        (("--op-scheme", "a9"), "--op-scheme=a9: no such name.*"),
        (("--op-platform", "idael"), "--op-platform=idael: no such name. Did you mean 'ideal'?*"),
        (("--op-check", "acuracy"), "--op-check=acuracy: no such name. Did you mean 'accuracy'?*"),
        (("--op-engine", "ours"), "--op-engine=ours: no such name.*"),
        (("--op-baseline", "nowhere.jsonl"), "--op-baseline: *nowhere.jsonl does not exist.*"),
        (("--hypothesis-seed", "1"), "--hypothesis-seed: the gate profile has no seed.*"),
        (("--op-golden-update", " "), "--op-golden-update: say why the codes change*"),
    ):
        result = vendor.run(*args)
        assert result.ret == 4, args
        (result.stderr if result.errlines else result.stdout).fnmatch_lines([f"*{text}"])


def test_a_plugin_that_fails_to_import_fails_the_run(vendor):
    vendor.write()
    (vendor.root / "my_plugins" / "broken.py").write_text("import no_such_module\n")
    result = vendor.run()
    assert result.ret == 4
    result.stderr.fnmatch_lines(["*broken.py*no_such_module*"])


def test_a_module_without_a_spec_and_a_spec_without_a_module_are_errors(vendor):
    vendor.write()
    (vendor.root / "my_specs" / "double.yaml").rename(vendor.root / "my_specs" / "other.yaml")
    result = vendor.run()
    assert result.ret != 0
    vendor.write("lonely")
    (vendor.root / "my_specs" / "other.yaml").unlink()
    (vendor.root / "my_plugins" / "lonely.py").unlink()
    (vendor.root / "my_plugins" / "double.py").write_text('"""Nothing yet."""\n')
    result = vendor.pytest("my_specs", "-p", "no:cacheprovider", "-k", "lonely-spec")
    assert result.ret == 1
    result.stdout.fnmatch_lines(["*lonely-spec: no module registers a reference.*"])


def test_a_malformed_spec_is_a_collection_error_with_its_place(vendor):
    vendor.write()
    spec = vendor.root / "my_specs" / "double.yaml"
    spec.write_text(spec.read_text().replace("family: doubling", "famly: doubling"))
    result = vendor.run()
    assert result.ret == 2
    result.stdout.fnmatch_lines(["*my_specs/double.yaml:*: quantization.famly: *Did you mean 'family'?*"])


def test_a_new_operator_without_an_oracle_fails_its_spec_item(vendor):
    vendor.write()
    spec = vendor.root / "my_specs" / "double.yaml"
    spec.write_text(spec.read_text().replace("oracle: none\n", ""))
    result = vendor.run("-k", "double-spec")
    assert result.ret == 1
    result.stdout.fnmatch_lines(["*double-spec: double.yaml: self-referenced*"])


def test_a_kept_failure_runs_in_every_later_run(vendor):
    vendor.write(result=OFF_BY_ONE)
    vendor.run("-k", "a8-ideal")
    replay = next((vendor.root / "reports/out/failures").glob("*.json"))
    words = ("--reason", "a test", "--op-plugins", "my_plugins", "--op-specs", "my_specs")
    assert vendor.quantizer("case", "keep", str(replay), *words).returncode == 0
    assert vendor.run("-k", "double-regressions").ret == 1
    vendor.write()
    assert vendor.run("-k", "double-regressions").ret == 0


def test_the_plugin_module_loads_neither_torch_nor_hypothesis(vendor):
    code = "import sys, quantizer.conformance.run.plugin, quantizer.conformance.setup.options; print(sorted({'torch', 'hypothesis'} & set(sys.modules)))"
    result = vendor.pytester.run(sys.executable, "-c", code)
    result.stdout.fnmatch_lines(["[[]]"])
