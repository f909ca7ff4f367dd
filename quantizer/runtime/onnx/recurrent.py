"""Recurrent layers: LSTM, GRU and RNN, in either or both directions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from quantizer.core.errors import UnsupportedError
from quantizer.runtime.onnx.kernels import kernel, one_of

Scaled = Callable[[Tensor, float, float], Tensor]
ACTIVATIONS: dict[str, tuple[Scaled, tuple[float | None, ...]]] = {
    "sigmoid": (lambda x, *_: torch.sigmoid(x), ()),
    "tanh": (lambda x, *_: torch.tanh(x), ()),
    "relu": (lambda x, *_: torch.relu(x), ()),
    "softsign": (lambda x, *_: x / (1 + x.abs()), ()),
    "softplus": (lambda x, *_: torch.logaddexp(x, torch.zeros_like(x)), ()),
    "leakyrelu": (lambda x, a, _: torch.where(x >= 0, x, a * x), (0.01,)),
    "thresholdedrelu": (lambda x, a, _: torch.where(x >= a, x, torch.zeros_like(x)), (1.0,)),
    "elu": (lambda x, a, _: torch.where(x >= 0, x, a * torch.expm1(x)), (1.0,)),
    "hardsigmoid": (lambda x, a, b: (a * x + b).clamp(0.0, 1.0), (0.2, 0.5)),
    "affine": (lambda x, a, b: a * x + b, (None, None)),
    "scaledtanh": (lambda x, a, b: a * torch.tanh(b * x), (None, None)),
}
"""Name -> function of (x, alpha, beta), and the defaults of alpha and beta: those of the ONNX operator of that name.
For the last two there is no such operator and no default in the standard; 0 is ONNX Runtime's.
"""
DIRECTIONS = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}
Step = Callable[[Tensor, list[Tensor]], list[Tensor]]


def _activations(given: Sequence[str] | None, default: Sequence[str], count: int, alpha: Any, beta: Any) -> list[Any]:
    names = [name.lower() for name in given or list(default) * count]
    if [name.lower() for name in default] * 2 == names:  # the schema's default, which lists two directions
        names = names[: len(default) * count]
    if unknown := sorted(set(names) - ACTIVATIONS.keys()):
        raise UnsupportedError(f"activation {unknown[0]!r}: must be one of {', '.join(ACTIVATIONS)}.")
    if len(names) != len(default) * count:
        raise UnsupportedError(f"{len(names)} activations: must be {len(default) * count}.")
    alphas, betas = list(alpha or ()), list(beta or ())
    found = []
    for name in names:
        function, defaults = ACTIVATIONS[name]
        said = [(own.pop(0) if own else d) for own, d in zip((alphas, betas), defaults, strict=False)]
        known = [value for value in said if value is not None]
        if len(known) < len(said):
            raise UnsupportedError(f"activation {name!r}: activation_alpha and activation_beta must be given.")
        first, second = (*known, 0.0, 0.0)[:2]
        found.append(partial(_with, function, first, second))
    if alphas or betas:
        raise UnsupportedError(
            f"activation_alpha={alpha}, activation_beta={beta}: must not hold more numbers than "
            f"{', '.join(names)} take."
        )
    return found


def _with(function: Scaled, alpha: float, beta: float, x: Tensor) -> Tensor:
    return function(x, alpha, beta)


def _run(
    x: Tensor, step: Step, states: list[Tensor], lengths: Tensor | None, *, backwards: bool
) -> tuple[Tensor, list[Tensor]]:
    """Return all outputs and the last states; past its length an example keeps its state, and its outputs are zeros."""
    # placeholders, because a backward pass fills the list from its end
    outputs: list[Tensor] = [states[0]] * x.shape[0]
    for t in reversed(range(x.shape[0])) if backwards else range(x.shape[0]):
        after = step(x[t], states)
        outputs[t] = after[0]
        if lengths is not None:
            running = (lengths > t).reshape(-1, 1)
            outputs[t] = torch.where(running, after[0], torch.zeros_like(after[0]))
            # an example that has ended keeps its state; backwards it has not begun
            after = [torch.where(running, new, old) for new, old in zip(after, states, strict=True)]
        states = after
    return (torch.stack(outputs) if outputs else x.new_zeros(0, *states[0].shape)), states


def _layer(
    x: Tensor,
    starts: Sequence[Tensor | None],
    lengths: Tensor | None,
    steps: Sequence[Step],
    direction: str,
    hidden: int,
    layout: int,
    made: int,
) -> tuple[Tensor, ...]:
    """Return the outputs of every step and the last states, in either layout."""
    if layout:
        x = x.transpose(0, 1)
    found = []
    for d, (step, backwards) in enumerate(zip(steps, DIRECTIONS[direction], strict=True)):
        states = []
        for start in starts:
            zero = x.new_zeros(x.shape[1], hidden)
            states.append(zero if start is None else (start[:, d] if layout else start[d]))
        found.append(_run(x, step, states, lengths, backwards=backwards))
    # y has the shape [length, directions, batch, hidden]
    y = torch.stack([outputs for outputs, _ in found], dim=1)
    last = [torch.stack([states[i] for _, states in found]) for i in range(len(starts))]
    if layout:
        y, last = y.permute(2, 0, 1, 3), [state.transpose(0, 1) for state in last]
    return (y, *last)[:made]


def _checked(op: str, direction: str, clip: float | None, hidden_size: int | None, recurrence: Tensor) -> int:
    count = len(DIRECTIONS[one_of(op, "direction", direction, DIRECTIONS)])
    if clip is not None and not clip >= 0:
        raise UnsupportedError(f"{op}: clip={clip}: must not be negative.")
    hidden = recurrence.shape[2]
    if recurrence.shape[0] != count:
        raise UnsupportedError(f"{op}: R has shape {list(recurrence.shape)}: {direction} must have {count} first.")
    if hidden_size not in (None, hidden):
        raise UnsupportedError(f"{op}: hidden_size={hidden_size}: must be the {hidden} columns of R.")
    return hidden


def _clipped(act: Callable[[Tensor], Tensor], clip: float | None) -> Callable[[Tensor], Tensor]:
    """Return an activation that clips its input to [-clip, clip] first."""
    return act if clip is None else lambda x: act(x.clamp(-clip, clip))


@kernel("LSTM", widens=True)
def lstm(
    x: Tensor,
    w: Tensor,
    r: Tensor,
    b: Tensor | None = None,
    lengths: Tensor | None = None,
    initial_h: Tensor | None = None,
    initial_c: Tensor | None = None,
    p: Tensor | None = None,
    *,
    activation_alpha: Any = None,
    activation_beta: Any = None,
    activations: Sequence[str] | None = None,
    clip: float | None = None,
    direction: str,
    hidden_size: int | None = None,
    input_forget: int,
    layout: int = 0,
    made: int,
) -> tuple[Tensor, ...]:
    """Run an LSTM. Gates have the order input, output, forget, cell; peepholes the order input, output, forget.

    *clip* bounds the inputs of the gates' activations and of the cell's input, but not the cell's state, as in ONNX
    Runtime. With input_forget the forget gate is 1 minus the input gate.
    """
    hidden = _checked("LSTM", direction, clip, hidden_size, r)
    count = len(DIRECTIONS[direction])
    acts = _activations(activations, ["Sigmoid", "Tanh", "Tanh"], count, activation_alpha, activation_beta)

    def step_of(d: int) -> Step:
        f, g = (_clipped(act, clip) for act in acts[3 * d : 3 * d + 2])
        h = acts[3 * d + 2]
        # ONNX stores two biases, for the input and for the recurrence: their sum is added once
        bias = x.new_zeros(4 * hidden) if b is None else b[d, : 4 * hidden] + b[d, 4 * hidden :]
        peep = x.new_zeros(3, hidden) if p is None else p[d].reshape(3, hidden)

        def step(xt: Tensor, states: list[Tensor]) -> list[Tensor]:
            ht, ct = states
            # one product for all four gates
            i, o, forget, cell = (xt @ w[d].T + ht @ r[d].T + bias).chunk(4, dim=-1)
            entered = f(i + peep[0] * ct)
            kept = 1 - entered if input_forget else f(forget + peep[2] * ct)
            new = kept * ct + entered * g(cell)
            return [f(o + peep[1] * new) * h(new), new]

        return step

    return _layer(
        x, [initial_h, initial_c], lengths, [step_of(d) for d in range(count)], direction, hidden, layout, made
    )


@kernel("GRU", widens=True)
def gru(
    x: Tensor,
    w: Tensor,
    r: Tensor,
    b: Tensor | None = None,
    lengths: Tensor | None = None,
    initial_h: Tensor | None = None,
    *,
    activation_alpha: Any = None,
    activation_beta: Any = None,
    activations: Sequence[str] | None = None,
    clip: float | None = None,
    direction: str,
    hidden_size: int | None = None,
    layout: int = 0,
    linear_before_reset: int,
    made: int,
) -> tuple[Tensor, ...]:
    """Run a GRU. Gates have the order update, reset, hidden; linear_before_reset resets after the hidden product."""
    hidden = _checked("GRU", direction, clip, hidden_size, r)
    count = len(DIRECTIONS[direction])
    acts = _activations(activations, ["Sigmoid", "Tanh"], count, activation_alpha, activation_beta)

    def step_of(d: int) -> Step:
        f, g = (_clipped(act, clip) for act in acts[2 * d : 2 * d + 2])
        wb, rb = (x.new_zeros(3 * hidden),) * 2 if b is None else (b[d, : 3 * hidden], b[d, 3 * hidden :])

        def step(xt: Tensor, states: list[Tensor]) -> list[Tensor]:
            ht = states[0]
            z, reset, new = (xt @ w[d].T + wb).chunk(3, dim=-1)
            rz, rr, rh = r[d].chunk(3)
            bz, br, bh = rb.chunk(3)
            z, reset = f(z + ht @ rz.T + bz), f(reset + ht @ rr.T + br)
            # the order decides whether the reset also scales the recurrent bias
            inner = reset * (ht @ rh.T + bh) if linear_before_reset else (reset * ht) @ rh.T + bh
            return [(1 - z) * g(new + inner) + z * ht]

        return step

    return _layer(x, [initial_h], lengths, [step_of(d) for d in range(count)], direction, hidden, layout, made)


@kernel("RNN", widens=True)
def rnn(
    x: Tensor,
    w: Tensor,
    r: Tensor,
    b: Tensor | None = None,
    lengths: Tensor | None = None,
    initial_h: Tensor | None = None,
    *,
    activation_alpha: Any = None,
    activation_beta: Any = None,
    activations: Sequence[str] | None = None,
    clip: float | None = None,
    direction: str,
    hidden_size: int | None = None,
    layout: int = 0,
    made: int,
) -> tuple[Tensor, ...]:
    """Run an RNN: one activation of the sum of both products. The default lists one for each of two directions."""
    hidden = _checked("RNN", direction, clip, hidden_size, r)
    count = len(DIRECTIONS[direction])
    # the schema's default lists two directions even for one
    given = None if activations is None else list(activations)[:count]
    acts = _activations(given, ["Tanh"], count, activation_alpha, activation_beta)

    def step_of(d: int) -> Step:
        bias = x.new_zeros(hidden) if b is None else b[d, :hidden] + b[d, hidden:]
        return lambda xt, states: [_clipped(acts[d], clip)(xt @ w[d].T + states[0] @ r[d].T + bias)]

    return _layer(x, [initial_h], lengths, [step_of(d) for d in range(count)], direction, hidden, layout, made)
