from .cfg import Options, read_cfg
from .steps import optimize

__all__ = [
    "Options",
    "optimize",
    "read_cfg",
]
