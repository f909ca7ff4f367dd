"""Wrong functions of plugins that try to pass are red; unusual functions that are right are green."""

import json
import shutil
from pathlib import Path

import pytest
from test_isolation import records, text, write

from conftest import MODULE, OFF_BY_ONE, RIGHT
from quantizer.cli import main

LIAR = "type('Liar', (torch.Tensor,), {'contiguous': lambda self: self, 'numpy': lambda self: right.numpy()})"
MUTE = "type('Mute', (Exception,), {'__str__': lambda self: 1 / 0})"
AGAIN = "any(f.f_code.co_name == 'require_same_elsewhere' for f, _ in __import__('traceback').walk_stack(None))"
WRONG = {
    "leaves": ("sys.exit(0)", "right", "SystemExit"),
    "counts": ("KEPT['n'] = KEPT.get('n', 0) + 1", "right + (KEPT['n'] > 60)", ""),
    "clock": ("KEPT.setdefault('t', time.time())", "right + (time.time() > KEPT['t'] + 0.05)", ""),
    "sizes": ("", "right + (x.numel() > 30)", ""),
    "judged": ("", f"right + (not {AGAIN})", ""),
    "repeats": ("", f"right + {AGAIN}", "other codes"),
    "liar": ("", f"(right + 1).as_subclass({LIAR})", ""),
    "doubles": ("", "right.to(torch.float64)", "codes are integers"),
    "wraps": ("", "right.to(torch.uint8)", ""),
    "broad": ("", "right.flatten()[:1].expand(right.numel()).reshape(right.shape)", ""),
    "staged": ("from quantizer.numerics.qparams import Staged", "Staged(right + 1, {})", ""),
    "several": ("", "(right,)", ""),
    "deep": ("found = []\nfor _ in range(9999): found = [found]", "found", ""),
    "endless": ("found = []\nfound.append(found)", "found", ""),
    "recurses": ("f = lambda: f()\nf()", "right", "RecursionError"),
    "mute": (f"raise {MUTE}", "right", ""),
    "lines": (r"raise ValueError('a\nb\r\x1b[2J\x00]]>::error::c')", "right", "ValueError"),
    "half": (r"raise ValueError('\ud800')", "right", "ValueError"),
    "half_class": (r"raise type('E\ud800', (Exception,), {})('x')", "right", ""),
    "alarms": ("signal.alarm(1)\ntime.sleep(3)", "right", "was killed by SIGALRM"),
}
FINE = {
    "silent": ("os.close(1) if not KEPT else None; KEPT['x'] = 1", "right"),
    "bare": ("os.environ.clear()", "right"),
    "moves": ("os.chdir('/')", "right"),
    "infers": ("with torch.inference_mode(): right = right.clone()", "right"),
    "strict": ("np.seterr(all='raise'); import warnings; warnings.simplefilter('error')", "right"),
    "thread": (
        "import threading; KEPT or threading.Thread(target=time.sleep, args=(600,), daemon=True).start(); KEPT[1] = 1",
        "right",
    ),
    "starts": ("import subprocess; KEPT or subprocess.run(['true'], check=True); KEPT[1] = 1", "right"),
    "restores": ("x += 1\nx -= 1", "right"),
    "parameter": ("", "torch.nn.Parameter(right, requires_grad=False)"),
    "handler": ("signal.signal(signal.SIGTERM, signal.SIG_IGN); signal.signal(signal.SIGINT, signal.SIG_IGN)", "right"),
}


def green(root: Path, status: int, capsys: pytest.CaptureFixture[str]) -> bool:
    """Return the result of the recipe of docs/ci.md for a run that ended with *status*."""
    out, stated = str(root / "reports/out"), root / "statement"
    if status not in (0, 1):
        assert main(["report", "show", out, "--check"]) != 0
        return False
    passed = main(["report", "show", out, "--check"]) == 0
    made = main(["report", "statement", out, "-o", str(stated)]) == 0
    for form in (["junit", out, "-o", str(root / "junit.xml")], ["html", out, "-o", str(root / "page.html")]):
        assert main(["report", *form]) == (0 if made else 2), capsys.readouterr().err
    conforms = made and json.loads(stated.with_suffix(".json").read_text())["result"] == "conforms"
    assert conforms or not passed
    capsys.readouterr()
    return passed


