"""The recorder: which states of a job are recorded, by whom, and what is made good that was lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import pytest
from support.commands import eventually
from support.history import at, condition, trainjob
from support.virtualtime import settle

from trainmaster.controller.history.query import Query
from trainmaster.controller.history.record import JobRecord
from trainmaster.controller.history.recorder import HistoryRecorder
from trainmaster.controller.history.sqlite import sqlite_store
from trainmaster.controller.history.store import HistoryStore
from trainmaster.controller.history.writer import CAPACITY, Bounds, HistoryWriter
from trainmaster.controller.kube.cache.delta import Delta
from trainmaster.controller.kube.cache.informer import Informer
from trainmaster.controller.kube.cache.store import Store
from trainmaster.controller.kube.clock import Clock, SystemClock
from trainmaster.runtime.jsontree import UNREADABLE, JsonObject

COMPLETE = {"conditions": [condition("Complete", 5)]}
READY = {"jobsStatus": [{"name": "node", "active": 1, "ready": 1}]}


class Cache:
    """A cache whose events tests make."""

    def __init__(self) -> None:
        self.store = Store()
        self.has_synced = True
        self._handlers: list[Callable[[Delta], object]] = []
        self._version = 0

    def add_event_handler(self, handler: Callable[[Delta], object]) -> None:
        self._handlers.append(handler)

    def put(self, job: JsonObject, *, initial: bool = False) -> None:
        self._version += 1
        job["metadata"]["resourceVersion"] = str(self._version)
        self._tell(self.store.put(job), initial=initial)

    def delete(self, key: str) -> None:
        self._tell(self.store.delete(key))

    def _tell(self, delta: Delta, *, initial: bool = False) -> None:
        delta.initial = initial
        for handler in self._handlers:
            handler(delta)


class HastyClock(SystemClock):
    """Lets no time pass."""

    async def sleep(self, seconds: float) -> None:
        del seconds
        await asyncio.sleep(0)


class Recording:
    """A recorder of one cache, with its store."""

    def __init__(self, file: Path, *, capacity: int = CAPACITY, clock: Clock | None = None) -> None:
        self.cache = Cache()
        self._read: HistoryStore = sqlite_store(file)
        clock = clock or SystemClock()
        bounds = Bounds(records=1000, age=timedelta(days=36_500))
        self.writer = HistoryWriter(sqlite_store(file), bounds, clock=clock, capacity=capacity)
        self.recorder = HistoryRecorder(self.writer, workloads=lambda _: (), user_key="", clock=clock)
        self.recorder.watch("TrainJob", cast("Informer", self.cache))

    @asynccontextmanager
    async def leading(self) -> AsyncIterator[None]:
        """Lead while the block runs; when it begins, what is there is on its way."""
        task = asyncio.create_task(self.recorder.lead())
        await asyncio.sleep(0)
        await self.until(lambda: self.writer._work or self.writer._thread.is_alive())
        yield
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    def get(self, uid: str) -> JobRecord | None:
        return self._read.get(uid)

    def ended(self) -> dict[str, str]:
        return {each.name: each.result for each in self._read.find(Query())[0]}

    async def until(self, condition: Callable[[], Any]) -> None:
        await eventually(condition)


@pytest.fixture
async def recording(tmp_path: Path) -> AsyncIterator[Recording]:
    made = Recording(tmp_path / "history.sqlite")
    made.writer.start()
    yield made
    await asyncio.to_thread(made.writer.close, 10)


async def test_who_stands_by_writes_nothing_until_it_leads(recording: Recording) -> None:
    recording.cache.put(trainjob("one", uid="1", status=COMPLETE))
    recording.cache.put(trainjob("two", uid="2"))
    recording.cache.delete("team-a/two")
    assert recording.writer._records == {}
    async with recording.leading():
        await recording.until(lambda: recording.ended() == {"one": "Succeeded"})
    recording.cache.put(trainjob("three", uid="3", status=COMPLETE))
    assert recording.writer._records == {}, "it leads no more"


async def test_what_matters_is_recorded_and_nothing_else(recording: Recording, monkeypatch: pytest.MonkeyPatch) -> None:
    put: list[str] = []
    real = recording.writer.put

    def noted(record: JobRecord) -> bool:
        put.append(record.name)
        return real(record)

    monkeypatch.setattr(recording.writer, "put", noted)
    async with recording.leading():
        recording.cache.put(trainjob("one", uid="1"))
        recording.cache.put(trainjob("one", uid="1", labels={"any": "thing"}))
        assert put == ["one"]
        recording.cache.put(trainjob("one", uid="1", status=READY))
        assert put == ["one"] * 2
        for percentage in (0, 1, 2, 3, 4):
            reported = {"progressPercentage": percentage, "lastUpdatedTime": at(percentage)}
            recording.cache.put(trainjob("one", uid="1", status={**READY, "trainerStatus": reported}))
        assert put == ["one"] * 3, "a sample each five percent"
        for minute in range(5):
            numbers = {"metrics": [{"name": "loss", "value": "1"}], "lastUpdatedTime": at(20 + minute)}
            recording.cache.put(trainjob("one", uid="1", status={**READY, "trainerStatus": numbers}))
        assert put == ["one"] * 4, "and each ten minutes without a percentage"


async def test_when_a_job_began_is_told_by_who_saw_it(recording: Recording) -> None:
    recording.cache.put(trainjob("before", uid="1", status=READY), initial=True)
    recording.cache.put(trainjob("seen", uid="2"), initial=True)
    async with recording.leading():
        recording.cache.put(trainjob("seen", uid="2", status=READY))
        recording.cache.put(trainjob("seen", uid="2", status={**READY, **COMPLETE}))
        recording.cache.put(trainjob("before", uid="1", status={**READY, **COMPLETE}))
        await recording.until(lambda: len(recording.ended()) == 2)
        seen, before = recording.get("2"), recording.get("1")
        assert seen is not None
        assert before is not None
        assert (bool(seen.started), before.started) == (True, "")


async def test_a_job_that_was_replaced_in_one_change_has_ended(recording: Recording) -> None:
    async with recording.leading():
        recording.cache.put(trainjob("one", uid="old"))
        recording.cache.put(trainjob("one", uid="new"))
        await recording.until(lambda: (old := recording.get("old")) is not None and old.result == "Deleted")
        await recording.until(lambda: (new := recording.get("new")) is not None and not new.has_ended)


async def test_what_cannot_be_read_is_not_recorded(recording: Recording) -> None:
    odd = {**trainjob("odd", uid="1"), UNREADABLE: "too deep"}
    async with recording.leading():
        recording.cache.put(odd)
        recording.cache.delete("team-a/odd")
        recording.cache.put(trainjob("good", uid="2", status=COMPLETE))
        await recording.until(lambda: recording.ended() == {"good": "Succeeded"})


async def test_what_found_no_room_is_recorded_when_there_is_some(tmp_path: Path) -> None:
    recording = Recording(tmp_path / "history.sqlite", capacity=3, clock=HastyClock())
    async with recording.leading():
        for number in range(10):
            recording.cache.put(trainjob(f"job-{number}", uid=f"uid-{number}", status=COMPLETE))
        assert len(recording.writer._records) == 3
        recording.writer.start()
        await recording.until(lambda: len(recording.ended()) == 10)
    await asyncio.to_thread(recording.writer.close, 10)


async def test_a_cache_that_is_filled_later_is_recorded_then_and_ends_nothing_before(tmp_path: Path) -> None:
    recording = Recording(tmp_path / "history.sqlite", clock=HastyClock())
    recording.cache.has_synced = False
    recording.cache.put(trainjob("one", uid="1", status=COMPLETE), initial=True)
    task = asyncio.create_task(recording.recorder.lead())
    await settle()
    assert recording.writer._work == {}
    assert recording.writer._records == {}
    recording.cache.has_synced = True
    recording.writer.start()
    await recording.until(lambda: recording.ended() == {"one": "Succeeded"})
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await asyncio.to_thread(recording.writer.close, 10)
