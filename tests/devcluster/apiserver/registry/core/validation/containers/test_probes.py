"""Probes and hooks: one handler each, and numbers that make sense."""

from __future__ import annotations

from typing import Any

import pytest
from support.podrules import container, wrong, wrong_in_container

EXEC: Any = {"exec": {"command": ["true"]}}


@pytest.mark.parametrize("probe", ["livenessProbe", "readinessProbe", "startupProbe"])
@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({"sleep": {"seconds": 1}}, [" Required"]),
        ({**EXEC, "grpc": {"port": 0}}, [".grpc Forbidden"]),
        ({"tcpSocket": {"port": "a--b"}}, [".tcpSocket.port Invalid"]),
        ({"tcpSocket": {"port": ""}}, [".tcpSocket.port Invalid"]),
        ({"httpGet": {"port": 80, "httpHeaders": [{"name": "a b"}]}}, [".httpGet.httpHeaders Invalid"]),
    ],
)
def test_a_probe_has_one_handler(probe: str, given: Any, found: list[str]) -> None:
    assert wrong_in_container(**{probe: given}) == [f"{probe}{each}" for each in found]


@pytest.mark.parametrize(
    ("probe", "fields", "found"),
    [
        ("livenessProbe", {"terminationGracePeriodSeconds": 5}, []),
        ("startupProbe", {"terminationGracePeriodSeconds": -1}, ["terminationGracePeriodSeconds Invalid"]),
        ("readinessProbe", {"successThreshold": 3}, []),
        ("startupProbe", {"successThreshold": 3}, ["successThreshold Invalid"]),
    ],
)
def test_only_readiness_is_counted_and_only_the_others_end_something(probe: str, fields: Any, found: list[str]) -> None:
    assert wrong_in_container(**{probe: EXEC | fields}) == [f"{probe}.{each}" for each in found]


@pytest.mark.parametrize("hook", ["postStart", "preStop"])
@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({"sleep": {"seconds": 30}}, []),
        ({"sleep": {"seconds": 31}}, [".sleep Invalid"]),
        ({"sleep": {"seconds": -1}}, [".sleep Invalid"]),
        ({"sleep": {"seconds": 1}, **EXEC}, [".sleep Forbidden"]),
    ],
)
def test_a_hook_has_one_handler_and_sleeps_within_the_grace_period(hook: str, given: Any, found: list[str]) -> None:
    assert wrong_in_container(lifecycle={hook: given}) == [f"lifecycle.{hook}{each}" for each in found]


def test_what_runs_before_the_others_has_neither_unless_it_goes_on() -> None:
    fields: Any = {"lifecycle": {"preStop": EXEC}, "readinessProbe": EXEC}
    before = {**container(**fields), "name": "i"}
    assert wrong(initContainers=[before]) == [
        "initContainers[0].lifecycle Forbidden",
        "initContainers[0].readinessProbe Forbidden",
    ]
    assert wrong(initContainers=[before | {"restartPolicy": "Always"}]) == []