@pytest.mark.nightly
def test_deceptive_functions_fail_and_unusual_correct_ones_pass(vendor, capsys):
    for name, (body, result, *_) in {**WRONG, **FINE}.items():
        write(vendor.root, name, text(name, body, result))
    done = vendor.run("-k", "a8-ideal", "-p", "no:xdist", "--op-plugin-timeout=20")
    assert done.ret == 1
    found = records(vendor.root)
    assert set(found) == {*WRONG, *FINE}
    green_ones = {name for name, record in found.items() if record["outcome"] == "passed"}
    assert green_ones == set(FINE), {n: found[n].get("failure") for n in green_ones ^ set(FINE)}
    for name, (_, _, said) in WRONG.items():
        assert said in str(found[name]["failure"]), (name, found[name]["failure"])
        assert len(str(found[name]["failure"]).splitlines()) == 1
    assert json.loads((vendor.root / "reports/out/run.json").read_text())["lacks"] == []
    assert not green(vendor.root, 1, capsys)


AT_IMPORT = "from pathlib import Path\n{}\n"
WEAKER = "Path('my_specs/double.yaml').write_text(Path('my_specs/double.yaml').read_text() + '# weaker\\n')"
CONFTEST = "Path('my_specs/conftest.py').write_text('import os; os._exit(0)')"
ITSELF = "Path(__file__).write_text(Path(__file__).read_text().replace('+ 1', ''))"
GOLDEN = "Path('cases/golden').mkdir(parents=True, exist_ok=True); Path('cases/golden/double.jsonl').write_text('')"
FORGED = (
    "import json; f = Path('reports/out'); g = json.loads(Path('good/run.json').read_text());"
    " [f.joinpath(n).write_text(Path('good', n).read_text()) for n in ('run.json', 'records.jsonl', 'summary.json')]"
)
LINKED = "Path('reports/out').is_symlink() or (Path('reports/out').rename('reports/away'), Path('reports/out').symlink_to('../good'))"
REMOVED = "import shutil; shutil.rmtree('reports', ignore_errors=True)"
HIDDEN = "from quantizer.ops.registry import REGISTRY, BUILT_IN; [object.__setattr__(e, 'origin', BUILT_IN) for e in REGISTRY.all()]"
PARENT = "import os, signal; os.kill(os.getppid(), signal.{})"
LATER = (
    "import threading, os, time\nthreading.Thread(target=lambda: (time.sleep(0.1), os._exit(0)), daemon=True).start()"
)
AT_EXIT = "import atexit\natexit.register(lambda: os.kill(os.getppid(), signal.{}))"
PACKAGE = "import quantizer; f = Path(quantizer.__file__); f.touch()"
UNSEEN = "import quantizer.runtime.isolation.worker as w; w.{} = lambda *_: None"
ATTACKS = {
    "a weaker spec at import": ("import", WEAKER, "right"),
    "a weaker spec at a call": ("call", WEAKER, "right"),
    "a conftest at import": ("import", CONFTEST, "wrong"),
    "a conftest at a call": ("call", CONFTEST, "right"),
    "another plugin in its place": ("call", ITSELF, "wrong"),
    "a golden": ("call", GOLDEN, "right"),
    "forged files": ("call", FORGED, "wrong"),
    "a link": ("call", LINKED, "wrong"),
    "no folder": ("call", REMOVED, "wrong"),
    "no folder, right": ("call", REMOVED, "right"),
    "the origin of ours": ("end", HIDDEN, "wrong"),
    "ends the judge": ("call", PARENT.format("SIGTERM"), "wrong"),
    "kills the judge": ("call", PARENT.format("SIGKILL"), "wrong"),
    "interrupts the judge": ("call", PARENT.format("SIGINT"), "wrong"),
    "interrupts the judge at the end": ("import", AT_EXIT.format("SIGINT"), "wrong"),
    "kills the judge at the end": ("import", AT_EXIT.format("SIGKILL"), "wrong"),
    "ends later": ("import", LATER, "right"),
    "exits at import": ("import", "import sys; sys.exit(0)", "right"),
    "ends at import": ("import", "import os; os._exit(0)", "right"),
    "interrupts at import": ("import", "raise KeyboardInterrupt", "right"),
    "answers twice": ("call", "import os; os.fork()", "right"),
    "declares everything": ("declares", "", "wrong"),
    "registers nothing": ("nothing", "", "right"),
    "a module of the package": ("call", PACKAGE, "right"),
    "no look at its memory": ("call", UNSEEN.format("require_unchanged"), "right"),
    "no call in other memory": ("call", UNSEEN.format("is_due"), "right"),
}


