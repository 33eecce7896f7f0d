"""The audit log, the rights that requests demand, the last form of responses, and defects of the server."""

import asyncio
import logging
import os
import stat
import uuid
from collections.abc import AsyncIterator
from datetime import datetime
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request
from aiohttp.typedefs import Handler
from support.apiserver import AS_ME, call, configmap
from support.commands import eventually, trainmaster
from support.devcluster.envtest import Environment, start_environment
from support.devcluster.faults import Reset
from support.disk import full_disk

from trainmaster.devcluster.apiserver.filters.audit import AuditLog
from trainmaster.devcluster.apiserver.filters.authorization import VARIABLE
from trainmaster.devcluster.apiserver.filters.serialization import with_serialization
from trainmaster.devcluster.apiserver.http.responsewriters import json_response
from trainmaster.devcluster.apiserver.resources import PODS
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.yamltext import load_yaml

_CONFIGMAPS = "/api/v1/namespaces/default/configmaps"
_CONFIGMAP: dict[str, Any] = {"metadata": {"name": "a"}}
_LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "audit.log"


@pytest.fixture
async def server(tmp_path: Path, path: Path) -> AsyncIterator[Environment]:
    audit = AuditLog(path)
    async with start_environment(tmp_path, audit=audit) as served:
        yield served
    audit.close()


def _lines(path: Path) -> list[dict[str, Any]]:
    return [orjson.loads(line) for line in path.read_bytes().splitlines()]


async def _call(server: Environment, method: str, target: str, **options: Any) -> int:
    headers = {"Authorization": f"Bearer {server.token}", "User-Agent": "tester/1.0"} | options.pop("headers", {})
    async with server.session(headers=headers) as session, session.request(method, target, **options) as response:
        await response.read()
        return response.status


async def test_a_request_has_its_line_as_soon_as_it_is_answered(server: Environment, path: Path) -> None:
    assert await _call(server, "PUT", f"{_LEASES}/mine?fieldManager=x", json={"metadata": {"name": "mine"}}) == 201
    (event,) = _lines(path)
    uuid.UUID(event.pop("auditID"))
    received, answered = (
        datetime.strptime(event.pop(name), "%Y-%m-%dT%H:%M:%S.%f%z")
        for name in ("requestReceivedTimestamp", "stageTimestamp")
    )
    assert received <= answered
    assert event == {
        "kind": "Event",
        "apiVersion": "audit.k8s.io/v1",
        "level": "Metadata",
        "stage": "ResponseComplete",
        "requestURI": f"{_LEASES}/mine?fieldManager=x",
        "verb": "update",
        "user": {"username": "trainmaster-admin", "groups": ["system:masters", "system:authenticated"]},
        "sourceIPs": ["127.0.0.1"],
        "userAgent": "tester/1.0",
        "objectRef": {
            "resource": "leases",
            "namespace": "default",
            "name": "mine",
            "apiGroup": "coordination.k8s.io",
            "apiVersion": "v1",
        },
        "responseStatus": {"metadata": {}, "code": 201},
    }


async def test_verbs_are_those_of_rules_and_a_creation_names_its_object(server: Environment, path: Path) -> None:
    patch = {"Content-Type": "application/merge-patch+json"}
    await _call(server, "POST", _CONFIGMAPS, json=_CONFIGMAP)
    await _call(server, "POST", _CONFIGMAPS, json=_CONFIGMAP)
    await _call(server, "GET", f"{_CONFIGMAPS}/a")
    await _call(server, "GET", _CONFIGMAPS)
    await _call(server, "PATCH", f"{_CONFIGMAPS}/a", json={"data": {"x": "y"}}, headers=patch)
    await _call(server, "PATCH", "/api/v1/namespaces/default/status", json={}, headers=patch)
    await _call(server, "DELETE", f"{_CONFIGMAPS}/a")
    await _call(server, "DELETE", _CONFIGMAPS)
    await _call(server, "POST", _CONFIGMAPS, data=b"{", headers={"Content-Type": "application/json"})
    await _call(server, "GET", f"{_CONFIGMAPS}?watch=perhaps")
    await _call(server, "GET", "/version")
    seen = []
    for event in _lines(path):
        reference = event.get("objectRef", {})
        where = "/".join(reference[part] for part in ("resource", "name", "subresource") if part in reference)
        seen.append((event["verb"], where, event["responseStatus"]["code"]))
    assert seen == [
        ("create", "configmaps/a", 201),
        ("create", "configmaps/a", 409),
        ("get", "configmaps/a", 200),
        ("list", "configmaps", 200),
        ("patch", "configmaps/a", 200),
        ("patch", "namespaces/default/status", 200),
        ("delete", "configmaps/a", 200),
        ("deletecollection", "configmaps", 200),
        ("create", "configmaps", 400),
        ("list", "configmaps", 400),
        ("get", "", 200),
    ]


