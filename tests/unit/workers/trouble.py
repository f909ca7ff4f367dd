"""A worker's system that does what the first feed asks for."""

import os
import signal
import sys
import time
from pathlib import Path


def load(model, options):
    if model == b"broken":
        raise ValueError("no such model")
    return [0, model]


def run(session, feeds):
    session[0] += 1
    match int(feeds["what"][0]):
        case 0:
            print("a system that talks")
            sys.stdout.flush()
            os.write(1, b"from below as well\n")
            return [feeds["what"] * 2, session[0] + feeds["what"]]
        case 1:
            sys.stderr.write("about to fall\n")
            sys.stderr.flush()
            os.kill(os.getpid(), signal.SIGSEGV)
        case 2:
            time.sleep(60)
        case 3:
            raise RuntimeError("first line\nsecond line")
        case 4:
            os._exit(7)
        case 5 if not Path(session[1].decode()).exists():  # once
            Path(session[1].decode()).touch()
            os._exit(7)
    return []
