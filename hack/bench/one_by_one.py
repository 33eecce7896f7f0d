"""TrainJobs one by one, each waiting for the one before: what a manager does for them is the same on every machine.

With many at once, what is read and reconciled together depends on who was faster.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Final, Self

from bench import samples
from bench.api import MERGE_PATCH, Api, BenchmarkFailed
from bench.samples import NAMESPACE, job_name
from trainmaster.controller.resources import JOBSETS, TRAINJOBS
from trainmaster.runtime.jsontree import JsonObject

_PATIENCE: Final = 60.0


class OneByOne:
    """Creates TrainJobs and lets them live; an async context manager."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._stack = AsyncExitStack()
        self._wake = asyncio.Event()
        self._seen: dict[tuple[str, str], JsonObject] = {}

    async def __aenter__(self) -> Self:
        for resource in (JOBSETS, TRAINJOBS):
            watching = self._api.watching(resource.path(NAMESPACE), self._see)
            await self._stack.enter_async_context(watching)
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self._stack.aclose()

    async def create(self, number: int) -> None:
        """Create a TrainJob and wait for its JobSet."""
        await self._api.send("POST", TRAINJOBS.path(NAMESPACE), samples.trainjob(number))
        await self._until("JobSet", number, lambda _: True)

    async def live(self, number: int) -> None:
        """Report that it runs, wait until its status says so; report that it has completed, and wait for that."""
        await self._report(number, samples.running())
        await self._until("TrainJob", number, _runs)
        await self._report(number, samples.completed())
        await self._until("TrainJob", number, _is_complete)

    async def _report(self, number: int, patch: JsonObject) -> None:
        path = f"{JOBSETS.path(NAMESPACE)}/{job_name(number)}/status"
        await self._api.send("PATCH", path, patch, content_type=MERGE_PATCH)

    def _see(self, _: str, obj: JsonObject) -> None:
        self._seen[obj["kind"], obj["metadata"]["name"]] = obj
        self._wake.set()

    async def _until(self, kind: str, number: int, holds: Callable[[JsonObject], bool]) -> None:
        key = (kind, job_name(number))
        try:
            async with asyncio.timeout(_PATIENCE):
                while (obj := self._seen.get(key)) is None or not holds(obj):
                    self._wake.clear()
                    await self._wake.wait()
        except TimeoutError:
            raise BenchmarkFailed(f"the {kind} {key[1]} does not come as far as it should") from None


def _runs(job: JsonObject) -> bool:
    return any(each.get("active") for each in job.get("status", {}).get("jobsStatus", ()))


def _is_complete(job: JsonObject) -> bool:
    conditions = job.get("status", {}).get("conditions", ())
    return any(each["type"] == "Complete" and each["status"] == "True" for each in conditions)
