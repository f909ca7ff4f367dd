"""`python -m quantizer.optimize`: the same as `quantizer optimize`."""

from __future__ import annotations

import sys

from quantizer.cli import main

if __name__ == "__main__":
    sys.exit(main(["optimize", *sys.argv[1:]]))
