"""The readiness probe of a manager: it is ready as soon as it says so itself, and serves its webhooks."""

from __future__ import annotations

from types import TracebackType
from typing import Final, Self

import aiohttp

from trainmaster.devcluster.manager.configuration import ManagerConfiguration
from trainmaster.devcluster.manager.webhooks import ManagerWebhooks

_TIMEOUT: Final = 5.0
_LONGEST_ANSWER: Final = 500


class ReadinessProbe:
    """Probes one run of a manager; an async context manager."""

    def __init__(self, configuration: ManagerConfiguration | None, webhooks: ManagerWebhooks) -> None:
        self._configuration = configuration
        self._webhooks = webhooks
        # The environment may name a proxy; the manager is on this machine.
        self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=_TIMEOUT), trust_env=False)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._session.close()

    async def missing(self) -> str | None:
        """Say what is missing; None if it is ready."""
        configuration = self._configuration
        if configuration is None or configuration.readiness is None:
            return "its configuration cannot be read"
        missing = await self._get(configuration.readiness)
        # At a port that the user chose, the manager of somebody else may answer; this certificate only ours has.
        if missing is None and configuration.registers_webhooks and not await self._webhooks.are_served():
            return "its webhooks are not served yet"
        return missing

    async def _get(self, url: str) -> str | None:
        try:
            async with self._session.get(url) as answer:
                if answer.status == 200:
                    return None
                return (await answer.text(errors="replace"))[:_LONGEST_ANSWER].strip()
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError):
            return "it does not answer yet"