TWO = "double-a8-ideal or double-a16-ideal"


def plugin(place: str, code: str, result: str) -> str:
    made = MODULE.format(name="double", result=RIGHT if result == "right" else OFF_BY_ONE)
    head, rest = made.split("\n", 1)
    if place == "import":
        return f"{head}\nimport os, signal\nfrom pathlib import Path\n{code}\n{rest}"
    if place == "call":
        return f"{head}\nfrom pathlib import Path\n" + rest.replace('"""Double, then round once."""', code)
    if place == "end":
        return f"{made}\n\n{code}\n"
    if place == "declares":
        quantized = rest.index("@operator", rest.index("@operator") + 1)
        plain, declared = '@operator("double")', '@operator("double", unsupported={"activation_bits >= 0": "no"})'
        return f"{head}\n{rest[:quantized]}{declared}{rest[quantized + len(plain) :]}"
    return head + "\n"


def attacked(vendor, capsys, what, workers):
    place, code, result = ATTACKS[what]
    if "forged" in what or "link" in what:
        vendor.write()
        assert vendor.run("-k", TWO).ret == 0
        shutil.move(vendor.root / "reports/out", vendor.root / "good")
    vendor.write()
    (vendor.root / "my_plugins/double.py").write_text(plugin(place, code, result))
    done = vendor.run("-k", TWO, *(["-n", str(workers)] if workers else []))
    assert not green(vendor.root, done.ret, capsys), done.outlines
    return "\n".join([*done.outlines, *done.errlines])


@pytest.mark.nightly
@pytest.mark.parametrize("what", ATTACKS)
@pytest.mark.parametrize("workers", [0, 2])
def test_a_plugin_that_attacks_the_run_does_not_pass(vendor, capsys, what, workers):
    attacked(vendor, capsys, what, workers)


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("a weaker spec at import", "my_specs/double.yaml: changed while plugins were loaded."),
        ("another plugin in its place", "not whole: my_plugins/double.py: changed while the run was under way."),
    ],
)
def test_a_plugin_that_changes_judging_files_is_named(vendor, capsys, what, said):
    assert said in attacked(vendor, capsys, what, 0)


ONCE = """from pathlib import Path
from quantizer.ops import operator

first = not Path("seen").exists()
Path("seen").touch()
if first:

    @operator("relu", version="2.0")
    def quantized(x, *, parameters):
        return x + 1
"""


HELPS = """
def pytest_sessionstart():
    import quantizer.runtime.isolation.host as host

    called = host.Host.call

    def call(self, number, args, named):
        made = called(self, number, args, named)
        return made - 1 if self._known[number]["kind"] == "quantized" else made

    host.Host.call = call
"""
PLANTS = f"""import importlib.util, marshal
from _pytest.assertion import rewrite
from pathlib import Path
source = Path('my_specs/conftest.py').resolve()
found = source.stat()
times = b''.join(int(one).to_bytes(4, 'little') for one in (found.st_mtime, found.st_size))
hashed = importlib.util.source_hash(source.read_bytes())
code = marshal.dumps(compile({HELPS!r}, str(source), 'exec'))
kept = Path(importlib.util.cache_from_source(str(source))).with_name('conftest' + rewrite.PYC_TAIL)
kept.parent.mkdir(exist_ok=True)
head = b'\\3' + bytes(3) + hashed if 'source_hash' in Path(rewrite.__file__).read_text() else bytes(4) + times
kept.write_bytes(importlib.util.MAGIC_NUMBER + head + code)
"""


