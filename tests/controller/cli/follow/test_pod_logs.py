"""Following logs: whatever breaks, and however often a container is restarted, each line is delivered once."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import cast

from trainmaster.controller.cli.follow.log_lines import LogLines
from trainmaster.controller.cli.follow.pod_logs import ContainerRun, PodLog, last_lines
from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.errors import (
    BadRequest,
    Forbidden,
    KubeError,
    NotFound,
    ServerError,
    StreamBroken,
)

RUNNING, ENDED = ContainerRun(0, is_last=False), ContainerRun(0, is_last=True)


class Script:
    """A client whose streams were written down before; an exception in a stream is raised."""

    def __init__(self, *streams: list[bytes | KubeError], at_first: bytes = b"") -> None:
        self.streams = list(streams)
        self.at_first = at_first
        self.asked: list[dict[str, str]] = []

    async def raw(self, *_: str, params: Mapping[str, str], accept: str) -> tuple[int, None, bytes]:
        assert (params["timestamps"], accept) == ("true", "*/*")
        return (200 if self.at_first else 404), None, self.at_first

    @asynccontextmanager
    async def stream(self, _path: str, params: Mapping[str, str]) -> AsyncIterator[AsyncIterator[bytes]]:
        self.asked.append(dict(params))
        parts = self.streams.pop(0)
        if parts and isinstance(parts[0], KubeError):
            raise parts[0]

        async def chunks() -> AsyncIterator[bytes]:
            for part in parts:
                if isinstance(part, Exception):
                    raise part
                yield part

        yield chunks()


class Pod:
    """A pod that says one thing after the other about its container."""

    def __init__(self, *runs: ContainerRun) -> None:
        self.runs = list(runs)

    def run(self) -> ContainerRun:
        return self.runs[0]

    async def changed(self) -> None:
        if len(self.runs) > 1:
            self.runs.pop(0)


def lines(*texts: str, second: int = 0) -> bytes:
    return "".join(f"2026-01-01T00:00:{second:02}.{text[0] * 9}Z {text[1:]}\n" for text in texts).encode()


def log_of(script: Script, delivered: list[str]) -> PodLog:
    client = cast("KubeClient", script)
    return PodLog(client, namespace="default", pod="p", container="node", lines=LogLines(delivered.extend))


async def follow(script: Script, pod: Pod) -> list[str]:
    delivered: list[str] = []
    await log_of(script, delivered).follow(pod.run, pod.changed)
    assert not script.streams
    return delivered


async def test_a_broken_stream_goes_on_where_it_stopped() -> None:
    """Lines of the last second come again, and of one moment there may be several: none is told twice."""
    script = Script(
        [lines("1one", "2two", "2three")[:-3], StreamBroken("gone")],
        [ServerError(status=503)],
        [lines("1one", "2two", "2three"), lines("2four", "3five"), StreamBroken("gone")],
        [lines("1one", "2two", "2three", "2four", "3five", "4six")],
    )
    assert await follow(script, Pod(RUNNING, RUNNING, ENDED)) == ["one", "two", "three", "four", "five", "six"]
    assert [each.get("sinceTime") for each in script.asked] == [None, *["2026-01-01T00:00:00Z"] * 3]


async def test_the_log_of_another_run_is_no_continuation() -> None:
    """While the connection was away, the container was restarted: the rest of the old log comes first, then the new."""
    restarted, ended = ContainerRun(1, is_last=False), ContainerRun(1, is_last=True)
    script = Script(
        [lines("1one", "2two"), StreamBroken("gone")],
        [lines("1one", "2two", "3three")],
        [lines("1one", "2four", second=9)],
        [lines("1one", "2four", second=9)],
    )
    assert await follow(script, Pod(RUNNING, restarted, ended)) == ["one", "two", "three", "one", "four"]
    assert [each.get("previous") for each in script.asked] == [None, "true", None, None]


async def test_what_is_there_already_is_read_before_a_stream_is_opened() -> None:
    # What is there already is read before a stream is opened. The pod may be deleted by then.
    script = Script([NotFound(status=404)], at_first=lines("1one", "2two"))
    assert await follow(script, Pod(RUNNING)) == ["one", "two"]
    script = Script([lines("1one", "2two", "3three")], at_first=lines("1one", "2two")[:-2])
    assert await follow(script, Pod(ENDED)) == ["one", "two", "three"]
    # A log that may not be read is no end without a word.
    log = log_of(Script([Forbidden(status=403, message="you may not")]), [])
    await log.follow(Pod(RUNNING).run, Pod(RUNNING).changed)
    assert "you may not" in str(log.refusal)


async def test_an_unfinished_line_is_delivered_once_at_the_end() -> None:
    script = Script([lines("1one", "2two")[:-1]], [lines("1one", "2two")[:-1]])
    assert await follow(script, Pod(RUNNING, ENDED)) == ["one", "two"]
    # An unfinished line is delivered when the pod is gone.
    script = Script([lines("1half a line")[:-1], StreamBroken("gone")], [NotFound(status=404)])
    assert await follow(script, Pod(RUNNING)) == ["half a line"]
    # A log that is not there yet is waited for.
    script = Script([BadRequest(status=400)], [lines("1one")])
    assert await follow(script, Pod(ContainerRun(None, is_last=False), RUNNING, ENDED)) == ["one"]


async def test_last_lines_are_those_of_one_run() -> None:
    """By the time it is asked for, the log before may be that of a later run."""
    log = lines("1old", second=1) + lines("1late", "2later", second=5) + lines("1new", second=8)
    found = await last_lines(
        cast("KubeClient", Script(at_first=log)),
        namespace="default",
        pod="p",
        container="node",
        previous=True,
        since="2026-01-01T00:00:04Z",
        until="2026-01-01T00:00:06Z",
    )
    assert found == ["late", "later"]
