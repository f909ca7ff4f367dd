from .store import read_run
from .whole import NotWholeError, read_whole

__all__ = [
    "NotWholeError",
    "read_run",
    "read_whole",
]
