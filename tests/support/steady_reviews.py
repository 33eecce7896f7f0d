"""A steady number of admission reviews a second."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from support.admission import Requests
from support.training import trainjob

from trainmaster.controller.resources import TRAINJOBS

RATE, AT_ONCE = 50, 5
"""Reviews a second, and how many of them come together: they need connections, to several replicas."""


class SteadyReviews:
    """TrainJobs that the API server has reviewed and does not keep."""

    def __init__(self, requests: Requests, *, runtime: str = "processes") -> None:
        self._requests = requests
        self._runtime = runtime
        self.sent = 0
        self.refused: list[tuple[int, str]] = []

    async def send(self) -> None:
        """Send until cancelled, then wait for the answers."""
        async with asyncio.TaskGroup() as under_way:
            with suppress(asyncio.CancelledError):
                while True:
                    for _ in range(AT_ONCE):
                        under_way.create_task(self._create(self.sent))
                        self.sent += 1
                    await asyncio.sleep(AT_ONCE / RATE)

    async def _create(self, number: int) -> None:
        body = trainjob(f"job-{number}", on=self._runtime)
        answer = await self._requests.send("POST", TRAINJOBS.path("default"), body, dry=True)
        if answer.code != 201:
            self.refused.append((answer.code, answer.message))
