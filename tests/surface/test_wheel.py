"""A vendor installs the wheel: specs are inside, plugins are found, a wrong code is red."""

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from warmed import Done, Warmed

from quantizer.core.library import load_library
from quantizer.reporting.store import read_run

ROOT = Path(__file__).parents[2]
LEFT_OUT = ("CI", "AIPUPLUGIN_PATH", "PYTEST_ADDOPTS")
EXAMPLE = ROOT / "examples" / "third_party_plugin"


def _unpacked(project: Path, site: Path, folder: Path) -> None:
    """Build the wheel of *project* and unpack it into *site*, as an installer does."""
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)], cwd=project, check=True
    )
    for wheel in folder.glob("*.whl"):
        zipfile.ZipFile(wheel).extractall(site)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    site = tmp_path_factory.mktemp("site")
    _unpacked(ROOT, site, tmp_path_factory.mktemp("wheel"))
    _unpacked(EXAMPLE, site, tmp_path_factory.mktemp("vendor_wheel"))
    return site


def _run(site: Path, folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    inherited = {k: v for k, v in os.environ.items() if k not in LEFT_OUT}
    return subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env=inherited | {"PYTHONPATH": str(site)},
    )


def test_the_wheel_holds_specs_schemes_platforms_and_schemas(site):
    inside = {
        path.relative_to(site / "quantizer" / "op_specs").as_posix()
        for path in (site / "quantizer/op_specs").rglob("*")
    }
    assert {"conv2d.yaml", "schemes.yaml", "operator.schema.json"} <= inside
    assert (site / "quantizer/platforms/tpulang/tpulang.yaml").is_file()
    assert (site / "quantizer/py.typed").is_file()  # py.typed makes annotations visible to importers
    found = _run(
        site,
        site,
        "-c",
        "import quantizer.core.library as l; print(l.__file__, len(l.load_library().platforms), len(l.load_library().specs))",
    )
    assert found.stdout.startswith(str(site)), found.stderr
    assert found.stdout.split()[-2] == str(len(load_library().platforms))
    assert found.stdout.split()[-1] == str(len(list((ROOT / "op_specs").glob("*.yaml"))) - 1)


def test_a_vendor_project_is_collected_and_green_and_one_lsb_is_red(site, tmp_path):
    vendor = tmp_path / "vendor"
    shutil.copytree(EXAMPLE, vendor)
    with Warmed(site) as programs:
        judged(vendor, programs)


@pytest.mark.nightly  # a separate run under xdist
def test_xdist_workers_and_controller_know_the_same_layer_functions(site, tmp_path):
    """A layer function is registered once specs are known; under xdist the writing process collects none."""
    vendor = tmp_path / "vendor"
    shutil.copytree(EXAMPLE, vendor)
    done = _run(site, vendor, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "1", "-k", "dummy_plus-a8-compass")
    assert done.returncode == 0 and "not whole" not in done.stdout, done.stdout + done.stderr
    told = json.loads((vendor / "reports/out/run.json").read_text())["functions"]
    standing = {one["name"]: one["standing"] for one in told if one["name"].startswith("dummy_plus")}
    assert set(standing) > {"dummy_plus.quantized on compass 1", "dummy_plus.quantize on compass 1"}
    assert set(standing.values()) == {"judged"}


def judged(vendor: Path, programs: Warmed) -> None:
    def run(*options: str) -> Done:
        inherited = {k: v for k, v in os.environ.items() if k not in LEFT_OUT}
        return programs.run("pytest", "-p", "no:cacheprovider", *options, cwd=vendor, env=inherited)

    green = run("-k", "a8-compass or golden or roll-a8-ideal", "--op-baseline=baseline.jsonl")
    assert green.returncode == 0, f"{green.stdout}\nRenew the example's baseline as its README says."
    for name in ("dummy_plus", "log_sigmoid", "relu", "roll", "vec_dot", "weighted_sum"):
        assert f"{name}.yaml" in green.stdout
    assert "replaced: relu.quantized on compass 1 (vendor-ops)" in green.stdout
    stored = {record.id for record in read_run(vendor / "baseline.jsonl")}
    assert {record.id for record in read_run(vendor / "reports" / "out")} < stored
    assert set(re.findall(r"::(\S+)$", run("--collect-only", "-q").stdout, re.MULTILINE)) == stored
    page = (ROOT / "docs/tutorials/ci_owner.md").read_text("utf-8")
    assert f"with {len(stored)} items" in page and f"{len(stored)} passed in" in page
    plugin = vendor / "plugin" / "aipubt_opt_op_dummyplus.py"
    text = plugin.read_text()
    broken = text.replace("out.zerop, out.qmin, out.qmax)\n\n\n", "out.zerop - 1, out.qmin, out.qmax)\n\n\n")
    assert broken != text
    plugin.write_text(broken)
    red = run("-k", "dummy_plus-a8-compass")
    assert red.returncode == 1
    assert "dummy_plus-a8-compass: arithmetic:" in red.stdout
    assert "  got         " in red.stdout
    assert "quantizer case replay" in red.stdout
