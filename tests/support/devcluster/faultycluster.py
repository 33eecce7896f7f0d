"""An embedded cluster that fails on purpose, in the process of a test and as a program.

`python -m support.devcluster.faultycluster cluster up ...` is `trainmaster cluster up`, in the foreground, with the
control API of `fault_injection`.
"""

import sys
from typing import Any
from unittest import mock

from support.devcluster.fault_injection import FaultControl, FaultInjector
from support.devcluster.faults import Faults

from trainmaster.devcluster.cli import up
from trainmaster.devcluster.cli.command import main
from trainmaster.devcluster.cluster import Cluster
from trainmaster.devcluster.settings import ClusterSettings


class FaultyCluster(Cluster):
    """A cluster with faults."""

    def __init__(self, settings: ClusterSettings, *, fault_control: bool = False) -> None:
        self.faults = Faults()
        """What the server does wrong on purpose."""

        super().__init__(
            settings,
            middlewares=[FaultInjector(self.faults).inject],
            routes=FaultControl(self.faults).routes() if fault_control else (),
            pre_shutdown_hooks=[self.faults.clear],
        )


def _controlled(settings: ClusterSettings) -> Any:
    return FaultyCluster(settings, fault_control=True)


if __name__ == "__main__":
    with mock.patch.object(up, "Cluster", _controlled):
        sys.exit(main())