async def test_a_watch_has_its_line_when_it_ends_whoever_ends_it(server: Environment, path: Path) -> None:
    assert await _call(server, "GET", f"{_CONFIGMAPS}?watch=true&timeoutSeconds=1") == 200
    assert [(event["verb"], event["responseStatus"]["code"]) for event in _lines(path)] == [("watch", 200)]
    async with server.session() as session:
        response = await session.get(f"{_CONFIGMAPS}?watch=true")
        assert len(_lines(path)) == 1
        response.close()
        await eventually(lambda: len(_lines(path)) == 2)
    assert _lines(path)[1]["responseStatus"]["code"] == 200


async def test_a_request_without_an_answer_has_a_line_without_a_status(server: Environment, path: Path) -> None:
    server.faults.add(Reset(when="after"), verb="create")
    with pytest.raises(aiohttp.ClientConnectionError):
        await _call(server, "POST", _CONFIGMAPS, json=_CONFIGMAP)
    await eventually(lambda: len(_lines(path)) == 1)
    (event,) = _lines(path)
    assert "responseStatus" not in event
    assert (event["verb"], event["objectRef"]["name"]) == ("create", "a")


async def test_it_tells_strangers_users_and_those_who_act_for_them_apart(server: Environment, path: Path) -> None:
    assert await _call(server, "GET", _CONFIGMAPS, headers={"Authorization": "Bearer wrong"}) == 401
    assert await _call(server, "GET", _CONFIGMAPS, headers={"Impersonate-User": "jane"}) == 200
    stranger, jane = _lines(path)
    assert (stranger["user"], stranger["responseStatus"]["code"]) == ({}, 401)
    assert jane["user"]["username"] == "trainmaster-admin"
    assert jane["impersonatedUser"] == {"username": "jane", "groups": ["system:authenticated"]}
    assert "wrong" not in path.read_text()
    assert server.token not in path.read_text()


async def test_lines_of_requests_at_once_do_not_mix_and_earlier_ones_stay(tmp_path: Path, path: Path) -> None:
    for _ in range(2):
        audit = AuditLog(path)
        async with start_environment(tmp_path, audit=audit) as served, served.session() as session:

            async def get(session: aiohttp.ClientSession = session) -> None:
                async with session.get(_CONFIGMAPS) as response:
                    await response.read()

            await asyncio.gather(*(get() for _ in range(20)))
        audit.close()
    assert len(_lines(path)) == 40
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


async def test_a_full_disk_loses_lines_but_no_requests(server: Environment, path: Path, monkeypatch: Any) -> None:
    def full(descriptor: int, data: bytes) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("trainmaster.devcluster.apiserver.filters.audit.os.write", full)
        assert await _call(server, "GET", _CONFIGMAPS) == 200
    assert await _call(server, "GET", f"{_CONFIGMAPS}/a") == 404
    assert [event["verb"] for event in _lines(path)] == ["get"]


@pytest.mark.nightly
async def test_the_command_line_takes_a_file_for_it(tmp_path: Path) -> None:
    bare = ("--without", "manager,controllers,gc,kubelet")
    up = await trainmaster("cluster", "up", "--detach", *bare, "--audit-log", "here.log", cwd=tmp_path)
    try:
        assert (up.code, up.err) == (0, "")
        assert (tmp_path / "here.log").exists()
    finally:
        assert (await trainmaster("cluster", "down", cwd=tmp_path)).code == 0
    refused = await trainmaster("cluster", "up", *bare, "--audit-log", os.devnull + "/x", cwd=tmp_path)
    assert refused.code == 1
    assert f"cannot write the audit log {os.devnull}/x: Not a directory; choose another file with" in refused.err


async def test_a_full_disk_leaves_a_gap_and_breaks_no_line_after_it(server: Environment, path: Path) -> None:
    assert await _call(server, "GET", "/api/v1/pods") == 200
    with full_disk(room=path.stat().st_size + 50):
        assert await _call(server, "GET", "/api/v1/pods") == 200
        assert await _call(server, "GET", "/api/v1/pods") == 200
    assert await _call(server, "GET", "/api/v1/nodes") == 200
    assert await _call(server, "GET", "/api/v1/secrets") == 200
    first, cut, *rest = path.read_bytes().splitlines()
    assert len(cut) == 50
    uris = [orjson.loads(line)["requestURI"] for line in (first, *rest)]
    assert uris == ["/api/v1/pods", "/api/v1/nodes", "/api/v1/secrets"]


CONFIGMAPS = "/api/v1/namespaces/default/configmaps"


def recorded(directory: Path) -> list[tuple[Any, ...]]:
    lines = [orjson.loads(line) for path in directory.glob("*.requests") for line in path.read_bytes().splitlines()]
    return [(line["program"], line["verb"], line["resource"], line["scope"], line["name"]) for line in lines]


