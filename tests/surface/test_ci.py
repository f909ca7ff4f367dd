"""docs/ci.md and the composite action: the recipe runs unchanged, and the action runs the same commands."""

import json
import os
import re
import shutil
import stat
import subprocess
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
import yaml

from conftest import OFF_BY_ONE

ROOT = Path(__file__).parents[2]
ACTION = ROOT / ".github/actions/quantizer"
PAGE = (ROOT / "docs/ci.md").read_text(encoding="utf-8")
pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="recipes are for bash")


@pytest.fixture
def shell(vendor, warmed):
    """Run a script in the vendor's folder, with `quantizer` and `pytest` of this interpreter."""
    folder = vendor.root / "bin"
    folder.mkdir()

    def run(script, **environment):
        known = {name: text for name, text in os.environ.items() if name != "GITHUB_ACTIONS"}
        paths = {"PATH": f"{folder}{os.pathsep}{os.environ['PATH']}", "PYTEST_ADDOPTS": ""}
        return subprocess.run(
            ["bash", *script],
            cwd=vendor.root,
            env=known | paths | environment,
            capture_output=True,
            text=True,
            check=False,
        )

    with warmed.commands(folder):
        yield run


def test_the_recipe_for_any_system_runs_unchanged(vendor, shell):
    vendor.write()
    assert vendor.run("--op-golden-update", "first goldens").ret == 0
    shutil.move(vendor.root / "reports/out/records.jsonl", vendor.root / "baseline.jsonl")
    shutil.rmtree(vendor.root / "reports")
    recipe, *_ = re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
    (vendor.root / "tox.ini").write_text(
        "[pytest]\n" + re.search(r"```ini\n(.*?)```", PAGE, re.DOTALL)[1].replace("\n  ", "\n").lstrip()
    )
    done = shell(["-c", recipe.replace(" || [ $? -eq 1 ]", "")])
    assert done.returncode == 0, done.stdout + done.stderr
    out = vendor.root / "reports/out"
    assert {path.name for path in out.iterdir()} - {".lock"} == {
        "machine.json",
        "records.jsonl",
        "run.json",
        "summary.json",
        "timings.jsonl",
        "junit.xml",
        "report.html",
        "statement.json",
        "statement.md",
        "summary.md",
    }
    stated = json.loads((out / "statement.json").read_text())
    assert stated["result"] == "conforms"
    assert stated["counts"]["items"] == int(ET.parse(out / "junit.xml").find("testsuite").get("tests")) == 8
    records = (out / "records.jsonl").read_text()
    ran = next(r["cases"] for r in map(json.loads, records.splitlines()) if r["id"] == "double-a16-ideal")
    (vendor.root / "baseline.jsonl").write_text(records.replace(f'"cases":{ran}', '"cases":999'))
    last = shell(["-c", "quantizer report diff baseline.jsonl reports/out"])
    assert last.returncode == 1
    assert f"gate: double-a16-ideal: ran {ran} cases, 999 in the baseline." in last.stderr


KERNELS = {
    "right": "",
    "crash": "import ctypes; ctypes.string_at(0)",
    "interrupt": "raise KeyboardInterrupt",
    "refuses": "from quantizer.core.errors import RefusedError; raise RefusedError('no')",
    "refuses where it is wrong": (
        "from quantizer.core.errors import RefusedError\n    if x.dim() == 3: raise RefusedError('no')"
    ),
    "skips": "import pytest; pytest.skip('no')",
    "xfails": "import pytest; pytest.xfail('no')",
    "exits": "import pytest; pytest.exit('done', returncode=0)",
    "ends the process": "import os; os._exit(0)",
    "patches the judge": "from quantizer.conformance import items; items.judge = lambda *a: []; return x",
    "patches the verdict": (
        "from quantizer.core.verdict import Verdict; Verdict.failing = property(lambda self: False); return x + 1"
    ),
    "patches numpy": "import numpy; numpy.count_nonzero = lambda *a, **k: 0; return x + 1",
    "old version": "",
    "missing engine": "",
    "nothing selected": "",
}
OLD = '''

@operator("relu", version="0.5")
def quantized(x, *, parameters):
    """Never run."""
    return x + 1
'''
WORDS = {
    "crash": "-n 2",
    "missing engine": "--op-engine=litert",
    "nothing selected": "-k conv",
}


