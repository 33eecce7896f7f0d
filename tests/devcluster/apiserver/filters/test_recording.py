"""What is recorded of requests: the rights that they demand, each once, allowed or not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest
from support.apiserver import AS_ME, call, configmap

from trainmaster.devcluster.apiserver.filters.recording import VARIABLE
from trainmaster.devcluster.testing.envtest import Environment

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
