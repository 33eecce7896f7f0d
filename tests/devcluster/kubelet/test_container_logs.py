"""What the log of a container shows, with the options of `kubectl logs`."""

import asyncio
import errno
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from support.disk import full_disk

from trainmaster.devcluster.apiserver.errors import StatusError
from trainmaster.devcluster.apiserver.registry.builtin import builtin_registry
from trainmaster.devcluster.apiserver.registry.generic import Api
from trainmaster.devcluster.apiserver.storage import Store
from trainmaster.devcluster.kubelet.container_logs import PodLogs, tail
from trainmaster.devcluster.kubelet.directories import RootDirectory, drop_oldest_logs
from trainmaster.devcluster.kubelet.former_pods import FormerPods
from trainmaster.devcluster.kubelet.runtime.log_writer import LogFile
from trainmaster.runtime.jsontree import JsonObject

NOW = datetime(2026, 11, 20, 12, 0, 10, tzinfo=UTC)


class Logs:
    """A pod with one container `c` and hand-written log files."""

    def __init__(self, directory: Path) -> None:
        state = RootDirectory(directory)
        self.files = state.pod("uid")
        self.running: set[str] = set()
        former = FormerPods(Api(Store(), builtin_registry()), state)
        self.source = PodLogs(former, is_active=self.running.__contains__, clock=lambda: NOW)
        self.status: JsonObject = {"name": "c", "state": {"running": {}}}
        self.containers = [{"name": "c"}]

    def write(self, *seconds: int, attempt: int = 0, tag: str = "F") -> Path:
        path = self.files.log("c", attempt)
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a") as log:
            log.writelines(f"2026-11-20T12:00:{s:02}.000000000Z {tag} line {s}\n" for s in seconds)
        return path

    async def open(self, *, container: str = "c", **options: Any) -> Any:
        pod = {
            "metadata": {"name": "p", "namespace": "ns", "uid": "uid"},
            "spec": {"containers": self.containers, "initContainers": [{"name": "init"}]},
            "status": {"containerStatuses": [self.status]},
        }
        defaults: dict[str, Any] = dict.fromkeys(("run", "tail_lines", "since_seconds", "since_time", "limit_bytes"))
        defaults |= dict.fromkeys(("follow", "previous", "timestamps"), False)
        return await self.source.read(pod=pod, container=container, **{**defaults, **options})

    async def read(self, **options: Any) -> str:
        return b"".join([block async for block in await self.open(**options)]).decode()


def ended(attempt: int) -> JsonObject:
    """The part of a container's status that tells of the attempt before."""
    return {"lastState": {"terminated": {"exitCode": 1, "containerID": f"process://uid/c/{attempt}"}}}


@pytest.fixture
def logs(tmp_path: Path) -> Logs:
    return Logs(tmp_path)


async def test_the_options_of_kubectl_logs(logs: Logs) -> None:
    logs.write(1, 5, 9)
    assert await logs.read() == "line 1\nline 5\nline 9\n"
    stamp = "2026-11-20T12:00:0{}.000000000Z line {}\n"
    assert await logs.read(timestamps=True) == "".join(stamp.format(second, second) for second in (1, 5, 9))
    for count, expected in ((0, ""), (1, "line 9\n"), (2, "line 5\nline 9\n"), (9, await logs.read())):
        assert await logs.read(tail_lines=count) == expected
    assert await logs.read(since_seconds=5) == "line 5\nline 9\n"
    assert await logs.read(since_time=datetime(2026, 11, 20, 12, 0, 6, tzinfo=UTC)) == "line 9\n"
    assert await logs.read(since_seconds=3600, tail_lines=1) == "line 9\n"
    for size, expected in ((0, ""), (9, "line 1\nli"), (14, "line 1\nline 5\n")):
        assert await logs.read(limit_bytes=size) == expected


async def test_the_last_lines_of_a_log_of_many_blocks(logs: Logs) -> None:
    logs.write(*(number % 60 for number in range(20_000)))
    assert (await logs.read(tail_lines=10_000)).count("\n") == 10_000


async def test_what_the_supervisor_writes_is_what_comes_out(logs: Logs) -> None:
    log = LogFile(str(logs.write()))
    log.feed(b"one\ntw")
    log.feed(b"o\n\nlast")
    log.finish()
    assert await logs.read() == "one\ntwo\n\nlast"
    assert tail(logs.files.log("c", 0), lines=1) == b"last"


