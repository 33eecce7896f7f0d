"""`python -m bench.uncounted manager ...`: a manager without the metrics of TrainJobs, to find out what they cost."""

from __future__ import annotations

import sys
from unittest.mock import patch

from trainmaster.controller.cli.root import main
from trainmaster.controller.manager.caches import Caches

if __name__ == "__main__":
    with patch.object(Caches, "add_observer", lambda *_: None):
        sys.exit(main())
