"""Operands in other memory: right functions pass, and a message names what a wrong one does not follow."""

from __future__ import annotations

import threading

import pytest
import torch

from quantizer.core.errors import FunctionError
from quantizer.runtime.isolation.memory import require_same_elsewhere

OPERANDS = {"x": torch.arange(24).reshape(2, 3, 4), "y": torch.arange(24).reshape(2, 3, 4) * 3}


def right(given):
    return given["x"] * 2 + given["y"]


def dense(given):
    """Take the elements as they stand in memory, from the operand's offset."""
    x = given["x"]
    return torch.as_strided(x, x.shape, torch.empty(x.shape).stride(), x.storage_offset()) * 2 + given["y"]


def of_rows(given):
    """Know steps between elements of a row, and take rows for dense where the first axis is the innermost one."""
    return dense(given) if given["x"].stride(0) < given["x"].stride(-1) else right(given)


def from_the_start(given):
    """Read the buffer from its first element."""
    x = given["x"]
    return torch.as_strided(x, x.shape, x.stride(), 0) * 2 + given["y"]


def past_the_end(given):
    """Clear the element after the operand where the buffer has one."""
    x = given["x"]
    made = right(given)
    whole = torch.as_strided(x, (x.untyped_storage().nbytes() // x.element_size(),), (1,), 0)
    if x.is_contiguous() and x.storage_offset():
        whole[x.storage_offset() + x.numel()] = 0
    return made


def loud(given):
    if not all(values.is_contiguous() and not values.storage_offset() for values in given.values()):
        raise ValueError("contiguous operands only")
    return right(given)


@pytest.mark.parametrize("function", [right, loud])
def test_correct_functions_and_refusals_pass_in_other_memory(function):
    require_same_elsewhere(function, OPERANDS, function(OPERANDS))


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (dense, "its operands are not contiguous"),
        (of_rows, "their axes in the reverse order"),
        (from_the_start, "stand inside larger buffers"),
        (past_the_end, "wrote outside operand 'x'"),
    ],
)
def test_the_message_names_the_ignored_memory_property(function, said):
    with pytest.raises(FunctionError, match=said):
        require_same_elsewhere(function, OPERANDS, function(OPERANDS))


def test_results_cached_by_parameter_address_are_detected():
    """A layer is called with other operands and the same parameters."""
    kept = {}

    def asked(parameters):
        return lambda given: kept.setdefault(id(parameters), right(given))

    call, anew = asked([1]), asked([2])
    with pytest.raises(FunctionError, match="Keep nothing by the address of parameters"):
        require_same_elsewhere(call, OPERANDS, call(OPERANDS), anew)
    require_same_elsewhere(right, OPERANDS, right(OPERANDS), right)


def test_a_function_that_refuses_copied_parameters_is_detected():
    def anew(_):
        raise KeyError("an address that it does not know")

    with pytest.raises(FunctionError, match="gave KeyError where it gave codes for the same operands with parameters"):
        require_same_elsewhere(right, OPERANDS, right(OPERANDS), anew)


def by_threads(given):
    """Lose an element where the work is split."""
    made = right(given)
    if torch.get_num_threads() == 3:
        made[0, 0, 0] += 1
    return made


OWN = threading.local()
OWN.step = 2


def of_one_thread(given):
    """Hold a constant for the thread that imported the module alone."""
    return given["x"] * getattr(OWN, "step", 0) + given["y"]


def bound(given):
    """Refuse other threads aloud, as a connection to a database does."""
    return given["x"] * OWN.step + given["y"]


def by_address(given):
    """Take two operands in the same memory for the square of one."""
    return given["x"] * given["y"] if given["x"].data_ptr() == given["y"].data_ptr() else right(given)


def of_dense_batches(given):
    """Take slices of the first axis to lie one after the other."""
    x = given["x"]
    steps = (x[0].numel() if x.stride(0) == 0 else x.stride(0), *x.stride()[1:])
    return torch.as_strided(x, x.shape, steps, x.storage_offset()) * 2 + given["y"]


def _in_turn(function):
    """Judge twelve sets of operands, so that each of the alternating memory settings occurs."""
    for first in range(12):
        operands = {name: (values + first) % 24 for name, values in OPERANDS.items()}
        require_same_elsewhere(function, operands, function(operands))


@pytest.mark.parametrize("function", [right, loud, bound])
def test_correct_functions_pass_with_threads_and_shared_memory(function):
    threads = torch.get_num_threads()
    _in_turn(function)
    assert torch.get_num_threads() == threads


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (by_threads, "under 3 threads"),
        (of_one_thread, "in another thread of Python"),
        (by_address, "two operands are one tensor"),
        (of_dense_batches, "has the stride 0"),
    ],
)
def test_threads_and_shared_memory_are_named(function, said):
    with pytest.raises(FunctionError, match=said):
        _in_turn(function)


class Stale:
    """A cache by the address of its operands that holds codes of earlier operands for one of the addresses."""

    def __init__(self, stale):
        self.stale, self.kept, self.alive = stale, {}, []

    def __call__(self, given):
        self.alive.append(given)  # so that no address is given out twice
        made = right(given) + (len(self.kept) == self.stale)
        return self.kept.setdefault(tuple(values.data_ptr() for values in given.values()), made)


@pytest.mark.parametrize("values", range(12))
def test_a_cache_by_operand_address_is_named_wherever_it_shows(values):
    """Which check meets an address of earlier operands first is up to the allocator."""
    x = torch.arange(24).roll(values).reshape(2, 3, 4)
    for stale in range(1, 7):
        cached, operands = Stale(stale), {"x": x, "y": x + 1}
        with pytest.raises(FunctionError, match="Keep nothing by the address of a tensor"):
            require_same_elsewhere(cached, operands, cached(operands), cached)
