"""Any torch module with quantized parameters and buffers, and quantized activations."""

from __future__ import annotations

import types
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from quantizer.core.errors import FixError
from quantizer.nn.fixed import Fixed, remembered

REGISTERED: dict[str, type[nn.Module]] = {}
"""Name -> fixed-point module, for `quantizer.nn.<name>`."""


class FixedParameters(Fixed):
    """Runs the forward of the module that it is mixed into on quantized parameters and buffers.

    The float masters remain: `parameters()` returns them, and optimisers change them. forward(inputs, ...): the
    module's own arguments; a mapping with the key `inputs` may hold `<name>_fix`, `<name>_grad_fix` for this call.
    """

    def forward(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        """Return the module's result on the quantized values."""
        given = inputs if isinstance(inputs, dict) and "inputs" in inputs else None
        operand = inputs if given is None else given["inputs"]
        names = self._fixed_names(given)
        masters = {name: held for name, held in self._parameters.items() if name in names and held is not None}
        fixed = {name: self.fixed_value(name, master, given) for name, master in masters.items()}
        buffers, before = self._fixed_buffers(names, given)
        self._fix_last = remembered([*fixed.items(), *before.items()])
        # the forward of the class reads its tensors by name, so quantized values stand there while it runs
        self._parameters.update(fixed)  # type: ignore[arg-type]
        # copies, because the forward may write into buffers, and the change is measured against `before`
        self._buffers.update({name: value.clone() for name, value in before.items()})
        flat = self._present_flat()
        try:
            result = super().forward(operand, *args, **kwargs)
            self._move_masters(buffers, before)
        finally:
            # also after an exception: the optimizer must find the masters
            self._parameters.update(masters)
            self._buffers.update(buffers)
            if flat is not None:
                self._flat_weights = flat
        for name in names:
            written = self._buffers.get(name)
            # a buffer that the forward only wrote, such as running statistics in training
            if written is not None and name not in buffers:
                self._fix_last[name] = self.fixed_value(name, written, given).detach()
        return result

    def _fixed_buffers(
        self, names: list[str], given: Mapping[str, Any] | None
    ) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Return the buffers among *names* that the forward reads, and their quantized values."""
        held: dict[str, Tensor] = {}
        for name in names:
            buffer = self._buffers.get(name)
            if buffer is not None and not self._only_written(name):
                held[name] = buffer
        with torch.no_grad():
            return held, {name: self.fixed_value(name, buffer, given) for name, buffer in held.items()}

    def _move_masters(self, masters: dict[str, Tensor], before: dict[str, Tensor]) -> None:
        """Move each master buffer by as much as the forward moved its quantized value."""
        with torch.no_grad():
            for name, master in masters.items():
                now = self._buffers[name]
                if now is not None:
                    master.copy_(now if self._fix_data[name].compat is not None else master + (now - before[name]))

    def _fixed_names(self, given: Mapping[str, Any] | None) -> list[str]:
        names = [*self._fix_data, *(name for name in self._fix_grad if name not in self._fix_data)]
        if given is not None:
            named = (key.removesuffix("_fix").removesuffix("_grad") for key in given if key.endswith("_fix"))
            names += [name for name in named if name not in names and name in self.fixable_names()]
        return names

    def _only_written(self, name: str) -> bool:
        """Return whether the forward ignores buffer *name*: batch norm in training only updates its statistics."""
        known = name in self._fix_data and self._fix_data[name].compat is None
        return known and isinstance(self, _NormBase) and self.training and name.startswith("running_")

    def _present_flat(self) -> list[Tensor] | None:
        """Put the presented values into the list that a recurrent module reads; return the list's old content."""
        names: list[str] | None = getattr(self, "_flat_weights_names", None)
        if names is None:
            return None
        before: list[Tensor] = self._flat_weights
        presented: Any = [self._parameters[name] for name in names]
        self._flat_weights = presented
        return before


def register_fix_module(cls: type[nn.Module], register_name: str | None = None) -> type[nn.Module]:
    """Return the fixed-point form of *cls*, `quantizer.nn.<Name>_fix` (or *register_name*) from now on.

    Its constructor takes the keywords `nf_fix_params` and `nf_fix_params_grad` in addition to the arguments of *cls*. A
    later class of the same name takes its place. FixError if *cls* is not a module class, or fixed-point already.
    """
    if not (isinstance(cls, type) and issubclass(cls, nn.Module)):
        raise FixError(
            f"register_fix_module: {cls!r} is not a class of torch modules. Pass a class such as torch.nn.Conv1d."
        )
    if issubclass(cls, Fixed):
        raise FixError(f"register_fix_module: {cls.__name__} is a fixed-point module already: use it as it is.")
    name = register_name or f"{cls.__name__}_fix"
    if not name.isidentifier():
        raise FixError(f"register_fix_module: name {name!r}: must be an identifier.")

    def fill(space: dict[str, Any]) -> None:
        space |= {"__module__": "quantizer.nn", "__doc__": f"{cls.__name__} with quantized parameters and buffers."}

    REGISTERED[name] = types.new_class(name, (FixedParameters, cls), {}, fill)
    return REGISTERED[name]


class Activation_fix(Fixed):
    """Puts its input on a grid. The configuration has the key `activation`."""

    fix_data_names = ("activation",)

    def forward(self, inputs: Any) -> Tensor:
        """Return the input, quantized; a mapping with the key `inputs` may hold `activation_fix` for this call."""
        if isinstance(inputs, dict):
            return self.fixed_value("activation", inputs["inputs"], inputs)
        return self.fixed_value("activation", inputs)


for _cls in (nn.Conv2d, nn.Linear, nn.BatchNorm1d, nn.BatchNorm2d):
    register_fix_module(_cls)
