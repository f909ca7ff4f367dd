"""Environments that name one env_dir are one: tox itself makes it anew for each name, here 1.4 GB and ten minutes."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from tox.plugin import impl
from tox.tox_env.api import ToxEnv
from tox.tox_env.info import Info
from tox.tox_env.python.virtual_env.runner import VirtualEnvRunner
from tox.tox_env.register import ToxEnvRegister


class SharedInfo(Info):
    """What tox wrote of an environment, under the name of its folder, which all that share it have."""

    @contextmanager
    def compare(self, value: Any, section: str, sub_section: str | None = None) -> Generator[tuple[bool, Any | None]]:
        """Compare *value* with what was written; another name in the same folder is not a difference."""
        if section == ToxEnv.__name__:
            value = {**value, "name": self._path.parent.name}
        with super().compare(value, section, sub_section) as found:
            yield found


class SharedRunner(VirtualEnvRunner):
    """`runner = shared`: an environment with other dependencies is still made anew."""

    @staticmethod
    def id() -> str:
        """Return the name that tox.ini gives it."""
        return "shared"

    @property
    def cache(self) -> Info:
        """What the last setup of the folder wrote."""
        return SharedInfo(self.env_dir)


@impl
def tox_register_tox_env(register: ToxEnvRegister) -> None:
    """Offer the runner to tox.ini."""
    register.add_run_env(SharedRunner)
