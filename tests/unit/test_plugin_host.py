"""The judge's end of the process of plugins, with the process's end beside it: what is told once, and what is seen."""

import pytest
import torch

from quantizer.core.errors import EngineError, FunctionError, PluginError
from quantizer.core.library import load_library
from quantizer.numerics.qparams import Parameters, Staged
from quantizer.ops import REGISTRY, load_built_ins, operator
from quantizer.runtime.engines.child import DiedError, Limits
from quantizer.runtime.engines.process import environment
from quantizer.runtime.isolation import worker
from quantizer.runtime.isolation.host import Host
from quantizer.runtime.isolation.plugins import load


class Near:
    """A process that answers in this one; it dies of a call without operands."""

    def __init__(self):
        self.served, self.calls = worker.Served(), 0

    def ask(self, frame, patience=None):  # noqa: ARG002 - the child's
        self.calls += 1
        if frame.header["kind"] == "call" and frame.header["named"] == {"m": []}:
            raise DiedError("was killed")
        return self.served.answer(frame)

    def said(self):
        return ""

    def close(self):
        return 0


@pytest.fixture
def host(tmp_path, monkeypatch):
    """A host whose plugin has one function, which returns its argument."""
    plugin = tmp_path / "near.py"
    plugin.write_text(
        "from quantizer.ops import operator\n\n\n@operator('near')\ndef reference(x=None, *, rule=None):\n"
        "    return rule or x\n"
    )
    monkeypatch.setattr("quantizer.runtime.isolation.host.launch", lambda *_: Near())
    load_built_ins()
    before = {key: list(known) for key, known in REGISTRY.entries.items()}
    made = Host([plugin], Limits())
    made.describe(made.load()["functions"])
    yield made
    REGISTRY.entries = before


def test_an_unsent_message_is_repeated_to_the_next_process(host):
    """The next call names the platform that the unsent message would have told the process of."""
    library = load_library()
    for _ in range(2):
        with pytest.raises(EngineError, match="was killed"):
            host.call(0, (), {})
    given = Parameters(library.platforms["ideal"], {}, {})
    assert host.call(0, (), {"x": given}) == given
    with pytest.raises(EngineError, match="was killed"):
        host.call(0, (), {})
    assert host.call(0, (), {"x": Parameters(library.platforms["compass"], {}, {})}).platform.platform == "compass"


@pytest.mark.parametrize("hidden", [{"fuses": False}, {"activates": True}])
def test_hiding_missing_fused_activations_is_refused(host, monkeypatch, hidden):
    """The cases with an activation would not be generated; `unsupported` counts them."""
    (told,) = host._known
    greeting = {"plugins": [], "layers": [], "functions": [{**told, **hidden}]}
    monkeypatch.setattr(host, "load", lambda: greeting)
    with pytest.raises(PluginError, match=r"near.reference \(.*near.py\): is registered as a layer"):
        load(host)


def test_an_undamaged_plugin_process_reports_no_damage(host):
    assert host.damage() == ""


@pytest.mark.parametrize(
    ("name", "what"),
    [("require_unchanged", "writes"), ("require_same_elsewhere", "keeps"), ("is_due", "keeps")],
)
def test_a_damaged_plugin_process_reports_it(host, monkeypatch, name, what):
    monkeypatch.setattr(worker, name, lambda *_: False)
    assert host.damage() == f"the process of plugins was damaged: it calls a function right that {what}."


def test_a_function_that_is_registered_after_loading_is_named(host):
    with REGISTRY.loading("a plugin"):
        operator("near", kind="quantized")(lambda x, *, parameters: x)
    said = "near.quantized 1 (a plugin): was registered after plugins were loaded, and nothing judges it."
    assert said in host.damage()


ODD = [("numbers", {"shift": "3"}), ("activation", {}), ("extra", 3), ("rescale", "none"), ("inputs", {"x": 1})]


@pytest.mark.parametrize(("name", "value"), ODD)
def test_a_message_with_fields_of_wrong_types_is_one_error(host, name, value):
    made = Parameters(load_library().platforms["ideal"], {}, {})
    object.__setattr__(made, name, value)
    with pytest.raises(FunctionError, match=f"provided Parameters whose {name} is a {type(value).__name__}: must be "):
        host.call(0, (), {"x": made})


class Lies(torch.Tensor):
    """Shows other values than it holds."""

    def numpy(self):
        return torch.ones(2, dtype=torch.int64).numpy()

    detach = contiguous = resolve_neg = lambda self: self


class Computes(torch.Tensor):
    """Has no memory."""

    @staticmethod
    def __new__(cls, shape):
        return torch.Tensor._make_wrapper_subclass(cls, shape, dtype=torch.int64)

    @classmethod
    def __torch_dispatch__(cls, function, kinds, args=(), named=None):  # noqa: ARG003 - torch's
        return torch.ones(2, dtype=torch.int64)


def test_a_tensor_subclass_is_read_from_its_memory(host, monkeypatch):
    held = torch.zeros(2, dtype=torch.int64)
    shown = Staged(held.as_subclass(Lies), {})
    entry = host._child.served._functions[0]
    object.__setattr__(entry, "function", lambda **_: shown)
    assert torch.equal(host.call(0, (), {"x": 1}).codes, held)
    object.__setattr__(entry, "function", lambda **_: Computes((2,)))
    with pytest.raises(FunctionError, match="a tensor of class Computes"):
        host.call(0, (), {"x": 1})


def test_output_of_a_process_cannot_form_ci_commands(host, monkeypatch):
    entry = host._child.served._functions[0]
    monkeypatch.setattr(host._child, "said", lambda: "::error::printed\n\x1b[2Jcleared")

    def function(**_):
        raise ValueError("\x1b[2Jraised\n::error::second")

    object.__setattr__(entry, "function", function)
    with pytest.raises(FunctionError) as raised:
        host.call(0, (), {"x": 1})
    assert "ValueError: \\x1b[2Jraised" in str(raised.value)
    told = host.told().splitlines()
    assert {"| ::error::printed", "| \\x1b[2Jcleared", "| ::error::second"} <= {*told}
    assert all(line.startswith("|") and line.isprintable() for line in told)


def test_plugin_processes_get_no_test_variables(monkeypatch):
    monkeypatch.setenv("PYTEST_XDIST_WORKER", "gw0")
    given = environment({"PYTEST_CURRENT_TEST": "x", "KEPT": "1"})
    assert given["KEPT"] == "1"
    assert not any(name.startswith("PYTEST_") for name in given)


def test_a_batch_is_sent_as_one_call(tmp_path, monkeypatch):
    """A function that takes batches gets K trials and a tuple of K parameters; a single case as a batch of one."""
    plugin = tmp_path / "batches.py"
    plugin.write_text(
        "from quantizer.ops import operator\n\n\n@operator('near', batched=True)\ndef quantized(x, *, parameters):\n"
        "    return x + len(parameters)\n"
    )
    monkeypatch.setattr("quantizer.runtime.isolation.host.launch", lambda *_: Near())
    load_built_ins()
    before = {key: list(known) for key, known in REGISTRY.entries.items()}
    try:
        made = Host([plugin], Limits())
        (told,) = made.load()["functions"]
        assert told["batched"] is True
        made.describe([told])
        given = Parameters(load_library().platforms["ideal"], {}, {})
        assert made.call(0, (), {"x": torch.zeros(3, 2), "parameters": (given,) * 3}).tolist() == [[3.0] * 2] * 3
        assert made.call(0, (), {"x": torch.zeros(2), "parameters": given}).tolist() == [1.0] * 2
    finally:
        REGISTRY.entries = before
