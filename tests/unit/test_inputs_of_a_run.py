"""A run that a plugin or an engine changed the files of is not whole: which files those are."""

import types

import pytest

from quantizer.conformance import inputs
from quantizer.runtime.engines.process import environment

CHANGED = {
    "a module in the root": "run/torch.py",
    "a package in the root": "run/numpy/__init__.py",
    "a module beside the specs": "run/my_specs/yaml.py",
    "a conftest beside the specs": "run/my_specs/conftest.py",
    "settings": "run/pyproject.toml",
    "an entry point": "site/cheat-1.0.dist-info/entry_points.txt",
    "a path file": "site/cheat.pth",
    "our compiled module": "code/quantizer/__pycache__/cli.cpython-311.pyc",
    "our module of pytest": "code/quantizer_conformance.py",
}
OTHER = (
    "run/reports/out/records.jsonl",
    "run/notes.txt",
    "run/my_specs/.cache/x.py",
    "code/quantizer/__pycache__/x.pyc",
)


@pytest.fixture
def seen(tmp_path, monkeypatch):
    """Return what watches a run in the folder `run`, with this package in `code`."""
    for name in ("run/my_specs/a.yaml", "code/quantizer/__init__.py", "code/quantizer/__pycache__/cli.cpython-311.pyc"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    monkeypatch.setattr(inputs.quantizer, "__file__", str(tmp_path / "code/quantizer/__init__.py"))
    monkeypatch.setattr(inputs.site, "getsitepackages", lambda: [str(tmp_path / "site")])
    root = tmp_path / "run"
    config = types.SimpleNamespace(args=["my_specs"], invocation_params=types.SimpleNamespace(dir=root))
    asked = types.SimpleNamespace(root=root, specs=(), cases=root / "cases", plugins=(), reports=root / "reports/out")
    asked.golden_update = asked.baseline = asked.xfails = None
    return inputs.Inputs(config, asked)


@pytest.mark.parametrize("what", CHANGED)
def test_a_file_that_a_run_is_judged_by_or_imports_is_seen(seen, tmp_path, what):
    file = tmp_path / CHANGED[what]
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("#")
    assert seen.changed() == str(file).removeprefix(f"{tmp_path}/run/")


@pytest.mark.parametrize("name", OTHER)
def test_what_a_run_writes_by_itself_is_no_change(seen, tmp_path, name):
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).write_text("x")
    assert seen.changed() is None


def test_nothing_in_the_environment_of_what_is_judged_says_that_it_is_judged(monkeypatch):
    for name in ("CI", "GITHUB_TOKEN", "GITLAB_CI", "CI_JOB_ID", "PYTEST_CURRENT_TEST", "BUILD_NUMBER", "JENKINS_URL"):
        monkeypatch.setenv(name, "1")
        assert name not in environment() and name not in environment({name: "1"})
    monkeypatch.setenv("CIVIL_LICENCE", "1")
    assert environment({"MKL_CBWR": "COMPATIBLE"}).items() >= {"MKL_CBWR": "COMPATIBLE", "CIVIL_LICENCE": "1"}.items()
