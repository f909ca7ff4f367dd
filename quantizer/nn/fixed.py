"""Base of all fixed-point modules: configurations by name, their scales as buffers, quantized values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from dataclasses import replace
from typing import Any

from torch import Tensor, nn

from quantizer.core.errors import FixError
from quantizer.core.wording import suggestion
from quantizer.nn.config import KEYS, FixConfig, check_scale, parse
from quantizer.nn.datum import on_grid, quantize, seed_of, with_gradient
from quantizer.nn.methods import QuantizeMethod
from quantizer.nn.ranges import group_axis

_STATE = ("fp_scale", "fp_draws")


class LiveConfig(MutableMapping[str, Any]):
    """A view of one datum's configuration in its module: a change takes effect from the next forward on."""

    def __init__(self, module: Fixed, name: str, *, grad: bool) -> None:
        self._module, self._name, self._grad = module, name, grad

    @property
    def config(self) -> FixConfig:
        """The configuration without its scale."""
        return self._module.fix_configs(grad=self._grad)[self._name]

    @property
    def scale(self) -> Tensor:
        """The scale: the module's own buffer."""
        return self._module.fix_state(self._name, "fp_scale", grad=self._grad)

    def plain(self) -> dict[str, object]:
        """Return numbers and words only, as `FixConfig.plain` does."""
        return self.config.plain(self.scale)

    def __getitem__(self, key: str) -> Any:
        if key not in KEYS:
            raise KeyError(key)
        return self.scale if key == "scale" else getattr(self.config, key)

    def __setitem__(self, key: str, value: Any) -> None:
        self._module.configure_fix(self._name, {**self, key: value}, grad=self._grad)

    def __delitem__(self, key: str) -> None:
        # a key that is left out takes its default
        self._module.configure_fix(self._name, {k: v for k, v in self.items() if k != key}, grad=self._grad)

    def __iter__(self) -> Iterator[str]:
        return iter(KEYS)

    def __len__(self) -> int:
        return len(KEYS)

    def __repr__(self) -> str:
        return repr(dict(self))


