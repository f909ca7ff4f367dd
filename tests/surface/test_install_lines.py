"""Every documented install command works as written, and one error names a package with the same import name.

The commands run in a clean environment, which has the packages of this one except quantizer, and reaches no index.
"""

import os
import re
import shutil
import subprocess
import sysconfig
import tomllib
import venv
import zipfile
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import quantizer
from quantizer.core.wording import to_install
from quantizer_conformance import DISTRIBUTION

ROOT = Path(__file__).parents[2]
VENDOR = "examples/third_party_plugin"
OF_THE_REPOSITORY = [
    "docs/install.md",
    "docs/tutorials/model_engineer.md",
    "docs/use.md",
    "examples/digits/README.md",
    "examples/digits_fixed/README.md",
    "examples/digits_onnx/README.md",
]
OF_A_VENDOR = ["docs/plugins.md", "docs/ci.md", f"{VENDOR}/README.md"]
LINE = re.compile(r"(?:\S*bin/)?(?:python -m )?pip (?:install|uninstall|wheel) [^`\n|#]+[^`\n|#\s]")
PROJECT = ("quantizer", "op_specs", "graph_specs", "quantizer_conformance.py", "pyproject.toml", "README.md", "LICENSE")
PIP = """#!/bin/sh
verb=$1; shift
case $verb in
  install) set -- --no-index --no-build-isolation --no-compile "$@" ;;
  wheel) set -- --no-index --no-build-isolation "$@" ;;
esac
exec "{python}" -m pip --disable-pip-version-check -q "$verb" "$@"
"""
pytestmark = pytest.mark.skipif(shutil.which("sh") is None, reason="the lines are for a shell")


def lines(page: str) -> list[str]:
    found = LINE.findall((ROOT / page).read_text(encoding="utf-8"))
    return [line for line in found if not re.search(r" tox\b| quantizer$|--no-deps$|--index-url ", line)]


def lacking(line: str) -> list[str]:
    """Return the requirements of the extras in *line* that this environment, and so a clean one, lacks."""
    known = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    extras = {extra for names in re.findall(r"\[([\w,]+)\]", line) for extra in names.split(",")}
    required = [Requirement(text) for extra in sorted(extras & known.keys()) for text in known[extra]]
    return [r.name for r in required if (r.marker is None or r.marker.evaluate()) and not installed(r.name)]


def installed(name: str) -> bool:
    try:
        distribution(name)
    except PackageNotFoundError:
        return False
    return True


class Clean:
    """An environment with pip and the packages of this one, without quantizer and without an index."""

    def __init__(self, folder: Path, root: Path) -> None:
        self.root = root
        root.mkdir()
        venv.create(folder, with_pip=False)
        self.bin = folder / "bin"
        self.site = next(folder.glob("lib/python*/site-packages"))
        links = folder / "links"
        links.mkdir()
        for item in Path(sysconfig.get_path("purelib")).iterdir():
            if "quantizer" not in item.name and item.suffix != ".pth":
                (links / item.name).symlink_to(item)
        (self.site / "links.pth").write_text(f"{links}\n")
        (self.bin / "pip").write_text(PIP.format(python=self.bin / "python"))
        (self.bin / "pytest").write_text(f'#!/bin/sh\nexec "{self.bin}/python" -m pytest -p no:cacheprovider "$@"\n')
        for name in ("pip", "pytest"):
            (self.bin / name).chmod(0o755)
        (root / ".venv-gate").symlink_to(folder)

    def run(self, line: str) -> subprocess.CompletedProcess[str]:
        kept = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "CI", "PYTEST_ADDOPTS")}
        kept |= {"PATH": f"{self.bin}{os.pathsep}{os.environ['PATH']}"}
        return subprocess.run(["sh", "-c", line], cwd=self.root, env=kept, capture_output=True, text=True, check=False)

    def succeed(self, line: str) -> str:
        done = self.run(line)
        assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
        return done.stdout


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    clean = Clean(tmp_path_factory.mktemp("env"), tmp_path_factory.mktemp("repository") / "q")
    for name in PROJECT:
        (shutil.copytree if (ROOT / name).is_dir() else shutil.copy)(ROOT / name, clean.root / name)
    return clean


