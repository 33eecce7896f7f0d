"""The feature as the manager and the command line see it: options of the plugin, and a part that runs.

Guarantees:
- trainer S6: when the authority changes, all TrainJobs are looked at again, those that run included.
- The server has a client of its own, with a rate limit of its own: reports never delay reconciles. It asks no guard,
  since every replica takes reports.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Final

from trainmaster.controller.configuration import Configuration, Health
from trainmaster.controller.kube.auth.incluster import SERVICE_ACCOUNT
from trainmaster.controller.kube.cache.store import Store
from trainmaster.controller.kube.clock import Clock, SystemClock
from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.config import RestConfig
from trainmaster.controller.kube.rest.ratelimit import RateLimiter
from trainmaster.controller.server.certificates import Certificates
from trainmaster.controller.server.tls import server_context
from trainmaster.controller.server.tls_server import LOOK_EVERY
from trainmaster.controller.statusserver.authority import Authority
from trainmaster.controller.statusserver.handler import Reports
from trainmaster.controller.statusserver.server import StatusServer

PLUGIN: Final = "trainjobstatus"
"""The entry point of the other half of the feature, which tells pods about the server."""

DEFAULT_NAMESPACE: Final = "kubeflow-system"

USER_AGENT_SUFFIX: Final = "/trainer-status"


class Progress:
    """The status server and what belongs to it.

    Args:
        configuration: The configuration file.
        clock: The time.
    """

    def __init__(self, configuration: Configuration, *, clock: Clock | None = None) -> None:
        self._settings = configuration.status_server
        self._service = configuration.cert_management.webhook_service_name
        self._clock = clock or SystemClock()
        directory = Path(configuration.webhook.cert_dir)
        tls = configuration.tls
        self._authority = Authority(directory)
        self._authority.refresh()
        self._server = StatusServer(
            self._settings.port, Certificates(directory, lambda: server_context(tls)), clock=self._clock
        )

    def plugin_options(self, given: Mapping[str, Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
        """Return the options of all plugins, with those of ours added to what the configuration file gives it."""
        url = f"https://{self._service}.{operator_namespace()}.svc:{self._settings.port}"
        return {**given, PLUGIN: {"server": url, "authority": self._authority.current, **given.get(PLUGIN, {})}}

    def liveness(self) -> str | None:
        """Say why the process should be started again."""
        return self._server.ailment()

    def readiness(self) -> str | None:
        """Say why reports cannot be taken."""
        return self._server.objection()

    def checks(self, health: Health) -> Mapping[str, Callable[[], str | None]]:
        """Return what probes may ask about on its own, by path, under the names of the original."""
        return {
            f"{health.liveness_endpoint_name}/status-server-healthz": self.liveness,
            f"{health.readiness_endpoint_name}/status-server-readyz": self.readiness,
        }

    async def run(
        self,
        access: RestConfig,
        trainjobs: Store,
        *,
        user_agent: str,
        wait_filled: Callable[[], Awaitable[object]],
        wake_all: Callable[[], object],
    ) -> None:
        """Serve until cancelled.

        Args:
            access: The cluster.
            trainjobs: The cache of TrainJobs.
            user_agent: The name of the manager.
            wait_filled: Waits until the caches are filled: until then nobody's TrainJob is known.
            wake_all: Has all TrainJobs looked at again.

        Raises:
            AddressInUse: The address cannot be bound.
        """
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._distribute(wake_all))
            await wait_filled()
            async with self._connect(access, user_agent) as client:
                await self._server.run(Reports(client, trainjobs, clock=self._clock))

    async def _distribute(self, wake_all: Callable[[], object]) -> None:
        while True:
            await self._clock.sleep(LOOK_EVERY)
            if self._authority.refresh():
                wake_all()

    def _connect(self, access: RestConfig, user_agent: str) -> KubeClient:
        limiter = None
        if self._settings.qps and self._settings.burst:
            limiter = RateLimiter(qps=self._settings.qps, burst=self._settings.burst, clock=self._clock)
        return KubeClient(access, user_agent=f"{user_agent}{USER_AGENT_SUFFIX}", limiter=limiter, clock=self._clock)


def operator_namespace() -> str:
    """Return the namespace of the manager's own Service: that of its pod, or the original's outside of a cluster."""
    mounted = SERVICE_ACCOUNT / "namespace"
    own = os.environ.get("POD_NAMESPACE") or (mounted.read_text(encoding="utf-8").strip() if mounted.is_file() else "")
    return own or DEFAULT_NAMESPACE
