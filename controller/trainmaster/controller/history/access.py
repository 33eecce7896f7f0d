"""Whose jobs somebody gets to see: those of the namespaces in which the API server lets them list TrainJobs.

Guarantees:
- Nothing is shown unasked: whoever may list TrainJobs in all namespaces is asked for once, everybody else for each
  namespace, and answers are remembered as long as those about metrics are.
- Where metrics are for everybody who reaches them, on the loopback interface, so is this.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Final

from aiohttp import web

from trainmaster.controller.resources import TRAINJOBS
from trainmaster.controller.server.filters import USER, DelegatingAuth

MAX_NAMESPACES: Final = 300
"""About so many it is asked for one request."""


class TooManyNamespaces(Exception):
    """Somebody who may not see all namespaces has to name one."""


class NamespaceAccess:
    """Decides about namespaces.

    Args:
        auth: Who asks the API server; None: nobody has to be asked.
    """

    def __init__(self, auth: DelegatingAuth | None) -> None:
        self._auth = auth

    async def sees_all(self, request: web.Request) -> bool:
        """Tell whether whoever asks may see all namespaces.

        Raises:
            KubeError: The API server could not be asked.
            TimeoutError: It does not answer.
        """
        return await self.sees(request, "")

    async def sees(self, request: web.Request, namespace: str) -> bool:
        """Tell whether whoever asks may see a namespace; errors as of `sees_all`."""
        return self._auth is None or await self._auth.may_list(request[USER], TRAINJOBS, namespace)

    async def visible(self, request: web.Request, namespaces: Collection[str]) -> list[str]:
        """Return those namespaces that whoever asks may see; errors as of `sees_all`.

        Raises:
            TooManyNamespaces: There are more than can be asked about.
        """
        if len(namespaces) > MAX_NAMESPACES:
            raise TooManyNamespaces
        answers = await asyncio.gather(*(self.sees(request, each) for each in namespaces))
        return [namespace for namespace, sees in zip(namespaces, answers, strict=True) if sees]