@pytest.fixture(scope="module")
def wheel(repository):
    """Build the wheel by the line of the page of installation."""
    repository.succeed(next(line for line in lines("docs/install.md") if "pip wheel" in line))
    (found,) = (repository.root / "dist").glob("*.whl")
    return found


@pytest.fixture(scope="module")
def other(tmp_path_factory):
    """A stand-in for the other project: its name, its import name, and what its package does when it is imported."""
    made = tmp_path_factory.mktemp("other") / "quantizer-0.2.1-py3-none-any.whl"
    info = "quantizer-0.2.1.dist-info"
    files = {
        "quantizer/__init__.py": "from quantizer.kernel.kontext import Context\n",
        "quantizer/kernel/__init__.py": "",
        "quantizer/kernel/kontext.py": "import a_sound_device\n",
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: quantizer\nVersion: 0.2.1\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    with zipfile.ZipFile(made, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
        archive.writestr(f"{info}/RECORD", "".join(f"{name},,\n" for name in [*files, f"{info}/RECORD"]))
    return made


def test_every_install_line_on_a_page_is_tested():
    said = {
        path.relative_to(ROOT).as_posix()
        for pattern in ("*.md", "docs/**/*.md", "examples/**/*.md", ".github/**/*.md")
        for path in ROOT.glob(pattern)
        if path.name != "CHANGELOG.md" and lines(path.relative_to(ROOT).as_posix())
    }
    assert said == {*OF_THE_REPOSITORY, *OF_A_VENDOR}
    places = ("quantizer/**/*.py", "docs/**/*.md", "examples/**/*.*", ".github/**/*.*", "*.md")
    for path in {path for place in places for path in ROOT.glob(place) if path.suffix in (".py", ".md", ".yml", ".sh")}:
        text = path.read_text("utf-8").replace("**Do not `pip install quantizer`:**", "")
        assert not re.search(r"pip install '?quantizer\b(?!-conformance)|'quantizer\[", text), path


def test_the_distribution_name_is_the_same_everywhere():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert project["name"] == DISTRIBUTION
    vendor = tomllib.loads((ROOT / VENDOR / "pyproject.toml").read_text("utf-8"))["project"]
    assert DISTRIBUTION in vendor["dependencies"]
    page = (ROOT / "docs/install.md").read_text("utf-8")
    named = re.findall(r"`(\w+)`", re.search(r"add what an extra needs \((.*?)\)", page)[1])
    assert set(named) == set(project["optional-dependencies"])


def test_the_torch_install_line_states_the_required_versions():
    (named,) = re.findall(r"pip install '(torch\S+)' --index-url", (ROOT / "docs/install.md").read_text("utf-8"))
    required = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["dependencies"]
    assert Requirement(named) in [Requirement(text) for text in required]


def test_install_lines_for_the_repository_work(repository, wheel):
    assert wheel.name == f"quantizer_conformance-{quantizer.__version__}-py3-none-any.whl"
    first, *rest = dict.fromkeys(line for page in OF_THE_REPOSITORY for line in lines(page) if "pip wheel" not in line)
    assert first == "pip install dist/quantizer_conformance-*.whl"
    repository.succeed(first)
    assert (repository.site / "quantizer/op_specs/conv2d.yaml").is_file()
    assert f"quantizer {quantizer.__version__}" in repository.succeed("quantizer --version")
    assert "conv2d" in repository.succeed("quantizer spec list")
    for line in dict.fromkeys([*(to_install(extra) for extra in ("onnx", "engines", "mlir", "cluster")), *rest]):
        if missing := lacking(line):
            assert re.search(rf"No matching distribution found for ({'|'.join(missing)})", repository.run(line).stderr)
        else:
            repository.succeed(line)
    assert repository.succeed("python -c 'import quantizer; print(quantizer.__file__)'").startswith(
        str(repository.root)
    )


def test_install_lines_for_a_vendor_work(tmp_path, wheel):
    clean = Clean(tmp_path / "env", tmp_path / "vendor")
    shutil.copytree(ROOT / VENDOR, clean.root, dirs_exist_ok=True)
    (clean.root / "wheels").mkdir()
    shutil.copy(wheel, clean.root / "wheels")
    for line in dict.fromkeys(line for page in OF_A_VENDOR for line in lines(page) if "pip wheel" not in line):
        clean.succeed(line)
    shutil.rmtree(clean.root / "wheels")
    assert "--op-baseline" in clean.succeed("VENV=.venv-gate sh ci/gate.sh --help")
    lost = clean.run("VENV=elsewhere sh ci/gate.sh")
    assert lost.returncode == 2
    assert "gate.sh: wheels/ holds no wheel of quantizer" in lost.stderr


@pytest.mark.parametrize("ours_first", [True, False])
def test_two_packages_of_one_import_name_are_one_error(tmp_path, wheel, other, ours_first):
    clean = Clean(tmp_path / "env", tmp_path / "user")
    (clean.root / "dist").mkdir()
    shutil.copy(wheel, clean.root / "dist")
    (clean.root / "test_one.py").write_text("def test_one(): pass\n")
    for made in (wheel, other) if ours_first else (other, wheel):
        clean.succeed(f"pip install --no-deps {made}")
    both = "two packages have this folder: quantizer-conformance and quantizer 0.2.1, which is another project."
    gone = "__init__.py: no such file, though quantizer-conformance is installed"

    def refused(said: str) -> None:
        for line, code in (("quantizer --version", 2), ("pytest", 4)):
            done = clean.run(line)
            assert done.returncode == code, done
            assert "Traceback" not in done.stderr
            assert done.stderr.lower().count("error") == 1
            assert said in done.stderr
            assert "pip uninstall quantizer && pip install --force-reinstall --no-deps" in done.stderr

    refused(both)
    at_import = clean.run("python -c 'import quantizer'").stderr.splitlines()[-1]
    assert at_import.startswith(
        "ModuleNotFoundError: No module named 'a_sound_device'" if ours_first else "ImportError: "
    )
    assert ours_first or both in at_import
    one, two = lines_of_remedy()
    clean.succeed(one)
    refused(gone)
    clean.succeed(two)
    assert f"quantizer {quantizer.__version__}" in clean.succeed("quantizer --version")
    assert "1 passed" in clean.succeed("pytest")


def lines_of_remedy() -> tuple[str, str]:
    """Return the two lines of the page of installation that repair the environment."""
    text = (ROOT / "docs/install.md").read_text(encoding="utf-8")
    (found,) = re.findall(r"```sh\n(pip uninstall -y quantizer)\n(pip install .*)\n```", text)
    return found


def test_an_editable_install_hidden_by_another_package_is_an_error(tmp_path, repository, wheel, other):
    clean = Clean(tmp_path / "env", tmp_path / "user")
    clean.succeed(f"pip install --no-deps {other}")
    clean.succeed(f"pip install --no-deps -e {repository.root}")
    done = clean.run("quantizer --version")
    assert done.returncode == 2
    assert "two packages have this folder" in done.stderr


def test_a_shadowing_folder_named_quantizer_is_reported(tmp_path, wheel):
    clean = Clean(tmp_path / "env", tmp_path / "user")
    clean.succeed(f"pip install --no-deps {wheel}")
    (clean.root / "quantizer").mkdir()
    (clean.root / "quantizer" / "__init__.py").write_text("")
    done = clean.run(f"PYTHONPATH={clean.root} quantizer --version")
    assert done.returncode == 2
    assert f"{clean.root}/quantizer/__init__.py: is not a file of quantizer-conformance" in done.stderr
