"""Run the command line: `python -m quantizer`."""

from __future__ import annotations

import sys

from quantizer.cli import main

sys.exit(main())