TWO = "-k 'double-a8-ideal or double-a16-ideal'"
RIGHT_RECORDS = []


def right_records(shell, root, *, again):
    """Return the records of the right kernel, the baseline of all rows; *again*: leave the run in the folder."""
    if again or not RIGHT_RECORDS:
        made = shell(
            ["-c", "pytest my_specs --op-plugins=my_plugins --op-report=shards/1 --op-shard=1/1"], PYTEST_ADDOPTS=TWO
        )
        assert made.returncode == 0, made.stdout + made.stderr
        RIGHT_RECORDS.append((root / "shards/1/records.jsonl").read_text())
    return RIGHT_RECORDS[0]


@pytest.mark.parametrize("what", KERNELS)
def test_the_ci_recipe_passes_only_for_the_correct_kernel(vendor, shell, what):
    """One shard of two items instead of three of eight; else the recipe unchanged, in a folder with an older run."""
    vendor.write()
    plugin = vendor.root / "my_plugins/double.py"
    text = plugin.read_text()
    (vendor.root / "baseline.jsonl").write_text(right_records(shell, vendor.root, again=what == "ends the process"))
    if KERNELS[what]:
        text = text.replace('"""Double, then round once."""', KERNELS[what])
    plugin.write_text(text + (OLD if what == "old version" else ""))
    if what == "missing engine":
        missing = "from quantizer.runtime.engines import catalogue\n\ncatalogue.installed_version = lambda name: None\n"
        (vendor.root / "conftest.py").write_text(missing)
    recipe, *_ = re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
    one = recipe.replace("in 1 2 3;", "in 1;").replace("/3", "/1").replace("shards/1 shards/2 shards/1", "shards/1")
    assert one.count("shards/1") == 1
    words = WORDS.get(what, "-p no:xdist")
    done = shell(["-c", one], PYTEST_ADDOPTS=words if "-k" in words else f"{words} {TWO}")
    assert (done.returncode == 0) == (what == "right"), done.stdout + done.stderr
    stated = vendor.root / "reports/out/statement.json"
    if what == "old version":
        plugins = json.loads(stated.read_text())["plugins"]
        assert "check: not judged: relu.quantized 0.5" in done.stderr
        assert [plugin["name"] for plugin in plugins] == ["double"]
    elif stated.is_file():
        assert (json.loads(stated.read_text())["result"] == "conforms") == (what == "right")


def test_the_action_script_annotates_failures_and_returns_the_gate_status(vendor, shell):
    vendor.write(result=OFF_BY_ONE)
    words = {"SPECS": "my_specs", "ARGUMENTS": "--op-plugins=my_plugins -k 'double-a8-ideal or nothing'"}
    done = shell([ACTION / "gate.sh"], **words)
    assert done.returncode == 1, done.stdout + done.stderr
    out = vendor.root / "reports/out"
    assert {"report.html", "junit.xml", "statement.json", "statement.md", "pytest.xml"} <= {
        p.name for p in out.iterdir()
    }
    said = shell(["-c", "quantizer report annotate reports/out --prefix qa"])
    line = (vendor.root / "my_specs/double.yaml").read_text().splitlines().index("quantization: {family: doubling}") + 1
    assert said.stdout.startswith(
        f"::error file=qa/my_specs/double.yaml,line={line},title=double%3A arithmetic fails::"
    )
    (vendor.root / "my_specs/double.yaml").write_text("op: double\nversion: 1\n")
    done = shell([ACTION / "gate.sh"], GITHUB_ACTIONS="true", **words)
    assert done.returncode == 2
    assert "::error file=my_specs/double.yaml,line=2,col=10,title=quantizer::version: must be text" in done.stdout


