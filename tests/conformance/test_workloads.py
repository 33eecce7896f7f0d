"""Pods and Jobs: defaults, validation, what cannot change, subresources, and what the log endpoint refuses."""

from typing import Any

import pytest
from support.conformance import Answer, Collection
from support.samples import job, pod, pod_spec

from trainmaster.runtime.jsontree import JsonObject


def _template(**fields: Any) -> JsonObject:
    return {"spec": pod_spec(restartPolicy="Never", **fields)}


async def test_a_gated_pod_is_not_scheduled_and_a_gate_may_go_but_none_may_come(pods: Collection) -> None:
    obj = await pods.made(pod("a", schedulingGates=[{"name": "example.com/wait"}]))
    [condition] = [each for each in obj["status"]["conditions"] if each["type"] == "PodScheduled"]
    assert (condition["status"], condition["reason"]) == ("False", "SchedulingGated")
    more = {"spec": {"schedulingGates": [{"name": "example.com/wait"}, {"name": "example.com/more"}]}}
    (await pods.patch("a", more)).refused(422, "Invalid")
    assert "schedulingGates" not in (await pods.patch("a", {"spec": {"schedulingGates": None}})).ok(200)["spec"]


async def test_a_job_takes_the_labels_of_its_template(jobs: Collection) -> None:
    obj = await jobs.made(job("a", template={"metadata": {"labels": {"l": "1"}}, **_template()}))
    assert obj["metadata"]["labels"]["l"] == "1"


IMAGE = "registry.test/image:1"


def _pod(**fields: Any) -> JsonObject:
    """A pod whose container has these fields."""
    return pod("a", containers=[{"name": "main", "image": IMAGE, **fields}])


async def test_a_negative_grace_period_is_accepted(pods: Collection) -> None:
    made = await pods.made(pod("a", terminationGracePeriodSeconds=-5))
    assert made["spec"]["terminationGracePeriodSeconds"] == -5


async def test_a_pod_gets_its_node_by_a_binding_and_once(pods: Collection) -> None:
    await pods.made(pod("a"))
    (await pods.patch("a", {"spec": {"nodeName": "n"}})).refused(422, "Invalid")
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "a"},
        "target": {"kind": "Node", "name": "n"},
    }

    async def bind(**changes: Any) -> Answer:
        return await pods.client.send("POST", pods.at("a", "binding"), binding | changes)

    (await bind(target={})).refused(500)
    (await bind(metadata={"name": "b"})).refused(400, "BadRequest")
    status = (await bind()).ok(201)
    assert (status["kind"], status["status"]) == ("Status", "Success")
    assert (await pods.read("a"))["spec"]["nodeName"] == "n"
    assert 'pod a is already assigned to node "n"' in (await bind()).refused(409, "Conflict")["message"]


async def test_containers_for_debugging_come_by_their_subresource_and_stay(pods: Collection) -> None:
    await pods.made(pod("a"))

    async def debug(*containers: JsonObject, **options: Any) -> Answer:
        return await pods.patch("a", {"spec": {"ephemeralContainers": list(containers)}}, **options)

    first: JsonObject = {"name": "debug", "image": "busybox:1"}
    (await debug(first)).refused(422, "Invalid")
    patched = (await debug(first, subresource="ephemeralcontainers")).ok(200)
    assert [each["name"] for each in patched["spec"]["ephemeralContainers"]] == ["debug"]
    assert patched["metadata"]["generation"] == 2
    for others in ([], [{**first, "image": "busybox:2"}]):
        causes = (await debug(*others, subresource="ephemeralcontainers")).causes()
        assert causes == [("spec.ephemeralContainers", "FieldValueForbidden")]
    kept = patched["spec"]["ephemeralContainers"]
    second = {"name": "b", "ports": [{"containerPort": 80}]}
    assert sorted((await debug(*kept, second, subresource="ephemeralcontainers")).causes()) == [
        ("spec.ephemeralContainers[1].image", "FieldValueRequired"),
        ("spec.ephemeralContainers[1].ports", "FieldValueForbidden"),
    ]


async def test_numbers_fit_their_type(pods: Collection) -> None:
    for number in (2**31, 80.0, 80.5, "80", True):
        (await pods.create(_pod(ports=[{"containerPort": number}]))).refused(400, "BadRequest")


async def _log(pods: Collection, name: str = "a", **query: Any) -> Answer:
    return await pods.get(name, subresource="log", accept="*/*", **query)


async def test_the_log_of_a_missing_pod_or_container_is_refused(pods: Collection) -> None:
    assert (await _log(pods)).refused(404, "NotFound")["message"] == 'pods "a" not found'
    await pods.made(pod("a"))
    status = (await _log(pods, container="none")).refused(400, "BadRequest")
    assert status["message"] == "container none is not valid for pod a"


async def test_one_of_several_containers_must_be_named(pods: Collection) -> None:
    """Those that prepare are offered first."""
    containers = [{"name": name, "image": "i"} for name in ("one", "two")]
    await pods.made(pod("a", containers=containers))
    status = (await _log(pods)).refused(400, "BadRequest")
    assert status["message"] == "a container name must be specified for pod a, choose one of: [one two]"
    await pods.made(pod("b", containers=containers, initContainers=[{"name": "init", "image": "i"}]))
    message = (await _log(pods, "b")).refused(400, "BadRequest")["message"]
    assert message == "a container name must be specified for pod b, choose one of: [init one two]"


@pytest.mark.parametrize("query", [{}, {"container": "main"}, {"container": "init"}], ids=str)
async def test_a_pod_without_a_node_has_no_log(pods: Collection, query: dict[str, Any]) -> None:
    """The only container needs no name, even beside one that prepares.

    Tolerance: the answer has no content, or an empty one.
    """
    await pods.made(pod("a", initContainers=[{"name": "init", "image": "i"}]))
    answer = await _log(pods, **query)
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


async def test_a_log_is_only_read_and_by_options_that_are_numbers(pods: Collection) -> None:
    await pods.made(pod("a"))
    (await _log(pods, tailLines="many")).refused(400, "BadRequest")
    (await pods.put(pod("a"), subresource="log")).refused(405, "MethodNotAllowed")
