"""What starting a cluster in the foreground and in the background have in common.

Whoever starts one in the background imports nothing of the cluster itself: that takes most of a second. Without the
extra that the cluster needs he fails here, at its jsonpatch, and not with the log of a process that did not start.
"""

from __future__ import annotations

import os
import signal
from typing import Final

import jsonpatch  # noqa: F401 - see above

from trainmaster.devcluster.settings import MANAGER, ClusterSettings
from trainmaster.devcluster.state import ClusterError

STOP_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def prepare_start(settings: ClusterSettings) -> None:
    """Prepare the state directory.

    Raises:
        ClusterError: A cluster runs on it, it cannot be used, or the configuration of the manager cannot be read.
    """
    path = settings.manager_config
    # A missing file is found now: the manager would only say so in its log. It is one file, which is merged with ours.
    if path is not None and MANAGER in settings.parts and (path.is_dir() or not os.access(path, os.R_OK)):
        raise ClusterError(f"cannot read {path}; name the configuration file of the manager with --config")
    settings.state.prepare()
    if settings.state.holder() is not None:
        raise settings.state.already_running()
