from .complete_run import IncompleteRunError, read_complete_run
from .store import read_run

__all__ = [
    "IncompleteRunError",
    "read_complete_run",
    "read_run",
]
