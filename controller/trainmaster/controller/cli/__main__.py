"""`python -m trainmaster.controller.cli`: the command line without the console script."""

from __future__ import annotations

import sys

from trainmaster.controller.cli.root import main

if __name__ == "__main__":
    sys.exit(main())
