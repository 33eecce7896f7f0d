"""The clients of the manager: under which names they ask, and how they are made."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.runtime.version import __version__

USER_AGENT: Final = f"trainmaster/{__version__}"
WEBHOOKS_SUFFIX: Final = "/webhooks"
METRICS_SUFFIX: Final = "/metrics"


class NewClient(Protocol):
    """Makes clients of the cluster."""

    def __call__(self, *, user_agent: str, guard: Callable[[], None] | None, tries: int) -> KubeClient:
        """Make a client that calls `guard` before each write and sends a request up to `tries` times."""
