"""The log endpoint: what it refuses before any kubelet is asked."""

from __future__ import annotations

from typing import Any

import pytest
from support.conformance import Answer, Collection
from support.samples import pod


async def _log(pods: Collection, name: str = "a", **query: Any) -> Answer:
    return await pods.get(name, subresource="log", accept="*/*", **query)


async def test_the_log_of_a_missing_pod_is_not_found(pods: Collection) -> None:
    assert (await _log(pods)).refused(404, "NotFound")["message"] == 'pods "a" not found'


async def test_an_unknown_container_is_a_bad_request(pods: Collection) -> None:
    await pods.made(pod("a"))
    status = (await _log(pods, container="none")).refused(400, "BadRequest")
    assert status["message"] == "container none is not valid for pod a"


async def test_one_of_several_containers_must_be_named(pods: Collection) -> None:
    await pods.made(pod("a", containers=[{"name": name, "image": "i"} for name in ("one", "two")]))
    status = (await _log(pods)).refused(400, "BadRequest")
    assert status["message"] == "a container name must be specified for pod a, choose one of: [one two]"


async def test_containers_that_prepare_are_offered_first(pods: Collection) -> None:
    containers = [{"name": name, "image": "i"} for name in ("one", "two")]
    await pods.made(pod("a", containers=containers, initContainers=[{"name": "init", "image": "i"}]))
    message = (await _log(pods)).refused(400, "BadRequest")["message"]
    assert message == "a container name must be specified for pod a, choose one of: [init one two]"


async def test_the_only_container_needs_no_name(pods: Collection) -> None:
    """Even beside one that prepares. No node has the pod, so there is nothing to read."""
    await pods.made(pod("a", initContainers=[{"name": "init", "image": "i"}]))
    answer = await _log(pods)
    assert answer.status in {200, 204}
    assert answer.body == b""


@pytest.mark.parametrize("container", ["main", "init"])
async def test_a_pod_without_a_node_has_no_log(pods: Collection, container: str) -> None:
    """Tolerance: the answer has no content, or an empty one."""
    await pods.made(pod("a", initContainers=[{"name": "init", "image": "i"}]))
    answer = await _log(pods, container=container)
    assert answer.status in {200, 204}
    assert answer.body == b""


@pytest.mark.parametrize(
    "query",
    [
        {"tailLines": -1},
        {"sinceSeconds": 0},
        {"limitBytes": 0},
        {"sinceSeconds": 5, "sinceTime": "2026-01-01T00:00:00Z"},
    ],
    ids=str,
)
async def test_options_that_make_no_sense_are_invalid(pods: Collection, query: dict[str, Any]) -> None:
    await pods.made(pod("a"))
    status = (await _log(pods, **query)).refused(422, "Invalid")
    assert (status["details"]["name"], status["details"]["kind"]) == ("a", "PodLogOptions")


async def test_options_that_are_no_numbers_are_a_bad_request(pods: Collection) -> None:
    await pods.made(pod("a"))
    (await _log(pods, tailLines="many")).refused(400, "BadRequest")


async def test_a_log_is_only_read(pods: Collection) -> None:
    await pods.made(pod("a"))
    (await pods.put(pod("a"), subresource="log")).refused(405, "MethodNotAllowed")
