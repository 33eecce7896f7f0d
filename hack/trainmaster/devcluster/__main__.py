"""`python -m trainmaster.devcluster cluster up`: the embedded cluster without the rest of the command line."""

from __future__ import annotations

import sys

from trainmaster.devcluster.cli.command import main

if __name__ == "__main__":
    sys.exit(main())
