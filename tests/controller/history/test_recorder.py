"""The recorder and the writer: which states are recorded, by whom, and what a store costs that cannot be used."""

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, cast

import pytest
from structlog.testing import capture_logs
from support.commands import eventually, wait_until
from support.history import NOON, at, condition, record, running, trainjob
from support.series import value_of
from support.virtualtime import settle

from trainmaster.controller.history import writer as writer_module
from trainmaster.controller.history.query import Query
from trainmaster.controller.history.record import JobRecord
from trainmaster.controller.history.recorder import HistoryRecorder
from trainmaster.controller.history.sqlite import sqlite_store
from trainmaster.controller.history.store import HistoryStore, HistoryUnavailable
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


BOUNDS = Bounds(records=1000, age=timedelta(days=36_500))
LOST = "trainmaster_history_records_lost_total"


@contextmanager
def writing(store: HistoryStore, *, bounds: Bounds = BOUNDS, **options: Any) -> Iterator[HistoryWriter]:
    writer = HistoryWriter(store, bounds, clock=SystemClock(), **options)
    try:
        yield writer
    finally:
        if writer._thread.is_alive():
            writer.close(10)


class Failing(HistoryStore):
    """A store that cannot be used until it is mended."""

    def __init__(self, file: Path) -> None:
        super().__init__(sqlite_store(file)._dialect)
        self.error: Exception | None = HistoryUnavailable("the disk is away; bring it back")
        self.tries = 0

    def write(self, records: Any, *, now: datetime) -> int:
        self.tries += 1
        if self.error is not None:
            raise self.error
        return super().write(records, now=now)

    def prune(self, **options: Any) -> int:
        if self.error is not None:
            raise self.error
        return super().prune(**options)


def names(file: Path) -> list[str]:
    records, _ = sqlite_store(file).find(Query(limit=500))
    return sorted(each.name for each in records)


def test_what_waits_is_written_and_at_the_end_all_of_it(tmp_path: Path) -> None:
    with writing(sqlite_store(tmp_path / "h")) as writer:
        for number in range(500):
            assert writer.put(record(number))
        writer.start()
        wait_until(lambda: len(names(tmp_path / "h")) == 500)
        writer.put(record(500))
    assert "job-500" in names(tmp_path / "h")
    assert value_of("trainmaster_history_queue_depth") == 0


def test_a_full_queue_refuses_at_once_and_counts(tmp_path: Path) -> None:
    before = value_of(LOST) or 0
    with writing(sqlite_store(tmp_path / "h"), capacity=2) as writer:
        assert [writer.put(record(number)) for number in range(4)] == [True, True, False, False]
        assert writer.put(record(0, restarts=3)), "of a job that waits already there is one record, the latest"
        assert (value_of(LOST) or 0) - before == 2
        assert writer.wants_resync.is_set()
        assert not writer.has_room
        writer.start()
        wait_until(lambda: writer.has_room)
    assert names(tmp_path / "h") == ["job-0", "job-1"]


def test_a_record_never_waits_for_the_store(tmp_path: Path) -> None:
    held, go = threading.Event(), threading.Event()

    class Slow(HistoryStore):
        def write(self, records: Any, *, now: datetime) -> int:
            held.set()
            assert go.wait(20)
            return super().write(records, now=now)

    with writing(Slow(sqlite_store(tmp_path / "h")._dialect)) as writer:
        writer.start()
        writer.put(running(1))
        assert held.wait(20)
        writer.put(record(1))
        writer.put(record(2))
        go.set()
    assert names(tmp_path / "h") == ["job-1", "job-2"]


def test_an_unusable_store_is_tried_again_and_told_of_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer_module, "_SHORTEST_PAUSE", 0.01)
    store = Failing(tmp_path / "h")
    with capture_logs() as logged, writing(store) as writer:
        writer.put(record(1))
        writer.start()
        wait_until(lambda: store.tries > 2)
        assert writer.problem == "the disk is away; bring it back"
        assert value_of("trainmaster_history_store_failing") == 1
        writer.put(record(2))
        store.error = None
        wait_until(lambda: writer.problem is None)
        wait_until(lambda: value_of("trainmaster_history_store_failing") == 0)
    assert names(tmp_path / "h") == ["job-1", "job-2"]
    told = [each["event"] for each in logged]
    assert told == ["the history is not recorded", "the history is recorded again"]
    # A store that cannot be used is told of before there is anything to write.
    with writing(sqlite_store(tmp_path / "nowhere" / "h")) as writer:
        writer.start()
        wait_until(lambda: writer.problem is not None)
        assert "nowhere" in (writer.problem or "")


