"""A load balancer before several managers, and a steady number of reviews a second."""

from __future__ import annotations

import asyncio
import itertools
from contextlib import suppress

import aiohttp
from support.admission import Requests
from support.training import trainjob

from trainmaster.controller.resources import TRAINJOBS

LAG = 1.0
"""Seconds after which the load balancer acts on what it has seen of a replica."""


class Replica:
    """Where the webhooks and the probes of a manager are."""

    def __init__(self, *, webhooks: int, health: int) -> None:
        self.webhooks = webhooks
        self._readiness = f"http://127.0.0.1:{health}/readyz"

    async def is_ready(self) -> bool:
        """Ask its probe."""
        with suppress(aiohttp.ClientError):
            async with aiohttp.request("GET", self._readiness) as answer:
                return answer.status == 200
        return False


class LoadBalancer:
    """Sends each new connection to the next replica in rotation; those that are open stay where they are."""

    def __init__(self) -> None:
        self._rotation: list[Replica] = []
        self._turns = itertools.count()
        self.served: dict[Replica, int] = {}
        """Connections, by replica."""

    async def follow(self, replica: Replica) -> None:
        """Take a replica into the rotation and out of it again, each time a while after its readiness has changed."""
        while True:
            await asyncio.sleep(0.1)
            ready = await replica.is_ready()
            if ready != (replica in self._rotation):
                await asyncio.sleep(LAG)
                (self._rotation.append if ready else self._rotation.remove)(replica)

    def rotates(self, *replicas: Replica) -> bool:
        """Tell whether exactly these are in rotation."""
        return set(self._rotation) == set(replicas)

    async def forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Forward one connection."""
        try:
            replica = self._rotation[next(self._turns) % len(self._rotation)]
            self.served[replica] = self.served.get(replica, 0) + 1
            theirs = await asyncio.open_connection("127.0.0.1", replica.webhooks)
            async with asyncio.TaskGroup() as both:
                both.create_task(_pipe(reader, theirs[1]))
                both.create_task(_pipe(theirs[0], writer))
        except* (OSError, ZeroDivisionError):
            writer.close()  # the API server sees a connection that breaks


async def _pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    finally:
        writer.close()


RATE, AT_ONCE, MOST = 50, 5, 20
"""Reviews a second; how many of them come together, since they need connections to several replicas; and how many may
be under way: on a slow machine there are fewer a second, in place of more and more at once."""

OVERLOADED = 429
"""Clients repeat what is answered with this by themselves."""


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
