"""A steady number of reviews a second."""

import asyncio
from contextlib import suppress

from support.admission import Requests
from support.training import trainjob

from trainmaster.controller.resources import TRAINJOBS

RATE, AT_ONCE, MOST = 50, 5, 20
"""Reviews a second; how many of them come together, since they need connections to several replicas; and how many may
be under way: on a slow machine there are fewer a second, in place of more and more at once."""


class SteadyReviews:
    """TrainJobs that the API server has reviewed and does not keep."""

    def __init__(self, requests: Requests, *, runtime: str = "processes") -> None:
        self._requests = requests
        self._runtime = runtime
        self.sent = 0
        self.refused: list[tuple[int, str]] = []

    async def send(self) -> None:
        """Send until cancelled, then wait for the answers."""
        room = asyncio.Semaphore(MOST)
        async with asyncio.TaskGroup() as under_way:
            with suppress(asyncio.CancelledError):
                while True:
                    for _ in range(AT_ONCE):
                        await room.acquire()
                        under_way.create_task(self._create(self.sent)).add_done_callback(lambda _: room.release())
                        self.sent += 1
                    await asyncio.sleep(AT_ONCE / RATE)

    async def _create(self, number: int) -> None:
        body = trainjob(f"job-{number}", on=self._runtime)
        answer = await self._requests.send("POST", TRAINJOBS.path("default"), body, dry=True)
        if answer.code != 201:
            self.refused.append((answer.code, answer.message))