def test_a_defect_ends_neither_the_thread_nor_the_history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer_module, "_SHORTEST_PAUSE", 0.01)
    store = Failing(tmp_path / "h")
    store.error = ZeroDivisionError("a defect")
    with capture_logs(), writing(store) as writer:
        writer.put(record(1))
        writer.start()
        wait_until(lambda: writer.problem == "ZeroDivisionError: a defect")
        store.error = None
        writer.put(record(2))
        wait_until(lambda: "job-2" in names(tmp_path / "h"))
        wait_until(lambda: writer.problem is None)


def test_a_record_that_cannot_be_written_costs_itself_and_no_other(tmp_path: Path) -> None:
    before = value_of(LOST) or 0
    with capture_logs() as logged, writing(sqlite_store(tmp_path / "h")) as writer:
        for number in range(5):
            writer.put(record(number, nodes=2**70 if number == 2 else 1))
        writer.start()
        wait_until(lambda: len(names(tmp_path / "h")) == 4)
        writer.put(record(9))
        wait_until(lambda: "job-9" in names(tmp_path / "h"))
    assert "the history is not recorded" not in [each["event"] for each in logged], "nobody waits"
    assert (value_of(LOST) or 0) - before == 1
    told = [each["job"] for each in logged if each["event"] == "a record of a job cannot be written"]
    assert told == ["team-a/job-2"]


def test_a_record_that_has_no_form_is_counted_once_however_long_the_store_is_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer_module, "_SHORTEST_PAUSE", 0.01)
    before, store = value_of(LOST) or 0, Failing(tmp_path / "h")
    with capture_logs(), writing(store) as writer:
        writer.put(record(1, nodes=2**70))
        writer.put(record(2))
        writer.start()
        wait_until(lambda: store.tries > 2)
        store.error = None
        wait_until(lambda: names(tmp_path / "h") == ["job-2"])
    assert (value_of(LOST) or 0) - before == 1


def test_a_record_that_does_not_go_with_what_is_stored_of_its_job_costs_itself_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer_module, "_SHORTEST_PAUSE", 0.01)
    sqlite_store(tmp_path / "h").write([record(1)], now=NOON)
    with closing(sqlite3.connect(tmp_path / "h")) as database, database:
        odd = """replace(record, '"restarts":0', '"restarts":null')"""
        database.execute(f"UPDATE trainmaster_history SET record = {odd}")
    before = value_of(LOST) or 0
    with capture_logs() as logged, writing(sqlite_store(tmp_path / "h")) as writer:
        for number in range(4):
            writer.put(record(number, restarts=2))
        writer.start()
        wait_until(lambda: {"job-0", "job-2", "job-3"} <= set(names(tmp_path / "h")))
        wait_until(lambda: writer.problem is None)
    assert (value_of(LOST) or 0) - before == 1
    told = [each["job"] for each in logged if each["event"] == "a record of a job cannot be written"]
    assert told == ["team-a/job-1"]


def test_what_is_not_written_at_the_end_is_told_of(tmp_path: Path) -> None:
    with capture_logs() as logged, writing(Failing(tmp_path / "h")) as writer:
        writer.put(record(1))
        writer.start()
        wait_until(lambda: writer.problem is not None)
    assert logged[-1] == {"event": "some of the history was not written any more", "log_level": "warning", "records": 1}


def test_gone_jobs_are_ended_after_what_waits_was_written(tmp_path: Path) -> None:
    file = tmp_path / "h"
    with writing(sqlite_store(file)) as writer:
        for number in range(450):
            writer.put(running(number))
        writer.start()
        wait_until(lambda: value_of("trainmaster_history_queue_depth") == 0)

        def all_gone() -> bool:
            # What was written in the second of the question is left alone.
            writer.end_missing({"uid-0007"}, kind="TrainJob", namespaces=())
            return len(names(file)) == 449

        wait_until(all_gone)
    assert "job-7" not in names(file)