async def test_a_line_that_is_drawn_over_is_shown_as_it_is_drawn(logs: Logs) -> None:
    """Progress bars end with a newline when they are full: hours later."""
    log = LogFile(str(logs.write()))
    log.feed(b"begin")
    logs.running.add("uid/c/0")
    stream = await logs.open(follow=True)
    for state in (b"begin\r 10%", b"\r 20", b"%"):
        log.feed(state.removeprefix(b"begin"))
        assert await anext(stream) == state
    log.feed(b"\r100%\r\nnext")
    assert await anext(stream) == b"\r100%\r\n"
    log.feed(b" line\n")
    assert await anext(stream) == b"next line\n"
    logs.running.clear()
    assert [block async for block in stream] == []
    assert await logs.read() == "begin\r 10%\r 20%\r100%\r\nnext line\n"


async def test_a_line_in_parts_is_one_line(logs: Logs) -> None:
    """It has one time, and counts once where the last lines are wanted."""
    logs.write(1)
    logs.write(*range(2, 52), tag="P")
    logs.write(52, 53)
    bar = "".join(f"line {number}" for number in range(2, 53)) + "\n"
    assert await logs.read(tail_lines=1) == "line 53\n"
    assert await logs.read(tail_lines=2) == bar + "line 53\n"
    assert await logs.read(tail_lines=3) == f"line 1\n{bar}line 53\n"
    assert await logs.read(tail_lines=2, timestamps=True) == (
        f"2026-11-20T12:00:02.000000000Z {bar}2026-11-20T12:00:53.000000000Z line 53\n"
    )
    logs.write(54, 55, tag="P")
    assert await logs.read(tail_lines=1) == "line 54line 55"
    assert await logs.read(tail_lines=2) == "line 53\nline 54line 55"


async def test_a_line_whose_beginning_is_too_old_keeps_its_time(logs: Logs) -> None:
    """With the time of its end, a follower that reads the last second again would take it for another line of that."""
    logs.write(1, tag="P")
    logs.write(5, 5)
    told = await logs.read(timestamps=True, since_time=datetime(2026, 11, 20, 12, 0, 5, tzinfo=UTC))
    assert told == "2026-11-20T12:00:01.000000000Z line 5\n2026-11-20T12:00:05.000000000Z line 5\n"


async def test_following_ends_with_the_container_and_misses_nothing(logs: Logs) -> None:
    path = logs.write(1)
    logs.running.add("uid/c/0")
    stream = await logs.open(follow=True)
    assert await anext(stream) == b"line 1\n"
    with path.open("a") as log:
        log.write("2026-11-20T12:00:02.000000000Z F li")
    waiting = asyncio.ensure_future(anext(stream))
    done, _ = await asyncio.wait([waiting], timeout=0.25)
    assert not done, "half a line is not shown"
    with path.open("a") as log:
        log.write("ne 2\n")
    assert await waiting == b"line 2\n"
    logs.write(3)
    logs.running.clear()
    assert [block async for block in stream] == [b"line 3\n"]


async def test_the_newest_attempt_and_the_one_before(logs: Logs) -> None:
    """While one waits for its restart it is both; while the next is being started it stays the previous one."""
    logs.write(1)
    logs.status = {"name": "c", "state": {"waiting": {"reason": "CrashLoopBackOff"}}, **ended(0)}
    assert await logs.read() == await logs.read(previous=True) == "line 1\n"
    logs.write(attempt=1)
    logs.status = {"name": "c", "state": {"waiting": {"reason": "ContainerCreating"}}, "restartCount": 1, **ended(0)}
    assert await logs.read(previous=True) == "line 1\n"
    logs.write(2, attempt=1)
    logs.status = {"name": "c", "state": {"running": {}}, **ended(0)}
    assert await logs.read() == "line 2\n"
    assert await logs.read(previous=True) == "line 1\n"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, 'container "c" in pod "p" is waiting to start: CreateContainerConfigError'),
        ({"previous": True}, 'previous terminated container "c" in pod "p" not found'),
        ({"container": "init"}, 'container "init" in pod "p" is waiting to start: ContainerCreating'),
    ],
)
async def test_errors_before_the_first_byte(logs: Logs, options: dict[str, Any], message: str) -> None:
    logs.status = {"name": "c", "state": {"waiting": {"reason": "CreateContainerConfigError"}}}
    with pytest.raises(StatusError) as caught:
        await logs.open(**options)
    assert (caught.value.code, caught.value.message) == (400, message)