class Fixed(nn.Module):
    """A module with named quantized tensors; `nf_fix_params` and `nf_fix_params_grad` configure them."""

    fix_data_names: tuple[str, ...] | None = None
    """Names that can be configured in addition to the module's parameters and buffers."""

    def __init__(
        self,
        *args: Any,
        nf_fix_params: Mapping[str, Mapping[str, Any]],
        nf_fix_params_grad: Mapping[str, Mapping[str, Any]] | None = None,
        compat: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self._fix_compat = compat
        self._fix_data: dict[str, FixConfig] = {}
        self._fix_grad: dict[str, FixConfig] = {}
        self._fix_last: dict[str, Tensor] = {}
        for grad, given in ((False, nf_fix_params), (True, nf_fix_params_grad or {})):
            self.configure_fixes(given, grad=grad)

    def fix_configs(self, *, grad: bool = False) -> dict[str, FixConfig]:
        """Return the configurations by name."""
        return self._fix_grad if grad else self._fix_data

    @property
    def nf_fix_params(self) -> dict[str, LiveConfig]:
        """Live configurations of data by name."""
        return {name: LiveConfig(self, name, grad=False) for name in self._fix_data}

    @property
    def nf_fix_params_grad(self) -> dict[str, LiveConfig]:
        """Live configurations of gradients by name."""
        return {name: LiveConfig(self, name, grad=True) for name in self._fix_grad}

    @property
    def last_fixed(self) -> Mapping[str, Tensor]:
        """Values that the last forward used, by name; empty before the first."""
        return dict(self._fix_last)

    def fixable_names(self, *, grad: bool = False) -> tuple[str, ...]:
        """Return the names that can be configured: parameters and, except for gradients, floating-point buffers."""
        if self.fix_data_names is not None:
            return self.fix_data_names
        buffers = () if grad else tuple(name for name in self._buffers if not name.endswith(_STATE))
        return (*self._parameters, *buffers)

    def fix_state(self, name: str, what: str, *, grad: bool) -> Tensor:
        """Return a buffer of datum *name*: fp_scale, or fp_draws (the count of stochastic roundings)."""
        found = self._buffers[_buffer(name, what, grad=grad)]
        assert found is not None
        return found

    def configure_fix(self, name: str, given: object, *, grad: bool = False) -> None:
        """Configure one datum; FixError, without a change, if *given* is illegal."""
        config, scale = self._checked_fix(name, given, grad=grad)
        before = self.fix_configs(grad=grad).get(name)
        self.fix_configs(grad=grad)[name] = config
        # nothing chose a scale yet: zeros of its final shape, so that a saved state fits before the first forward
        if config.compat is None and not bool(scale.any()):
            scale = scale.new_zeros(self._fix_shape(name, config))
        self._keep_fix_buffer(_buffer(name, "fp_scale", grad=grad), scale)
        draws = _buffer(name, "fp_draws", grad=grad)
        if not config.seeded:
            self._buffers.pop(draws, None)
        # another seed begins its stream; under the same seed the count goes on
        elif draws not in self._buffers or (before is not None and before.seed != config.seed):
            self._keep_fix_buffer(draws, seed_of(config))

    def configure_fixes(self, given: Mapping[str, Any], *, grad: bool = False) -> None:
        """Replace all configurations by those in *given*; all of them or none."""
        # all are checked before the first one changes
        self.check_fixes(given, grad=grad)
        for name in self.fix_configs(grad=grad).keys() - given.keys():
            del self.fix_configs(grad=grad)[name]
            for what in _STATE:
                self._buffers.pop(_buffer(name, what, grad=grad), None)
        for name, each in given.items():
            self.configure_fix(name, each, grad=grad)

    def check_fixes(self, given: object, *, grad: bool = False) -> None:
        """Raise FixError for the first illegal configuration in *given*."""
        if not isinstance(given, Mapping):
            key = "nf_fix_params_grad" if grad else "nf_fix_params"
            raise FixError(f"{key}: must be a mapping of names to configurations, got {type(given).__name__}.")
        for name, each in given.items():
            self._checked_fix(name, each, grad=grad)

    def check_datum_method(self, name: str, method: QuantizeMethod, *, grad: bool = False) -> None:
        """Raise FixError if datum *name* cannot have *method*: FIXED needs a scale."""
        where = f"{type(self).__name__} {name!r}"
        check_scale(
            where,
            replace(self.fix_configs(grad=grad)[name], method=method),
            self.fix_state(name, "fp_scale", grad=grad),
        )

    def set_datum_method(self, name: str, method: QuantizeMethod, *, grad: bool = False) -> None:
        """Change only the method of datum *name*."""
        self.check_datum_method(name, method, grad=grad)
        configs = self.fix_configs(grad=grad)
        configs[name] = replace(configs[name], method=method)

    def fixed_value(self, name: str, data: Tensor, given: Mapping[str, Any] | None = None) -> Tensor:
        """Return *data* quantized as datum *name*, its gradient as configured.

        *given* may hold `<name>_fix`, `<name>_grad_fix`. Such an entry replaces, for this call, the keys of the
        configuration that it names.
        """
        if given is not None and (f"{name}_fix" in given or f"{name}_grad_fix" in given):
            return self._fixed_once(name, data, given)
        fixed = data
        if (config := self._fix_data.get(name)) is not None:
            seed = self._fix_seed(name, grad=False) if config.seeded else None
            fixed = on_grid(data, self.fix_state(name, "fp_scale", grad=False), config, seed)[0]
        if (config := self._fix_grad.get(name)) is not None:
            if config.compat is not None and name in self._fix_data:
                # the original cuts a gradient into the slices of its data
                config = replace(config, group=self._fix_data[name].group)
            seed = self._fix_seed(name, grad=True) if config.seeded else None
            fixed = with_gradient(fixed, self.fix_state(name, "fp_scale", grad=True), config, seed)
        return fixed

    def _fixed_once(self, name: str, data: Tensor, given: Mapping[str, Any]) -> Tensor:
        merged = []
        for grad, key in ((False, f"{name}_fix"), (True, f"{name}_grad_fix")):
            own = dict(LiveConfig(self, name, grad=grad)) if name in self.fix_configs(grad=grad) else {}
            merged.append({**own, **given.get(key, {})})
        return quantize(data, *merged)[0]

    def _checked_fix(self, name: str, given: object, *, grad: bool) -> tuple[FixConfig, Tensor]:
        where = f"{type(self).__name__}: {'gradient of ' if grad else ''}{name!r}"
        names = self.fixable_names(grad=grad)
        if name not in names:
            raise FixError(f"{where}: nothing of that name can be quantized.{suggestion(name, names, 'Known')}")
        return parse(where, given, self._fix_compat)

    def _fix_shape(self, name: str, config: FixConfig) -> tuple[int, ...]:
        """Return the shape that the scale of *name* will have, if it is known before a forward."""
        data = self._parameters.get(name)
        axis = None if data is None else group_axis(data, config)
        ends = (2,) if config.zero_point else ()
        return (*ends, data.shape[axis]) if data is not None and axis is not None else ends or (1,)

    def _keep_fix_buffer(self, name: str, value: Tensor) -> None:
        """Set a buffer in place if the shape is the same, so that other references to it see the change."""
        held = self._buffers.get(name)
        if held is not None and held.shape == value.shape:
            held.copy_(value)
        else:
            self.register_buffer(name, value if held is None else value.to(held.device))

    def _fix_seed(self, name: str, *, grad: bool) -> Tensor:
        """Return the seed of the next stochastic rounding of *name*. A buffer keeps the count, so that it is saved."""
        draws = self.fix_state(name, "fp_draws", grad=grad)
        seed = draws.clone()
        draws.add_(1)
        return seed

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        """Load the state; a scale takes its saved shape, and values of earlier forwards are forgotten."""
        for name, held in list(self._buffers.items()):
            saved = state_dict.get(prefix + name)
            if name.endswith("fp_scale") and held is not None and saved is not None and saved.shape != held.shape:
                # torch refuses to load into a buffer of another shape
                self._buffers[name] = held.new_zeros(saved.shape)
        self._fix_last.clear()
        super()._load_from_state_dict(state_dict, prefix, *args)


def remembered(values: Iterable[tuple[str, Tensor]]) -> dict[str, Tensor]:
    """Return values without their gradient history, to be kept after a forward."""
    return {name: value.detach() for name, value in values}


def _buffer(name: str, what: str, *, grad: bool) -> str:
    return f"{name}_grad_{what}" if grad else f"{name}_{what}"


def fixed_modules(module: nn.Module) -> Iterator[tuple[str, Fixed]]:
    """Yield every fixed-point module inside with its path, the module itself included."""
    for path, inner in module.named_modules():
        if isinstance(inner, Fixed):
            yield path, inner