def test_the_composite_action_is_valid():
    action = yaml.safe_load((ACTION / "action.yml").read_text())
    assert action["runs"]["using"] == "composite"
    assert (ACTION / "gate.sh").stat().st_mode & stat.S_IXUSR
    for step in action["runs"]["steps"]:
        assert ("run" in step) != ("uses" in step), step
        assert "run" not in step or step["shell"] == "bash"
        assert "${{" not in step.get("run", ""), "inputs reach a script through the environment alone"
    text = (ACTION / "action.yml").read_text()
    used = set(re.findall(r"inputs\.([\w-]+)", text))
    assert used == set(action["inputs"])
    passed = {name for step in action["runs"]["steps"] for name in step.get("env", {})}
    assert (
        set(re.findall(r"\b(SPECS|ARGUMENTS|SHARD|MERGE|BASELINE|REPORT)\b", (ACTION / "gate.sh").read_text()))
        <= passed
    )


def test_the_workflow_on_the_page_uses_existing_action_inputs():
    (text,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    inputs = yaml.safe_load((ACTION / "action.yml").read_text())["inputs"]
    steps = [step for job in yaml.safe_load(text)["jobs"].values() for step in job["steps"]]
    ours = [step for step in steps if step.get("uses") == "./.github/actions/quantizer"]
    assert len(ours) == 2
    assert all(set(step["with"]) <= set(inputs) for step in ours)


@pytest.mark.parametrize(
    ("apt", "said"),
    [
        (None, "The report was not opened in a browser: "),
        ("exit 100", "The report was not opened in a browser: "),
        ('case "$*" in *install*) ln -s "$(command -v true)" "${0%/*}/chromium";; esac', "tox of FOLDER/chromium: "),
    ],
)
def test_a_missing_browser_is_installed_or_reported(tmp_path, apt, said):
    for name in ("bash", "true", "ln"):
        (tmp_path / name).symlink_to(shutil.which(name))
    for name, script in {"tox": 'echo "tox of $CHROMIUM: $*"', "id": "echo 0", "apt-get": apt}.items():
        if script is not None:
            (tmp_path / name).write_text(f"#!{shutil.which('bash')}\n{script}\n")
            (tmp_path / name).chmod(0o755)
    done = subprocess.run(
        ["bash", ROOT / ".ci/browser", tmp_path / "tox"],
        env={"PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.replace(str(tmp_path), "FOLDER").startswith(said)
    assert len(done.stdout.splitlines()) == 1


def test_a_report_that_fails_in_the_browser_fails_the_run(tmp_path):
    (tmp_path / "tox").write_text("#!/bin/sh\nexit 3\n")
    (tmp_path / "tox").chmod(0o755)
    done = subprocess.run(
        [ROOT / ".ci/browser", tmp_path / "tox"], env=os.environ | {"CHROMIUM": "a browser"}, check=False
    )
    assert done.returncode == 3


def test_the_pipeline_for_gitlab_is_the_recipe():
    jobs = yaml.safe_load((ROOT / "examples" / "ci" / "gitlab" / ".gitlab-ci.yml").read_text())
    lines = [line for name in ("gate", "report") for line in jobs[name]["script"]]
    (recipe,) = re.findall(r"^```sh\n(set -eu.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    told = [re.sub(r" {2,}#.*", "", line).strip() for line in recipe.splitlines()]
    gitlab = {"$CI_NODE_INDEX/$CI_NODE_TOTAL": "$part/3", "$CI_NODE_INDEX": "$part"}
    for line in lines:
        translated = line
        for theirs, ours in gitlab.items():
            translated = translated.replace(theirs, ours)
        assert translated in told, translated
    assert jobs["gate"]["parallel"] == 3
    assert jobs["report"]["artifacts"]["reports"]["junit"] == "reports/out/junit.xml"
