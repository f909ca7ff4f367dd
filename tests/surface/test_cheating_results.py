"""Functions with unusual wrong results, and unusual right ones, through the recipe of docs/ci.md."""

import pytest
from test_adversaries import green
from test_isolation import records, text, write

SLEEP = "(time.sleep(0.03), {}.add_(1))"
LATER = "__import__('threading').Thread(target=lambda: " + SLEEP + ").start()"
WRONG = {
    "previous": ("key = tuple(x.shape)\nfound = KEPT.get(key, right)\nKEPT[key] = right", "found"),
    "by_content": ("found = KEPT.setdefault((x.numpy().tobytes(), tuple(x.shape)), right)", "found"),
    "by_ends": ("found = KEPT.setdefault((int(x.min()), int(x.max()), tuple(x.shape)), right)", "found"),
    "by_parameters": ("found = KEPT.setdefault((id(parameters), tuple(x.shape)), right)", "found"),
    "in_ci": ("", "right + ('CI' not in os.environ)"),
    "in_github": ("", "right + ('GITHUB_ACTIONS' not in os.environ)"),
    "in_gitlab": ("", "right + ('CI_JOB_ID' not in os.environ)"),
    "in_jenkins": ("", "right + ('JENKINS_URL' not in os.environ)"),
    "address": ("", "right + (x.data_ptr() % 128 != 0)"),
    "later_operand": (LATER.format("x"), "right"),
    "later_result": (LATER.format("right"), "right"),
    "later_parameters": (LATER.format("parameters.outputs['y'].scale"), "right"),
    "float32": ("", "right.to(torch.float32)"),
    "float16": ("", "right.to(torch.float16)"),
    "bfloat16": ("", "right.to(torch.bfloat16)"),
    "complex64": ("", "right.to(torch.complex64)"),
    "nan": ("", "right * float('nan')"),
    "infinite": ("", "right * float('inf')"),
    "masked": ("", "np.ma.masked_array(right.numpy(), mask=right.numpy() > 0)"),
    "objects": ("", "right.numpy().astype(object)"),
    "array_class": ("", "right.numpy().view(type('Own', (np.ndarray,), {}))"),
    "generated": ("", "(piece for piece in right)"),
    "listed": ("", "right.tolist()"),
    "scalar": ("", "right.sum()"),
    "number": ("", "int(right.flatten()[0])"),
    "sparse": ("", "right.to_sparse()"),
    "quantized_type": ("", "torch.quantize_per_tensor(right.float(), 1.0, 0, torch.qint32)"),
    "nested": ("", "torch.nested.nested_tensor([right])"),
    "vast": ("", "torch.zeros(1, dtype=torch.int64).expand(1 << 40)"),
    "empty": ("", "right[..., :0]"),
    "unsigned_view": ("", "right.to(torch.int8).view(torch.uint8)"),
    "stages_of_numbers": ("from quantizer.numerics.qparams import Staged", "Staged(right + 1, {1: right})"),
    "stages_of_text": ("from quantizer.numerics.qparams import Staged", "Staged(right + 1, {'y' * 100000: 'y'})"),
    "stages_in_a_list": ("from quantizer.numerics.qparams import Staged", "Staged(right, [right])"),
    "staged_twice": ("from quantizer.numerics.qparams import Staged", "Staged(Staged(right, {}), {})"),
    "a_class": ("", "torch.Tensor"),
    "itself": ("", "quantized"),
    "every_thousandth": ("", "right + (x == x.max()) * (right % 7 == 3)"),
    "on_repeats": ("n = KEPT[x.numpy().tobytes()] = KEPT.get(x.numpy().tobytes(), 0) + 1", "right + (n > 2)"),
    "finalizer": ("__import__('weakref').finalize(x, lambda r=right: r.add_(1))", "right"),
    "timer": (
        "room = KEPT['room'] = torch.empty(right.numel() + 1, dtype=torch.int64)\nfound = room[1:].view(right.shape)"
        "\nfound.copy_(right)\n__import__('threading').Timer(0.05, room.zero_).start()",
        "found",
    ),
    "one_buffer": (
        "room = KEPT.setdefault('one', torch.zeros(100000, dtype=torch.int64))\n"
        "found = room[:right.numel()].view(right.shape)\nfound.copy_(right)",
        "found",
    ),
    "array_protocol": ("", "type('Own', (), {'__array__': lambda self, *_, **__: right.numpy()})()"),
    "mapped": (
        "file = KEPT['file'] = __import__('tempfile').TemporaryFile()",
        "np.memmap(file, dtype=np.int64, mode='w+', shape=tuple(right.shape) or (1,))",
    ),
    "in_a_mapping": ("", "{'y': right}"),
    "collected": (
        "KEPT or __import__('gc').callbacks.append(lambda *_: KEPT.update(g=KEPT.get('g', 0) + 1)); KEPT.setdefault(1)"
        "\n__import__('gc').collect(0)",
        "right + (KEPT.get('g', 0) > 300)",
    ),
    "hostile_text": ("raise type('Ends', (Exception,), {'__str__': lambda self: os._exit(0)})", "right"),
    "endless_text": ("raise ValueError('x' * (1 << 25))", "right"),
    "caused": (
        "error = None\nfor i in range(2000): new = ValueError(str(i)); new.__cause__ = error; error = new\nraise error",
        "right",
    ),
    "stops_iteration": ("raise StopIteration(right)", "right"),
    "odd_calls": ("n = KEPT['n'] = KEPT.get('n', 0) + 1", "right + (n % 5 == 4)"),
}
FINE = {
    "fortran": ("", "right.permute(*reversed(range(right.dim()))).contiguous().permute(*reversed(range(right.dim())))"),
    "read_only": (
        "found = right.numpy().copy(); found.setflags(write=False); __import__('warnings').simplefilter('ignore')",
        "torch.from_numpy(found)",
    ),
    "strided_result": ("", "torch.stack([right, right + 1], dim=-1)[..., 0]"),
    "narrow16": ("", "right.to(torch.int16)"),
    "negated": ("", "torch._neg_view(-right)"),
    "own_class": ("", "right.as_subclass(type('Own', (torch.Tensor,), {}))"),
    "from_numpy": ("found = np.ascontiguousarray(right.numpy())", "torch.from_numpy(found)"),
    "known_by_everything": (
        "ends = [*parameters.inputs.values(), *parameters.outputs.values()]\n"
        "key = (x.numpy().tobytes(), tuple(x.shape), *((float(p.scale), int(p.zero_point), p.qmax) for p in ends))\n"
        "found = KEPT.setdefault(key, right.clone())",
        "found.clone()",
    ),
    "pool": (
        "pool = KEPT.setdefault('pool', __import__('concurrent.futures').futures.ThreadPoolExecutor(2))",
        "pool.submit(lambda: right.clone()).result()",
    ),
    "forks_and_waits": ("child = os.fork()\nif not child: os._exit(0)\nos.waitpid(child, 0)", "right"),
    "ignores_children": ("signal.signal(signal.SIGCHLD, signal.SIG_IGN)", "right"),
    "seeds": ("torch.manual_seed(1); np.random.seed(1); torch.rand(3)", "right"),
    "slow_thread": ("__import__('threading').Thread(target=time.sleep, args=(0.01,)).start()", "right"),
}
REFERENCES = {
    "r_nan": "2 * x * float('nan')",
    "r_infinite": "2 * x + float('inf')",
    "r_complex": "torch.complex(2 * x, 0 * x)",
    "r_integers": "(2 * x).round().long()",
    "r_generated": "(2 * y for y in x)",
    "r_numpy": "(2 * x).numpy()",
    "r_masked": "np.ma.masked_array((2 * x).numpy(), mask=x.numpy() > 0)",
    "r_nothing": "None",
    "r_shape": "(2 * x)[None]",
    "r_float32_alone": "2 * x if x.dtype is torch.float32 else 3 * x",
    "r_random": "2 * x + torch.rand(())",
    "r_sparse": "(2 * x).to_sparse()",
}
IN_CI = {"CI": "true", "GITHUB_ACTIONS": "true", "CI_JOB_ID": "1", "JENKINS_URL": "http://ci"}
FEW = ("in_ci", "by_parameters", "later_operand", "later_result", "fortran")


