"""Reads of managers what cannot be watched: their metrics, and of an embedded cluster that of its own one.

Who refuses its metrics is not asked again for a minute: that changes when somebody changes roles or a configuration.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from trainmaster.controller.cli.cluster import manager_status
from trainmaster.controller.cli.top.cluster.manager_metrics import read_pod, read_url
from trainmaster.controller.cli.top.cluster.managers import EMBEDDED, ManagerMetrics
from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.errors import KubeError
from trainmaster.runtime.jsontree import JsonObject

INTERVAL: Final = 5.0
REFUSED_FOR: Final = 60.0

_Key = tuple[str, str]
"""Namespace and name of a pod."""


class ManagerReader:
    """What managers tell of themselves.

    Args:
        client: Of the cluster.
        monotonic: Seconds of any clock.
    """

    def __init__(self, client: KubeClient, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._client = client
        self._monotonic = monotonic
        self._may_be_embedded = True
        self._refused_at: dict[_Key, float] = {}
        self.metrics: Mapping[_Key, ManagerMetrics | str] = {}
        """By pod, the metrics, or why they cannot be read."""

        self.embedded: JsonObject | None = None
        """What an embedded cluster tells of the manager that it runs itself; None of other clusters."""

    async def read(self, pods: Iterable[JsonObject]) -> None:
        """Ask the managers in some pods, and the cluster."""
        if self._may_be_embedded:
            try:
                self.embedded = await manager_status(self._client)
                self._may_be_embedded = self.embedded is not None
            except KubeError:
                pass  # informers tell of that
        running = {
            (pod["metadata"]["namespace"], pod["metadata"]["name"]): pod
            for pod in pods
            if (pod.get("status") or {}).get("phase") == "Running"
        }
        found = await asyncio.gather(*(self._read(key, pod) for key, pod in running.items()))
        self._refused_at = {key: at for key, at in self._refused_at.items() if key in running}
        metrics = dict(zip(running, found, strict=True))
        if self.embedded is not None and (url := self.embedded.get("metrics")):
            metrics["", EMBEDDED] = await read_url(url)
        self.metrics = metrics

    async def _read(self, key: _Key, pod: JsonObject) -> ManagerMetrics | str:
        now, before = self._monotonic(), self.metrics.get(key)
        if isinstance(before, str) and now - self._refused_at.get(key, now) < REFUSED_FOR:
            return before
        found = await read_pod(self._client, pod)
        if isinstance(found, str):
            self._refused_at[key] = now
        return found
