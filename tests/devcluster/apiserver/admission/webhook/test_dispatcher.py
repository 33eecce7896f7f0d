"""Which writes the webhooks are asked about, in which order, and what follows from their answers."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from support.webhooks import Configurer, WebhookServer, label, patch, rule

from trainmaster.devcluster.apiserver.errors import StatusError
from trainmaster.devcluster.apiserver.registry.generic import DeleteOptions, PatchType, WriteOptions
from trainmaster.devcluster.apiserver.resources import (
    CONFIGMAPS,
    EVENTS,
    MUTATING_WEBHOOKS,
    NAMESPACES,
    NODES,
    PODS,
    VALIDATING_WEBHOOKS,
)
from trainmaster.devcluster.testing.envtest import Environment

_DENIED = {"allowed": False, "status": {"message": "no", "code": 403, "reason": "Forbidden"}}
_PATH = "/api/v1/namespaces/default/configmaps"


async def _create(served: Environment, name: str = "a", *, namespace: str = "default", **labels: str) -> Any:
    obj = {"metadata": {"name": name, "labels": labels or {"kept": "yes"}}}
    return await served.api.create(CONFIGMAPS, obj, namespace=namespace)


async def _update(served: Environment, name: str = "a", **data: str) -> Any:
    patched, _ = await served.api.patch(CONFIGMAPS, "default", name, {"data": data}, patch_type=PatchType.MERGE)
    return patched


# Mutation


async def test_mutating_webhooks_are_called_in_the_order_of_names_and_see_what_came_before(
    devcluster_server: Environment, hooks: WebhookServer, configure: Configurer
) -> None:
    for name in ("one", "two", "three"):
        hooks.on(f"/{name}", label(name))
    await configure.mutating(configure.webhook("/three"), name="b")
    await configure.mutating(configure.webhook("/one"), configure.webhook("/two"), name="a")
    created = await _create(devcluster_server)
    assert [path for path, _ in hooks.asked] == ["/one", "/two", "/three"]
    assert created["metadata"]["labels"] == {"kept": "yes", "one": "yes", "two": "yes", "three": "yes"}
    assert set(hooks.requests("/three")[0]["object"]["metadata"]["labels"]) == {"kept", "one", "two"}


async def test_what_a_webhook_makes_is_pruned_defaulted_and_validated(
    devcluster_server: Environment, hooks: WebhookServer, configure: Configurer
) -> None:
    await configure.mutating(configure.webhook(rules=[rule("pods")]))
    container = {"name": "more", "image": "more", "bogus": 1}
    hooks.on("/hook", patch({"op": "add", "path": "/spec/containers/-", "value": container}))
    pod = {"metadata": {"name": "a"}, "spec": {"containers": [{"name": "main", "image": "main"}]}}
    created = await devcluster_server.api.create(PODS, pod, namespace="default")
    added = created["spec"]["containers"][1]
    assert "bogus" not in added
    assert added["terminationMessagePath"] == "/dev/termination-log"
    hooks.on("/hook", patch({"op": "replace", "path": "/spec/containers/0/name", "value": "Not A Name"}))
    with pytest.raises(StatusError) as caught:
        await devcluster_server.api.create(PODS, pod | {"metadata": {"name": "b"}}, namespace="default")
    assert (caught.value.code, "spec.containers[0].name" in caught.value.message) == (422, True)


async def test_a_webhook_is_called_again_only_if_it_wants_and_something_changed_after_it(
    devcluster_server: Environment, hooks: WebhookServer, configure: Configurer
) -> None:
    for name in ("wanted", "unwanted", "last"):
        hooks.on(f"/{name}", label(name))
    again = {"reinvocationPolicy": "IfNeeded"}
    await configure.mutating(
        configure.webhook("/wanted", **again), configure.webhook("/unwanted"), configure.webhook("/last", **again)
    )
    await _create(devcluster_server)
    assert [path for path, _ in hooks.asked] == ["/wanted", "/unwanted", "/last", "/wanted"]
    assert "last" in hooks.requests("/wanted")[1]["object"]["metadata"]["labels"]


async def test_an_update_shows_both_objects_and_changes_the_new_one(
    devcluster_server: Environment, hooks: WebhookServer, configure: Configurer
) -> None:
    await _create(devcluster_server)
    hooks.on("/hook", patch({"op": "add", "path": "/data/hooked", "value": "yes"}))
    await configure.mutating(configure.webhook())
    assert (await _update(devcluster_server, x="1"))["data"] == {"x": "1", "hooked": "yes"}
    (request,) = hooks.requests("/hook")
    assert request["operation"] == "UPDATE"
    assert ("data" in request["oldObject"], request["object"]["data"]) == (False, {"x": "1"})
    assert request["options"]["kind"] == "UpdateOptions"


async def test_a_webhook_cannot_rename_an_object(
    devcluster_server: Environment, hooks: WebhookServer, configure: Configurer
) -> None:
    await _create(devcluster_server)
    hooks.on("/hook", patch({"op": "replace", "path": "/metadata/name", "value": "b"}))
    await configure.mutating(configure.webhook())
    with pytest.raises(StatusError, match="field is immutable"):
        await _update(devcluster_server, x="1")


async def test_a_generated_name_is_known_to_the_validating_webhooks_only(
    devcluster_server: Environment, hooks: WebhookServer, configure: Configurer
) -> None:
    for path in ("/early", "/late"):
        hooks.on(path, {})
    await configure.mutating(configure.webhook("/early"))
    await configure.validating(configure.webhook("/late"))
    obj = {"metadata": {"generateName": "a-"}}
    created = await devcluster_server.api.create(CONFIGMAPS, obj, namespace="default")
    early, late = hooks.requests("/early")[0], hooks.requests("/late")[0]
    assert ("name" in early, "name" in early["object"]["metadata"]) == (False, False)
    assert late["name"] == late["object"]["metadata"]["name"] == created["metadata"]["name"]
    assert late["object"]["metadata"]["uid"] == created["metadata"]["uid"]


async def test_a_change_by_another_writer_while_a_webhook_thinks_is_not_lost(
    devcluster_server: Environment, hooks: WebhookServer, configure: Configurer
) -> None:
    await _create(devcluster_server)
    calls = 0

    async def intrude(_: object) -> dict[str, Any]:
        nonlocal calls
        calls += 1
        if calls == 1:
            await _update(devcluster_server, intruder="yes")
        return {}

    hooks.on("/hook", intrude)
    await configure.validating(configure.webhook())
    assert (await _update(devcluster_server, x="1"))["data"] == {"x": "1", "intruder": "yes"}


# Validation and denials


async def test_validating_webhooks_are_called_at_the_same_time_with_the_final_object(
    devcluster_server: Environment, hooks: WebhookServer, configure: Configurer
) -> None:
    both = asyncio.Barrier(2)

    async def meet(_: object) -> dict[str, Any]:
        await both.wait()
        return {}

    hooks.on("/mutate", label("late"))
    hooks.on("/one", meet)
    hooks.on("/two", meet)
    await configure.mutating(configure.webhook("/mutate"))
    await configure.validating(configure.webhook("/one"), configure.webhook("/two"))
    await _create(devcluster_server)
    for path in ("/one", "/two"):
        assert "late" in hooks.requests(path)[0]["object"]["metadata"]["labels"]


@pytest.mark.parametrize(
    ("status", "code", "text"),
    [
        ({"message": "not today", "code": 403, "reason": "Forbidden"}, 403, ": not today"),
        ({"message": "bad field", "code": 422, "reason": "Invalid"}, 422, ": bad field"),
        ({"message": "why", "code": 200}, 400, ": why"),
        ({"reason": "Because"}, 400, ": Because"),
        ({}, 400, " without explanation"),
    ],
)
async def test_a_denial_is_told_in_the_words_of_the_api_server(
    configure: Configurer, hooks: WebhookServer, status: dict[str, Any], code: int, text: str
) -> None:
    hooks.on("/hook", {"allowed": False, "status": status, "warnings": ["look out"]})
    await configure.validating(configure.webhook(failurePolicy="Ignore"))
    assert isinstance(configure.served, Environment)
    async with (
        configure.served.session() as session,
        session.post(_PATH, json={"metadata": {"name": "a"}}) as response,
    ):
        answer = await response.json()
        assert response.headers["Warning"] == '299 - "look out"'
    assert response.status == answer["code"] == code
    assert answer["message"] == f'admission webhook "hook.example.com" denied the request{text}'
    assert (answer.get("reason"), answer["status"]) == (status.get("reason"), "Failure")


async def test_a_denied_object_is_not_stored(
    devcluster_server: Environment, hooks: WebhookServer, configure: Configurer
) -> None:
    hooks.on("/hook", _DENIED)
    await configure.mutating(configure.webhook())
    with pytest.raises(StatusError):
        await _create(devcluster_server)
    assert devcluster_server.api.list(CONFIGMAPS, "default")[0] == []


async def test_warnings_reach_the_client(
    devcluster_server: Environment, hooks: WebhookServer, configure: Configurer
) -> None:
    hooks.on("/one", {"warnings": ["first", "second"]})
    hooks.on("/two", {"warnings": ["first"]})
    await configure.mutating(configure.webhook("/one"))
    await configure.validating(configure.webhook("/two", rules=[rule("configmaps", operations=("*",))]))
    async with devcluster_server.session() as session:
        async with session.post(_PATH, json={"metadata": {"name": "a"}}) as response:
            assert response.headers.getall("Warning") == ['299 - "first"', '299 - "second"']
        async with session.delete(f"{_PATH}/a") as response:
            assert response.headers.getall("Warning") == ['299 - "first"']


# Which requests are meant


@pytest.mark.parametrize(
    ("meant", "asked"),
    [
        (rule("configmaps"), True),
        (rule("*"), True),
        (rule("*/*"), True),
        (rule("configmaps/*"), True),
        (rule("secrets"), False),
        (rule("configmaps/status"), False),
        (rule("*", group="apps"), False),
        (rule("*", group="*"), True),
        (rule("*", operations=("UPDATE",)), False),
        (rule("*", operations=("*",)), True),
        (rule("*", scope="Cluster"), False),
        (rule("*", scope="Namespaced"), True),
        (rule("configmaps", apiVersions=["v2"]), False),
    ],
)
async def test_rules_say_which_requests_are_meant(
    devcluster_server: Environment, hooks: WebhookServer, configure: Configurer, meant: Any, asked: bool
) -> None:
    hooks.on("/hook", {})
    await configure.validating(configure.webhook(rules=[meant]))
    await _create(devcluster_server)
    assert len(hooks.asked) == asked


async def test_subresources_are_meant_only_if_they_are_named(
    devcluster_server: Environment, hooks: WebhookServer, configure: Configurer
) -> None:
    for path in ("/main", "/status"):
        hooks.on(path, {})
    await configure.validating(
        configure.webhook("/main", rules=[rule("pods")]), configure.webhook("/status", rules=[rule("pods/status")])
    )
    pod = {"metadata": {"name": "a"}, "spec": {"containers": [{"name": "main", "image": "main"}]}}
    await devcluster_server.api.create(PODS, pod, namespace="default")
    status = {"status": {"phase": "Running"}}
    await devcluster_server.api.patch(PODS, "default", "a", status, patch_type=PatchType.MERGE, subresource="status")
    assert len(hooks.requests("/main")) == 1
    (request,) = hooks.requests("/status")
    assert (request["subResource"], request["requestSubResource"]) == ("status", "status")
    assert request["object"]["status"]["phase"] == "Running"


async def test_the_object_selector_looks_at_the_new_and_the_old_object(
    devcluster_server: Environment, hooks: WebhookServer, configure: Configurer
) -> None:
    hooks.on("/hook", {})
    await configure.validating(configure.webhook(objectSelector={"matchLabels": {"team": "red"}}))
    await _create(devcluster_server, "a", team="red")
    await _create(devcluster_server, "b", team="blue")
    labels = {"metadata": {"labels": {"team": "blue"}}}
    for _ in range(2):
        await devcluster_server.api.patch(CONFIGMAPS, "default", "a", labels, patch_type=PatchType.MERGE)
    assert [request["name"] for request in hooks.requests("/hook")] == ["a", "a"]


async def test_the_namespace_selector_looks_at_the_labels_of_the_namespace(
    devcluster_server: Environment, hooks: WebhookServer, configure: Configurer
) -> None:
    hooks.on("/hook", {})
    selector = {
        "matchExpressions": [{"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["default"]}]
    }
    rules = [rule("*")]
    await configure.validating(configure.webhook(namespaceSelector=selector, rules=rules))
    await _create(devcluster_server, "exempt")
    await _create(devcluster_server, "meant", namespace="kube-system")
    await devcluster_server.api.create(NODES, {"metadata": {"name": "node"}})
    await devcluster_server.api.create(NAMESPACES, {"metadata": {"name": "space"}})
    asked = hooks.requests("/hook")
    assert [request["name"] for request in asked] == ["meant", "node", "space"]
    assert [request.get("namespace") for request in asked] == ["kube-system", None, "space"]


async def test_match_conditions_have_the_last_word(
    devcluster_server: Environment, hooks: WebhookServer, configure: Configurer
) -> None:
    hooks.on("/hook", {})
    conditions = [
        {"name": "not-ours", "expression": "!request.userInfo.username.startsWith('trainmaster')"},
        {"name": "growing", "expression": "oldObject == null || size(object.data) > size(oldObject.data)"},
    ]
    await configure.validating(configure.webhook(matchConditions=conditions))
    obj = {"metadata": {"name": "a"}, "data": {"x": "1", "y": "2"}}
    await devcluster_server.api.create(CONFIGMAPS, obj, namespace="default")
    await _update(devcluster_server, x="2")
    await _update(devcluster_server, z="3")
    assert [request["object"]["data"].get("z") for request in hooks.requests("/hook")] == [None, "3"]
    async with devcluster_server.session() as session, session.post(_PATH, json={"metadata": {"name": "b"}}) as answer:
        assert answer.status == 201
    assert len(hooks.asked) == 2


@pytest.mark.parametrize("policy", ["Fail", "Ignore"])
async def test_a_condition_without_a_result_counts_as_the_failure_policy_says(
    devcluster_server: Environment, hooks: WebhookServer, configure: Configurer, policy: str
) -> None:
    hooks.on("/hook", _DENIED)
    conditions = [{"name": "broken", "expression": 'object.data.missing == "x"'}]
    await configure.validating(configure.webhook(matchConditions=conditions, failurePolicy=policy))
    if policy == "Ignore":
        await _create(devcluster_server)
    else:
        with pytest.raises(StatusError) as caught:
            await _create(devcluster_server)
        text = "expression 'object.data.missing == \"x\"' resulted in error: no such key: data"
        assert (caught.value.code, caught.value.message) == (403, f'configmaps "a" is forbidden: {text}')
    assert hooks.asked == []


async def test_events_are_shown_in_the_version_that_the_rule_names(
    devcluster_server: Environment, hooks: WebhookServer, configure: Configurer
) -> None:
    """The same objects are served as core/v1 and as events.k8s.io/v1."""
    for path in ("/equivalent", "/exact"):
        hooks.on(path, {})
    rules = [rule("events", group="events.k8s.io")]
    await configure.validating(
        configure.webhook("/equivalent", rules=rules), configure.webhook("/exact", rules=rules, matchPolicy="Exact")
    )
    event = {
        "metadata": {"name": "a"},
        "involvedObject": {"kind": "Pod", "name": "p", "namespace": "default"},
        "message": "hello",
        "reason": "Tested",
        "type": "Normal",
    }
    await devcluster_server.api.create(EVENTS, event, namespace="default")
    assert hooks.requests("/exact") == []
    (request,) = hooks.requests("/equivalent")
    assert (request["resource"]["group"], request["requestResource"]["group"]) == ("events.k8s.io", "")
    assert (request["object"]["apiVersion"], request["object"]["note"]) == ("events.k8s.io/v1", "hello")


async def test_deletions_show_the_old_object_and_can_be_denied(
    devcluster_server: Environment, hooks: WebhookServer, configure: Configurer
) -> None:
    hooks.on("/hook", _DENIED)
    await _create(devcluster_server)
    await configure.validating(configure.webhook(rules=[rule("configmaps", operations=("DELETE",))]))
    with pytest.raises(StatusError, match="denied the request: no"):
        await devcluster_server.api.delete(CONFIGMAPS, "default", "a")
    with pytest.raises(StatusError, match="denied the request: no"):
        await devcluster_server.api.delete_collection(CONFIGMAPS, "default")
    hooks.on("/hook", {})
    await devcluster_server.api.delete(
        CONFIGMAPS, "default", "a", options=DeleteOptions(propagation="Background", grace_seconds=0)
    )
    request = hooks.requests("/hook")[-1]
    assert (request["operation"], request["object"], request["oldObject"]["metadata"]["name"]) == ("DELETE", None, "a")
    assert request["options"] == {
        "kind": "DeleteOptions",
        "apiVersion": "meta.k8s.io/v1",
        "gracePeriodSeconds": 0,
        "propagationPolicy": "Background",
    }
    assert devcluster_server.api.list(CONFIGMAPS, "default")[0] == []


async def test_a_mutating_webhook_may_deny_a_deletion_but_not_change_it(
    devcluster_server: Environment, hooks: WebhookServer, configure: Configurer
) -> None:
    await _create(devcluster_server)
    await configure.mutating(configure.webhook(rules=[rule("configmaps", operations=("DELETE",))]))
    hooks.on("/hook", label("x"))
    with pytest.raises(StatusError) as caught:
        await devcluster_server.api.delete(CONFIGMAPS, "default", "a")
    assert (caught.value.code, "attempted to modify the object" in caught.value.message) == (500, True)
    hooks.on("/hook", {})
    await devcluster_server.api.delete(CONFIGMAPS, "default", "a")


async def test_a_dry_run_calls_only_webhooks_that_promise_to_do_nothing(
    devcluster_server: Environment, hooks: WebhookServer, configure: Configurer
) -> None:
    hooks.on("/hook", {})
    await configure.validating(configure.webhook(sideEffects="NoneOnDryRun"))
    obj = {"metadata": {"name": "a"}}
    await devcluster_server.api.create(CONFIGMAPS, obj, namespace="default", options=WriteOptions(dry_run=True))
    assert hooks.requests("/hook")[0]["dryRun"] is True


async def test_configurations_are_exempt_and_their_changes_count_at_once(
    devcluster_server: Environment, hooks: WebhookServer, configure: Configurer
) -> None:
    """A webhook that denies everything could otherwise never be removed."""
    hooks.on("/hook", _DENIED)
    everything = [rule("*/*", group="*", operations=("*",))]
    await configure.validating(configure.webhook(rules=everything))
    await configure.mutating(configure.webhook(rules=everything))
    with pytest.raises(StatusError, match="denied"):
        await _create(devcluster_server)
    narrowed = {"webhooks": [{"name": "hook.example.com", "rules": [rule("secrets")]}]}
    await devcluster_server.api.patch(MUTATING_WEBHOOKS, None, "mutating", narrowed, patch_type=PatchType.STRATEGIC)
    await devcluster_server.api.delete(VALIDATING_WEBHOOKS, None, "validating")
    await _create(devcluster_server)
