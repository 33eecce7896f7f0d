"""Pods: what is accepted with a warning, and the subresources that change what the pod itself does not let change."""

from __future__ import annotations

from typing import Any

from support.conformance import STRATEGIC_PATCH, Answer, Collection
from support.samples import pod

from trainmaster.runtime.jsontree import JsonObject

IMAGE = "registry.test/image:1"


def _pod(**fields: Any) -> JsonObject:
    """A pod whose container has these fields."""
    return pod("a", containers=[{"name": "main", "image": IMAGE, **fields}])


async def test_what_is_given_twice_is_accepted_with_a_warning(pods: Collection) -> None:
    obj = _pod(
        env=[{"name": "A", "value": "1"}, {"name": "A", "value": "2"}],
        ports=[{"containerPort": 80}, {"containerPort": 80}],
    )
    obj["spec"]["imagePullSecrets"] = [{"name": "s"}, {"name": "s"}]
    answer = await pods.create(obj)
    spec = answer.ok(201)["spec"]
    assert [len(spec["containers"][0][field]) for field in ("env", "ports")] == [2, 2]
    assert len(spec["imagePullSecrets"]) == 2
    assert sorted(answer.warnings) == [
        'spec.containers[0].env[1]: hides previous definition of "A", which may be dropped when using apply',
        "spec.containers[0].ports[1]: duplicate port definition with spec.containers[0].ports[0]",
        'spec.imagePullSecrets[1].name: duplicate name "s"',
    ]


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


async def test_resources_change_by_their_subresource_and_nothing_else_does(pods: Collection) -> None:
    await pods.made(_pod(resources={"requests": {"cpu": "1"}, "limits": {"cpu": "2"}}))

    async def resize(requests: str, limits: str, **options: Any) -> Answer:
        resources = {"requests": {"cpu": requests}, "limits": {"cpu": limits}}
        container = {"name": "main", "image": "ignored", "resources": resources}
        return await pods.patch("a", {"spec": {"containers": [container]}}, form=STRATEGIC_PATCH, **options)

    (await resize("2", "3")).refused(422, "Invalid")
    (container,) = (await resize("2", "3", subresource="resize")).ok(200)["spec"]["containers"]
    assert (container["resources"]["requests"], container["image"]) == ({"cpu": "2"}, IMAGE)
    causes = (await resize("4", "3", subresource="resize")).causes()
    assert causes == [("spec.containers[0].resources.requests", "FieldValueInvalid")]


async def test_numbers_fit_their_type(pods: Collection) -> None:
    for number in (2**31, 80.0, 80.5, "80", True):
        (await pods.create(_pod(ports=[{"containerPort": number}]))).refused(400, "BadRequest")