async def test_each_right_that_a_request_demands_is_recorded_once(
    rbac_server: Environment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    agent = {"User-Agent": "robot/1 (linux)"}
    apply: dict[str, Any] = {"json": {**configmap(), "apiVersion": "v1", "kind": "ConfigMap"}}
    apply |= {"params": {"fieldManager": "robot"}}
    headers = agent | {"Content-Type": "application/apply-patch+yaml"}
    for _ in range(2):
        assert (await call(rbac_server, "GET", "/api/v1/configmaps", headers={**agent, **AS_ME}))[0] == 403
        assert (
            await call(rbac_server, "GET", f"{CONFIGMAPS}?watch=true&timeoutSeconds=0", headers={**agent, **AS_ME})
        )[0] == 403
        assert (await call(rbac_server, "PATCH", f"{CONFIGMAPS}/a", headers=headers, **apply))[0] in {200, 201}
        assert (await call(rbac_server, "GET", "/apis", headers=agent))[0] == 200
    assert [line for line in recorded(tmp_path) if line[0] == "robot/1"] == [
        ("robot/1", "list", "configmaps", "cluster", ""),
        ("robot/1", "watch", "configmaps", "namespace", ""),
        ("robot/1", "patch", "configmaps", "namespace", "a"),
        ("robot/1", "create", "configmaps", "namespace", "a"),  # only the first time is there nothing to patch
        ("robot/1", "get", "/apis", "cluster", ""),
    ]


async def test_without_a_directory_nothing_is_recorded(
    rbac_server: Environment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(VARIABLE)
    assert (await call(rbac_server, "GET", "/api/v1/namespaces"))[0] == 200
    assert not list(tmp_path.glob("**/*.requests"))


ODD: JsonObject = {
    "texts": [
        *("yes", "y", "1e3", "0x10", "1_0", "1:30", "2026-01-01T00:00:00Z", "null", "", "~", "a: b", "- a", "\u00e9\n")
    ],
    "numbers": [1, 1.5, -0.25, 1e300],
    "rest": [None, True, {}, [], [[1], {"a": []}]],
    "y": 1,
}


def _handler(body: JsonObject) -> Handler:
    async def handle(_request: web.Request) -> web.StreamResponse:
        return json_response(body)

    return handle


async def _sent(path: str, body: JsonObject, **headers: str) -> web.Response:
    response = await with_serialization(make_mocked_request("GET", path, headers=headers), _handler(body))
    assert isinstance(response, web.Response)
    return response


async def test_yaml_reads_as_the_same_json() -> None:
    shared = [1, 2]
    response = await _sent("/api/v1/pods/a", {**ODD, "one": shared, "two": shared}, Accept="application/yaml")
    assert response.headers["Content-Type"] == "application/yaml"
    assert isinstance(response.body, bytes)
    assert b"&" not in response.body
    assert load_yaml(response.body) == {**ODD, "one": shared, "two": shared}


async def test_what_is_no_resource_stays_json() -> None:
    assert (await _sent("/version", {}, Accept="application/yaml")).headers["Content-Type"] == "application/json"


@pytest.mark.parametrize(
    ("path", "headers", "expected"),
    [
        ("/api/v1/pods/a", {}, False),
        ("/api/v1/pods/a?pretty=true", {}, True),
        ("/api/v1/pods/a?pretty=", {}, True),
        ("/api/v1/pods/a?pretty=false", {"User-Agent": "curl/8.0"}, False),
        ("/api/v1/pods/a", {"User-Agent": "curl/8.0"}, True),
        ("/api/v1/pods/a", {"User-Agent": "kubectl/v1.33"}, False),
    ],
)
async def test_people_get_lines(path: str, headers: dict[str, str], expected: bool) -> None:
    body = (await _sent(path, {"a": {"b": 1}}, **headers)).body
    assert isinstance(body, bytes)
    assert orjson.loads(body) == {"a": {"b": 1}}
    assert (b"\n" in body) is expected


_PATH = "/api/v1/namespaces/default/pods/p/log"


class _Defective:
    def __init__(self, *, halfway: bool) -> None:
        self._halfway = halfway

    def find_deleted(self, namespace: str, name: str, uid: str) -> None:
        """It keeps none."""

    async def read(self, **_: Any) -> AsyncIterator[bytes]:
        if not self._halfway:
            raise RuntimeError("secret detail")
        return self._break()

    async def _break(self) -> AsyncIterator[bytes]:
        yield b"begun\n"
        raise RuntimeError("secret detail")


@pytest.mark.parametrize("halfway", [False, True])
async def test_a_defect_is_logged_and_its_details_stay_here(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, halfway: bool
) -> None:
    """Halfway through an answer the client must not take what it has for the whole: the connection breaks."""
    async with (
        start_environment(tmp_path, log_source=_Defective(halfway=halfway)) as server,
        server.session() as session,
    ):
        spec = {"nodeName": "n", "containers": [{"name": "c", "image": "i"}]}
        await server.api.create(PODS, {"metadata": {"name": "p"}, "spec": spec}, namespace="default")
        with caplog.at_level(logging.ERROR):
            if halfway:
                with pytest.raises(aiohttp.ClientError):
                    async with session.get(_PATH) as response:
                        await response.read()
            else:
                async with session.get(_PATH) as response:
                    document = await response.json()
                assert (response.status, document["reason"]) == (500, "InternalError")
                assert "secret" not in document["message"]
        async with session.get("/healthz") as response:
            assert await response.text() == "ok", "other requests go on"
    assert "RuntimeError: secret detail" in caplog.text