async def test_a_full_disk_loses_output_and_no_line_that_follows(logs: Logs) -> None:
    path = logs.write()
    log = LogFile(str(path))
    log.feed(b"first\n")
    with full_disk(room=path.stat().st_size + 20):
        log.feed(b"lost\n")
        log.feed(b"lost as well\n")
    log.feed(b"next\n")
    log.feed(b"last\n")
    log.finish()
    lines = (await logs.read()).splitlines()
    assert (lines[0], lines[-2:]) == ("first", ["next", "last"])
    assert len(path.read_bytes().splitlines()) == 4


def test_a_log_that_cannot_be_set_aside_goes_on_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that is closed by then has given its number to another one, into which output would go."""
    path = tmp_path / "0.log"
    log = LogFile(str(path), limit=2_000)
    fill(log, range(10))

    def refuse(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr(os, "open", refuse)
        fill(log, range(10, 60))
    other = tmp_path / "other"
    with other.open("wb"):
        fill(log, range(60, 70))
        log.finish()
    assert other.read_bytes() == b""
    assert b"line 000069" in path.read_bytes()


def fill(log: LogFile, numbers: range) -> None:
    for number in numbers:
        log.feed(b"line %06d\n" % number)


async def test_a_log_keeps_its_newest_part_within_its_limit(logs: Logs) -> None:
    path = logs.write()
    limit = 20_000
    log = LogFile(str(path), limit=limit)
    fill(log, range(5000))
    sizes = [file.stat().st_size for file in path.parent.glob("0.log*") if file.suffix != ".dropped"]
    assert len(sizes) == 2
    assert sum(sizes) <= limit
    lines = (await logs.read()).splitlines()
    dropped = len("line 000000\n") * (5000 - len(lines))
    assert logs.files.dropped_bytes() == {"c": {"0": dropped}}, "of what the program wrote"
    assert limit // 2 < len(lines) * 44 <= limit
    assert lines == [f"line {number:06}" for number in range(5000 - len(lines), 5000)]
    assert (await logs.read(tail_lines=400)).splitlines() == lines[-400:], "from both files"
    assert (await logs.read(tail_lines=3)).splitlines() == lines[-3:]
    assert tail(path, lines=300).splitlines() == [line.encode() for line in lines[-300:]]
    log.finish()


async def test_following_a_log_that_is_set_aside_misses_nothing(logs: Logs) -> None:
    path = logs.write()
    logs.running.add("uid/c/0")
    log = LogFile(str(path), limit=20_000)
    fill(log, range(10))
    stream = await logs.open(follow=True)
    seen = await anext(stream)
    for start in range(10, 1000, 90):  # less than half of the limit at a time
        fill(log, range(start, start + 90))
        while not seen.endswith(b"line %06d\n" % (start + 89)):
            seen += await anext(stream)
    logs.running.clear()
    seen += b"".join([block async for block in stream])
    assert seen.decode().splitlines() == [f"line {number:06}" for number in range(1000)]
    log.finish()


async def test_any_run_can_be_read_until_the_logs_take_too_much(logs: Logs) -> None:
    for attempt in range(4):
        path = logs.write(attempt, attempt=attempt)
        path.with_name(f"{attempt}.log.1").write_text("2026-11-20T12:00:00.000000000Z F before\n")
        os.utime(path, (attempt, attempt))
    logs.status |= ended(2)
    assert await logs.read(run=0) == "before\nline 0\n"
    drop_oldest_logs(path.parent, limit=sum(each.stat().st_size for each in path.parent.glob("[23].*")))
    assert sorted(each.name for each in path.parent.iterdir()) == ["2.log", "2.log.1", "3.log", "3.log.1"]
    assert await logs.read(previous=True) == "before\nline 2\n"
    with pytest.raises(StatusError, match='run 0 of container "c" in pod "p" has no log any more'):
        await logs.open(run=0)


async def test_the_previous_log_since_a_time(logs: Logs) -> None:
    logs.write(1, 5)
    logs.write(8, attempt=1)
    logs.status |= ended(0)
    since = datetime(2026, 11, 20, 12, 0, 5, tzinfo=UTC)
    assert await logs.read(previous=True, since_time=since) == "line 5\n"
    assert await logs.read(previous=True, since_time=since, timestamps=True, tail_lines=2) == (
        "2026-11-20T12:00:05.000000000Z line 5\n"
    )
