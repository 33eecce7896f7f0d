"""Subresources of pods over HTTPS: the log endpoint, and eviction."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from support.apiserver import send
from support.devcluster.envtest import Environment, start_environment

from trainmaster.devcluster.apiserver.errors import bad_request
from trainmaster.devcluster.apiserver.resources import PODS


class _Source:
    """Remembers what it was asked for and answers with two lines."""

    def __init__(self) -> None:
        self.asked: dict[str, Any] = {}

    def find_deleted(self, namespace: str, name: str, uid: str) -> None:
        """It keeps none."""

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


PATH = "/api/v1/namespaces/default/pods/p/eviction"
EVICTION = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p", "namespace": "default"}}


@pytest.fixture
async def evicting_server(devcluster_server: Environment) -> Environment:
    spec = {"nodeName": "n", "containers": [{"name": "c", "image": "i"}]}
    body = {"metadata": {"name": "p", "labels": {"app": "web"}}, "spec": spec}
    created = await devcluster_server.api.create(PODS, body, namespace="default")
    running = {**created, "status": {"phase": "Running"}}
    await devcluster_server.api.update(PODS, running, subresource="status")
    return devcluster_server


def pod(evicting_server: Environment) -> Any:
    return evicting_server.api.get(PODS, "default", "p")


async def test_an_evicted_pod_says_why_it_is_deleted(evicting_server: Environment) -> None:
    code, answer, _ = await send(
        evicting_server, "POST", PATH, {**EVICTION, "deleteOptions": {"gracePeriodSeconds": 7}}
    )
    assert (code, answer["kind"], answer["status"]) == (201, "Status", "Success")
    condition = next(
        each for each in pod(evicting_server)["status"]["conditions"] if each["type"] == "DisruptionTarget"
    )
    assert (condition["status"], condition["reason"]) == ("True", "EvictionByEvictionAPI")
    assert condition["message"] == "Eviction API: evicting"
    assert pod(evicting_server)["metadata"]["deletionGracePeriodSeconds"] == 7


async def test_a_dry_run_changes_nothing(evicting_server: Environment) -> None:
    code, _, _ = await send(evicting_server, "POST", PATH, {**EVICTION, "deleteOptions": {"dryRun": ["All"]}})
    assert code == 201
    assert "deletionTimestamp" not in pod(evicting_server)["metadata"]


@pytest.mark.parametrize(
    ("path", "body", "code"),
    [
        (PATH, {**EVICTION, "metadata": {"name": "other"}}, 400),
        (PATH, {"kind": "Pod"}, 400),
        (PATH, {**EVICTION, "deleteOptions": "now"}, 400),
        (PATH, {**EVICTION, "deleteOptions": {"preconditions": {"uid": "another"}}}, 409),
        (PATH.replace("/p/", "/missing/"), {"kind": "Eviction"}, 404),
    ],
)
async def test_wrong_evictions(evicting_server: Environment, path: str, body: Any, code: int) -> None:
    assert (await send(evicting_server, "POST", path, body))[0] == code
    assert "deletionTimestamp" not in pod(evicting_server)["metadata"]
