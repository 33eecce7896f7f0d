"""`python -m profiling.manager manager ...`: a manager that profiles itself, into the file of `PROFILE`."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from profiling.sampler import sampled
from trainmaster.controller.cli.root import main

if __name__ == "__main__":
    with sampled(Path(os.environ["PROFILE"])):
        status = main()
    sys.exit(status)