def test_a_compiled_conftest_does_not_affect_later_runs(vendor, capsys):
    """The recipe of docs/ci.md may run its shards one after another in one folder."""
    vendor.write()
    (vendor.root / "my_specs/conftest.py").write_text("X = 1\n")
    (vendor.root / "my_plugins/double.py").write_text(plugin("import", PLANTS, "right"))
    vendor.run("-k", TWO)
    (vendor.root / "my_plugins/double.py").write_text(plugin("import", "", "wrong"))
    done = vendor.run("-k", TWO)
    assert not green(vendor.root, done.ret, capsys), done.outlines


def test_a_function_registered_in_only_one_process_is_named(vendor, capsys):
    """Each worker of xdist loads plugins for itself; here the workers judge our function, not the plugin's."""
    vendor.write()
    (vendor.root / "my_plugins/once.py").write_text(ONCE)
    done = vendor.run("-k", "double-a8-ideal or relu-a8-ideal", "--op-shipped=relu", "-n", "1")
    assert "not whole: worker gw0 has other functions of plugins, such as relu.quantized 2 (my_plugins/once.py)." in [
        line.strip() for line in done.outlines
    ]
    assert not green(vendor.root, done.ret, capsys)


SUMS = """from quantizer.ops import operator


@operator("relu", version="2.0")
def accumulate(x, *, parameters):
    return x + 1
"""


def test_unused_accumulate_functions_are_reported_as_not_judged(vendor, capsys):
    """relu has an integer forward of its own, and no check compares its sums."""
    vendor.write()
    (vendor.root / "my_plugins/sums.py").write_text(SUMS)
    done = vendor.run("-k", "double-a8-ideal or relu-a8-ideal", "--op-shipped=relu")
    assert any("not judged: relu.accumulate 2 (my_plugins/sums.py)" in line for line in done.outlines)
    assert not green(vendor.root, done.ret, capsys)


def test_files_in_the_run_folder_are_not_imported(vendor, capsys):
    vendor.write()
    for name in ("copy.py", "sitecustomize.py", "random.py", "conformance.py"):
        (vendor.root / name).write_text("raise SystemExit('taken for a module')\n")
    (vendor.root / "my_plugins/conftest.py").write_text("X = 1\n")
    done = vendor.run("-k", TWO)
    assert done.ret == 0, done.outlines
    assert green(vendor.root, done.ret, capsys)


HOOK = "def pytest_collection_modifyitems(items):\n    items[:] = [one for one in items if 'a16' not in one.name]\n"
LEFT_OUT = {
    "an option": ("tox.ini", "[pytest]\naddopts = --deselect my_specs/double.yaml::double-a16-ideal\n"),
    "a hook": ("conftest.py", HOOK),
}


@pytest.mark.parametrize(("what", "workers"), [("an option", 0), ("a hook", 0), ("a hook", 1)])
def test_deselected_items_are_listed_in_the_statement(vendor, capsys, what, workers):
    """The plugin is wrong only under a16, and the items of a16 are left out."""
    vendor.write(result=f"{RIGHT} + (parameters.outputs['y'].qmax > 127)")
    name, text = LEFT_OUT[what]
    (vendor.root / name).write_text(text)
    done = vendor.run("--op-platform=ideal", *(["-n", "1"] if workers else []))
    stated = vendor.root / "statement"
    assert main(["report", "statement", str(vendor.root / "reports/out"), "-o", str(stated)]) == 0, done.outlines
    gaps = json.loads(stated.with_suffix(".json").read_text())["gaps"]
    (items,) = [gap["items"] for gap in gaps if gap["reason"] == "items of the specs did not run"]
    assert items == ["double-a16-ideal"]
    assert "items of the specs did not run" in stated.with_suffix(".md").read_text()
