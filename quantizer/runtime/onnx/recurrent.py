"""Recurrent layers: LSTM, GRU and the plain one, in either or both directions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from quantizer.core.errors import UnsupportedError
from quantizer.runtime.onnx.kernels import kernel

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "sigmoid": torch.sigmoid, "tanh": torch.tanh, "relu": torch.relu, "softsign": lambda x: x / (1 + x.abs()),
    "softplus": lambda x: torch.logaddexp(x, torch.zeros_like(x)),
}  # fmt: skip
"""The activations that have no constants of their own."""
DIRECTIONS = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}
Step = Callable[[Tensor, list[Tensor]], list[Tensor]]


def _activations(given: Sequence[str] | None, default: Sequence[str], count: int, alpha: Any, beta: Any) -> list[Any]:
    names = [name.lower() for name in given or list(default) * count]
    if [name.lower() for name in default] * 2 == names:  # the schema's own default, of two directions
        names = names[: len(default) * count]
    if unknown := sorted(set(names) - ACTIVATIONS.keys()):
        raise UnsupportedError(f"activation {unknown[0]!r}: must be one of {', '.join(ACTIVATIONS)}.")
    if alpha or beta or len(names) != len(default) * count:
        raise UnsupportedError("activations with constants, or not as many as the gates need.")
    return [ACTIVATIONS[name] for name in names]


def _run(
    x: Tensor, step: Step, states: list[Tensor], lengths: Tensor | None, *, backwards: bool
) -> tuple[Tensor, list[Tensor]]:
    """Return all outputs and the last states; past its length an example keeps its state and puts out zeros."""
    outputs: list[Tensor] = [states[0]] * x.shape[0]
    for t in reversed(range(x.shape[0])) if backwards else range(x.shape[0]):
        after = step(x[t], states)
        outputs[t] = after[0]
        if lengths is not None:
            running = (lengths > t).reshape(-1, 1)
            outputs[t] = torch.where(running, after[0], torch.zeros_like(after[0]))
            after = [torch.where(running, new, old) for new, old in zip(after, states, strict=True)]
        states = after
    return (torch.stack(outputs) if outputs else x.new_zeros(0, *states[0].shape)), states


def _layer(
    x: Tensor, starts: Sequence[Tensor | None], lengths: Tensor | None, steps: Sequence[Step], direction: str,
    hidden: int, layout: int, made: int,
) -> tuple[Tensor, ...]:  # fmt: skip
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
    y = torch.stack([outputs for outputs, _ in found], dim=1)
    last = [torch.stack([states[i] for _, states in found]) for i in range(len(starts))]
    if layout:
        y, last = y.permute(2, 0, 1, 3), [state.transpose(0, 1) for state in last]
    return (y, *last)[:made]


def _checked(op: str, direction: str, clip: float | None, hidden_size: int | None, recurrence: Tensor) -> int:
    if direction not in DIRECTIONS or clip is not None:
        raise UnsupportedError(f"{op}: direction={direction!r}, clip={clip}: must be a known direction, without clip.")
    hidden = recurrence.shape[2]
    if len(DIRECTIONS[direction]) != recurrence.shape[0] or hidden_size not in (None, hidden):
        raise UnsupportedError(
            f"{op}: weights of shape {list(recurrence.shape)} for hidden_size={hidden_size}, {direction}."
        )
    return hidden


@kernel("LSTM")
def lstm(
    x: Tensor, w: Tensor, r: Tensor, b: Tensor | None = None, lengths: Tensor | None = None, initial_h: Tensor | None = None,
    initial_c: Tensor | None = None, p: Tensor | None = None, *, activation_alpha: Any = None, activation_beta: Any = None,
    activations: Sequence[str] | None = None, clip: float | None = None, direction: str, hidden_size: int | None = None,
    input_forget: int, layout: int = 0, made: int,
) -> tuple[Tensor, ...]:  # fmt: skip
    """Gates in the order input, output, forget, cell; peepholes in the order input, output, forget."""
    hidden = _checked("LSTM", direction, clip, hidden_size, r)
    if input_forget:
        raise UnsupportedError("LSTM with input_forget=1.")
    count = len(DIRECTIONS[direction])
    acts = _activations(activations, ["Sigmoid", "Tanh", "Tanh"], count, activation_alpha, activation_beta)

    def step_of(d: int) -> Step:
        f, g, h = acts[3 * d : 3 * d + 3]
        bias = x.new_zeros(4 * hidden) if b is None else b[d, : 4 * hidden] + b[d, 4 * hidden :]
        peep = x.new_zeros(3, hidden) if p is None else p[d].reshape(3, hidden)

        def step(xt: Tensor, states: list[Tensor]) -> list[Tensor]:
            ht, ct = states
            i, o, forget, cell = (xt @ w[d].T + ht @ r[d].T + bias).chunk(4, dim=-1)
            new = f(forget + peep[2] * ct) * ct + f(i + peep[0] * ct) * g(cell)
            return [f(o + peep[1] * new) * h(new), new]

        return step

    return _layer(
        x, [initial_h, initial_c], lengths, [step_of(d) for d in range(count)], direction, hidden, layout, made
    )


@kernel("GRU")
def gru(
    x: Tensor, w: Tensor, r: Tensor, b: Tensor | None = None, lengths: Tensor | None = None, initial_h: Tensor | None = None,
    *, activation_alpha: Any = None, activation_beta: Any = None, activations: Sequence[str] | None = None,
    clip: float | None = None, direction: str, hidden_size: int | None = None, layout: int = 0,
    linear_before_reset: int, made: int,
) -> tuple[Tensor, ...]:  # fmt: skip
    """Gates in the order update, reset, hidden; linear_before_reset multiplies after the hidden gate's product."""
    hidden = _checked("GRU", direction, clip, hidden_size, r)
    count = len(DIRECTIONS[direction])
    acts = _activations(activations, ["Sigmoid", "Tanh"], count, activation_alpha, activation_beta)

    def step_of(d: int) -> Step:
        f, g = acts[2 * d : 2 * d + 2]
        wb, rb = (x.new_zeros(3 * hidden),) * 2 if b is None else (b[d, : 3 * hidden], b[d, 3 * hidden :])

        def step(xt: Tensor, states: list[Tensor]) -> list[Tensor]:
            ht = states[0]
            z, reset, new = (xt @ w[d].T + wb).chunk(3, dim=-1)
            rz, rr, rh = r[d].chunk(3)
            bz, br, bh = rb.chunk(3)
            z, reset = f(z + ht @ rz.T + bz), f(reset + ht @ rr.T + br)
            inner = reset * (ht @ rh.T + bh) if linear_before_reset else (reset * ht) @ rh.T + bh
            return [(1 - z) * g(new + inner) + z * ht]

        return step

    return _layer(x, [initial_h], lengths, [step_of(d) for d in range(count)], direction, hidden, layout, made)


@kernel("RNN")
def rnn(
    x: Tensor, w: Tensor, r: Tensor, b: Tensor | None = None, lengths: Tensor | None = None, initial_h: Tensor | None = None,
    *, activation_alpha: Any = None, activation_beta: Any = None, activations: Sequence[str] | None = None,
    clip: float | None = None, direction: str, hidden_size: int | None = None, layout: int = 0, made: int,
) -> tuple[Tensor, ...]:  # fmt: skip
    """One activation of the sum of both products."""
    hidden = _checked("RNN", direction, clip, hidden_size, r)
    count = len(DIRECTIONS[direction])
    acts = _activations(activations, ["Tanh"], count, activation_alpha, activation_beta)

    def step_of(d: int) -> Step:
        bias = x.new_zeros(hidden) if b is None else b[d, :hidden] + b[d, hidden:]
        return lambda xt, states: [acts[d](xt @ w[d].T + states[0] @ r[d].T + bias)]

    return _layer(x, [initial_h], lengths, [step_of(d) for d in range(count)], direction, hidden, layout, made)