def judged(vendor, monkeypatch, capsys, sources):
    """Judge each operator in CI; the wrong ones are red, each in one line."""
    for name, source in sources.items():
        write(vendor.root, name, source)
    for name, value in IN_CI.items():
        monkeypatch.setenv(name, value)
    done = vendor.run("-k", "a8-ideal", "-p", "no:xdist", "--op-plugin-timeout=20")
    assert done.ret == 1, done.outlines
    found = records(vendor.root)
    assert found.keys() == sources.keys()
    passed = {name for name, record in found.items() if record["outcome"] == "passed"}
    assert passed == sources.keys() & FINE.keys(), {n: r.get("failure") for n, r in found.items()}
    assert all(len(str(record["failure"]).splitlines()) == 1 for name, record in found.items() if name not in FINE)
    assert not green(vendor.root, 1, capsys)


def source(name):
    if name in REFERENCES:
        return text(name, "", "right").replace("return 2 * x", f"return {REFERENCES[name]}", 1)
    return text(name, *{**WRONG, **FINE}[name])


def test_a_result_that_changes_later_or_outside_ci_fails(vendor, monkeypatch, capsys):
    judged(vendor, monkeypatch, capsys, {name: source(name) for name in FEW})


@pytest.mark.nightly
def test_unusual_wrong_results_fail(vendor, monkeypatch, capsys):
    judged(vendor, monkeypatch, capsys, {name: source(name) for name in {**WRONG, **FINE, **REFERENCES}})
