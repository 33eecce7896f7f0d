"""Following logs: broken streams go on where they stopped, lines are cut at the right places."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from trainmaster.controller.cli.follow import pod_logs
from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.errors import NotFound, ServerError, StreamBroken


class Script:
    """A client whose streams were written down before; an exception in a stream is raised."""

    def __init__(self, *streams: list[bytes | Exception]) -> None:
        self.streams = list(streams)

    @asynccontextmanager
    async def stream(self, _path: str, _params: Mapping[str, str]) -> AsyncIterator[AsyncIterator[bytes]]:
        parts = self.streams.pop(0)
        if isinstance(parts[0], ServerError | NotFound):
            raise parts[0]

        async def chunks() -> AsyncIterator[bytes]:
            for part in parts:
                if isinstance(part, Exception):
                    raise part
                yield part

        yield chunks()


async def follow(script: Script, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setattr(pod_logs, "_PAUSE", 0)
    delivered: list[str] = []
    arguments: dict[str, Any] = {"namespace": "default", "pod": "p", "container": "node"}
    await pod_logs.follow_log(
        cast("KubeClient", script), **arguments, is_running=lambda: bool(script.streams), deliver=delivered.append
    )
    assert not script.streams
    return delivered


async def test_a_broken_stream_goes_on_where_it_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    """The log is opened from its beginning again, in other pieces, and no line is told twice."""
    script = Script(
        [b"one\ntw", StreamBroken("gone")],
        [ServerError(status=503)],
        [b"on", b"e\n", b"two\nthree\n", b"four"],
        [b"one\ntwo\nthree\nfour\n"],
    )
    assert await follow(script, monkeypatch) == ["one", "two", "three", "four"]


async def test_it_ends_when_the_pod_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    script = Script([b"half a li", StreamBroken("gone")], [NotFound(status=404)])
    assert await follow(script, monkeypatch) == ["half a li"]


async def test_lines_without_end_come_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    script = Script([b"x" * 70_000, b"y\n", b"\xff\r\n"])
    assert await follow(script, monkeypatch) == ["x" * 70_000, "y", "\N{REPLACEMENT CHARACTER}"]
