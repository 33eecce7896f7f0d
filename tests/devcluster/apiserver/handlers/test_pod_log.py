"""The log endpoint: which container, which options, how it streams."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from trainmaster.devcluster.apiserver.errors import bad_request
from trainmaster.devcluster.apiserver.resources import PODS
from trainmaster.devcluster.testing.envtest import Environment, start_environment


class _Source:
    """Remembers what it was asked for and answers with two lines."""

    def __init__(self) -> None:
        self.asked: dict[str, Any] = {}

    async def read(self, **options: Any) -> AsyncIterator[bytes]:
        self.asked = options
        if options["previous"]:
            raise bad_request("previous terminated container not found")
        return self._lines()

    async def _lines(self) -> AsyncIterator[bytes]:
        yield b"one\n"
        yield b"two\n"


@pytest.fixture
def source() -> _Source:
    return _Source()


@pytest.fixture
async def server(tmp_path: Path, source: _Source) -> AsyncIterator[Environment]:
    async with start_environment(tmp_path, log_source=source) as served:
        for name, containers in (("one", ["c"]), ("two", ["a", "b"])):
            spec = {"nodeName": "n", "containers": [{"name": each, "image": "i"} for each in containers]}
            await served.api.create(PODS, {"metadata": {"name": name}, "spec": spec}, namespace="default")
        yield served


async def _log(server: Environment, pod: str, **query: str) -> tuple[int, str]:
    path = f"/api/v1/namespaces/default/pods/{pod}/log"
    async with server.session() as session, session.get(path, params=query) as response:
        return response.status, await response.text()


async def test_the_log_is_plain_text(server: Environment, source: _Source) -> None:
    assert await _log(server, "one") == (200, "one\ntwo\n")
    assert (source.asked["container"], source.asked["follow"]) == ("c", False)


async def test_options_reach_the_source(server: Environment, source: _Source) -> None:
    """The Python SDK writes its booleans with a capital letter."""
    query = {
        "container": "b",
        "follow": "True",
        "tailLines": "5",
        "sinceTime": "2026-01-01T00:00:00Z",
        "limitBytes": "9",
    }
    assert (await _log(server, "two", **query))[0] == 200
    asked = source.asked
    assert (asked["container"], asked["follow"], asked["tail_lines"], asked["limit_bytes"]) == ("b", True, 5, 9)
    assert asked["since_time"].isoformat() == "2026-01-01T00:00:00+00:00"


@pytest.mark.parametrize(
    ("pod", "query", "code", "text"),
    [
        ("one", {"sinceTime": "yesterday"}, 400, "sinceTime"),
        ("one", {"sinceTime": "2026-01-01T00:00:00"}, 400, "time zone"),
        ("one", {"previous": "true"}, 400, "previous terminated container not found"),
    ],
)
async def test_refusals(server: Environment, pod: str, query: dict[str, str], code: int, text: str) -> None:
    status, body = await _log(server, pod, **query)
    assert status == code
    assert text in body


async def test_without_a_kubelet_there_are_no_logs(devcluster_server: Environment) -> None:
    spec = {"nodeName": "n", "containers": [{"name": "c", "image": "i"}]}
    await devcluster_server.api.create(PODS, {"metadata": {"name": "p"}, "spec": spec}, namespace="default")
    assert (await _log(devcluster_server, "p"))[0] == 501
