"""`python -m quantizer.runtime.isolation`: the process of plugins, which the judge starts."""

import sys
from pathlib import Path

from quantizer.runtime.engines.serve import pipes

if __name__ == "__main__":
    ends = pipes()  # before anything else is imported, because an import may print
    from quantizer.runtime.isolation.worker import serve

    sys.path.append(str(Path.cwd()))
    serve(*ends)
