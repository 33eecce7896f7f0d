"""Which writes the webhooks are asked about, in which order, and what follows from their answers."""

import asyncio
from typing import Any

import pytest
from support.devcluster.envtest import Environment
from support.webhooks import HookedServer, label, patch, rule

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

_DENIED = {"allowed": False, "status": {"message": "no", "code": 403, "reason": "Forbidden"}}
_PATH = "/api/v1/namespaces/default/configmaps"


async def _create(served: Environment, name: str = "a", *, namespace: str = "default", **labels: str) -> Any:
    obj = {"metadata": {"name": name, "labels": labels or {"kept": "yes"}}}
    return await served.api.create(CONFIGMAPS, obj, namespace=namespace)


async def _update(served: Environment, name: str = "a", **data: str) -> Any:
    patched, _ = await served.api.patch(CONFIGMAPS, "default", name, {"data": data}, patch_type=PatchType.MERGE)
    return patched


# Mutation


async def test_mutating_webhooks_are_called_in_order_of_names_and_see_what_came_before(hooked: HookedServer) -> None:
    for name in ("one", "two", "three"):
        hooked.hooks.on(f"/{name}", label(name))
    await hooked.mutating(hooked.webhook("/three"), name="b")
    await hooked.mutating(hooked.webhook("/one"), hooked.webhook("/two"), name="a")
    created = await _create(hooked.server)
    assert [path for path, _ in hooked.hooks.asked] == ["/one", "/two", "/three"]
    assert created["metadata"]["labels"] == {"kept": "yes", "one": "yes", "two": "yes", "three": "yes"}
    assert set(hooked.hooks.requests("/three")[0]["object"]["metadata"]["labels"]) == {"kept", "one", "two"}


async def test_what_a_webhook_makes_is_pruned_defaulted_and_validated(hooked: HookedServer) -> None:
    await hooked.mutating(hooked.webhook(rules=[rule("pods")]))
    container = {"name": "more", "image": "more", "bogus": 1}
    hooked.hooks.on("/hook", patch({"op": "add", "path": "/spec/containers/-", "value": container}))
    pod = {"metadata": {"name": "a"}, "spec": {"containers": [{"name": "main", "image": "main"}]}}
    added = (await hooked.server.api.create(PODS, pod, namespace="default"))["spec"]["containers"][1]
    assert "bogus" not in added
    assert added["terminationMessagePath"] == "/dev/termination-log"
    hooked.hooks.on("/hook", patch({"op": "replace", "path": "/spec/containers/0/name", "value": "Not A Name"}))
    with pytest.raises(StatusError) as caught:
        await hooked.server.api.create(PODS, pod | {"metadata": {"name": "b"}}, namespace="default")
    assert (caught.value.code, "spec.containers[0].name" in caught.value.message) == (422, True)


async def test_a_webhook_is_called_again_only_if_it_wants_and_something_changed_after_it(hooked: HookedServer) -> None:
    for name in ("wanted", "unwanted", "last"):
        hooked.hooks.on(f"/{name}", label(name))
    again = {"reinvocationPolicy": "IfNeeded"}
    await hooked.mutating(
        hooked.webhook("/wanted", **again), hooked.webhook("/unwanted"), hooked.webhook("/last", **again)
    )
    await _create(hooked.server)
    assert [path for path, _ in hooked.hooks.asked] == ["/wanted", "/unwanted", "/last", "/wanted"]
    assert "last" in hooked.hooks.requests("/wanted")[1]["object"]["metadata"]["labels"]


async def test_an_update_shows_both_objects_and_changes_the_new_one(hooked: HookedServer) -> None:
    await _create(hooked.server)
    hooked.hooks.on("/hook", patch({"op": "add", "path": "/data/hooked", "value": "yes"}))
    await hooked.mutating(hooked.webhook())
    assert (await _update(hooked.server, x="1"))["data"] == {"x": "1", "hooked": "yes"}
    (request,) = hooked.hooks.requests("/hook")
    assert request["operation"] == "UPDATE"
    assert ("data" in request["oldObject"], request["object"]["data"]) == (False, {"x": "1"})
    assert request["options"]["kind"] == "UpdateOptions"


async def test_a_webhook_cannot_rename_an_object(hooked: HookedServer) -> None:
    await _create(hooked.server)
    hooked.hooks.on("/hook", patch({"op": "replace", "path": "/metadata/name", "value": "b"}))
    await hooked.mutating(hooked.webhook())
    with pytest.raises(StatusError, match="field is immutable"):
        await _update(hooked.server, x="1")


async def test_a_generated_name_is_known_to_the_validating_webhooks_only(hooked: HookedServer) -> None:
    for path in ("/early", "/late"):
        hooked.hooks.on(path, {})
    await hooked.mutating(hooked.webhook("/early"))
    await hooked.validating(hooked.webhook("/late"))
    obj = {"metadata": {"generateName": "a-"}}
    created = await hooked.server.api.create(CONFIGMAPS, obj, namespace="default")
    early, late = hooked.hooks.requests("/early")[0], hooked.hooks.requests("/late")[0]
    assert ("name" in early, "name" in early["object"]["metadata"]) == (False, False)
    assert late["name"] == late["object"]["metadata"]["name"] == created["metadata"]["name"]
    assert late["object"]["metadata"]["uid"] == created["metadata"]["uid"]


async def test_a_change_by_another_writer_while_a_webhook_thinks_is_not_lost(hooked: HookedServer) -> None:
    await _create(hooked.server)
    calls = 0

    async def intrude(_: object) -> dict[str, Any]:
        nonlocal calls
        calls += 1
        if calls == 1:
            await _update(hooked.server, intruder="yes")
        return {}

    hooked.hooks.on("/hook", intrude)
    await hooked.validating(hooked.webhook())
    assert (await _update(hooked.server, x="1"))["data"] == {"x": "1", "intruder": "yes"}


# Validation and denials


async def test_validating_webhooks_are_called_at_the_same_time_with_the_final_object(hooked: HookedServer) -> None:
    both = asyncio.Barrier(2)

    async def meet(_: object) -> dict[str, Any]:
        await both.wait()
        return {}

    hooked.hooks.on("/mutate", label("late"))
    hooked.hooks.on("/one", meet)
    hooked.hooks.on("/two", meet)
    await hooked.mutating(hooked.webhook("/mutate"))
    await hooked.validating(hooked.webhook("/one"), hooked.webhook("/two"))
    await _create(hooked.server)
    for path in ("/one", "/two"):
        assert "late" in hooked.hooks.requests(path)[0]["object"]["metadata"]["labels"]


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
    hooked: HookedServer, status: dict[str, Any], code: int, text: str
) -> None:
    hooked.hooks.on("/hook", {"allowed": False, "status": status, "warnings": ["look out"]})
    await hooked.validating(hooked.webhook(failurePolicy="Ignore"))
    async with hooked.server.session() as session, session.post(_PATH, json={"metadata": {"name": "a"}}) as response:
        answer = await response.json()
        assert response.headers["Warning"] == '299 - "look out"'
    assert response.status == answer["code"] == code
    assert answer["message"] == f'admission webhook "hook.example.com" denied the request{text}'
    assert (answer.get("reason"), answer["status"]) == (status.get("reason"), "Failure")


async def test_a_denied_object_is_not_stored(hooked: HookedServer) -> None:
    hooked.hooks.on("/hook", _DENIED)
    await hooked.mutating(hooked.webhook())
    with pytest.raises(StatusError):
        await _create(hooked.server)
    assert hooked.server.api.list(CONFIGMAPS, "default")[0] == []


async def test_warnings_reach_the_client(hooked: HookedServer) -> None:
    hooked.hooks.on("/one", {"warnings": ["first", "second"]})
    hooked.hooks.on("/two", {"warnings": ["first"]})
    await hooked.mutating(hooked.webhook("/one"))
    await hooked.validating(hooked.webhook("/two", rules=[rule("configmaps", operations=("*",))]))
    async with hooked.server.session() as session:
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
async def test_rules_say_which_requests_are_meant(hooked: HookedServer, meant: Any, asked: bool) -> None:
    hooked.hooks.on("/hook", {})
    await hooked.validating(hooked.webhook(rules=[meant]))
    await _create(hooked.server)
    assert len(hooked.hooks.asked) == asked


async def test_subresources_are_meant_only_if_they_are_named(hooked: HookedServer) -> None:
    for path in ("/main", "/status"):
        hooked.hooks.on(path, {})
    await hooked.validating(
        hooked.webhook("/main", rules=[rule("pods")]), hooked.webhook("/status", rules=[rule("pods/status")])
    )
    pod = {"metadata": {"name": "a"}, "spec": {"containers": [{"name": "main", "image": "main"}]}}
    await hooked.server.api.create(PODS, pod, namespace="default")
    status = {"status": {"phase": "Running"}}
    await hooked.server.api.patch(PODS, "default", "a", status, patch_type=PatchType.MERGE, subresource="status")
    assert len(hooked.hooks.requests("/main")) == 1
    (request,) = hooked.hooks.requests("/status")
    assert (request["subResource"], request["requestSubResource"]) == ("status", "status")
    assert request["object"]["status"]["phase"] == "Running"


async def test_the_object_selector_looks_at_the_new_and_the_old_object(hooked: HookedServer) -> None:
    hooked.hooks.on("/hook", {})
    await hooked.validating(hooked.webhook(objectSelector={"matchLabels": {"team": "red"}}))
    await _create(hooked.server, "a", team="red")
    await _create(hooked.server, "b", team="blue")
    labels = {"metadata": {"labels": {"team": "blue"}}}
    for _ in range(2):
        await hooked.server.api.patch(CONFIGMAPS, "default", "a", labels, patch_type=PatchType.MERGE)
    assert [request["name"] for request in hooked.hooks.requests("/hook")] == ["a", "a"]


async def test_the_namespace_selector_looks_at_the_labels_of_the_namespace(hooked: HookedServer) -> None:
    hooked.hooks.on("/hook", {})
    selector = {
        "matchExpressions": [{"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["default"]}]
    }
    await hooked.validating(hooked.webhook(namespaceSelector=selector, rules=[rule("*")]))
    await _create(hooked.server, "exempt")
    await _create(hooked.server, "meant", namespace="kube-system")
    await hooked.server.api.create(NODES, {"metadata": {"name": "node"}})
    await hooked.server.api.create(NAMESPACES, {"metadata": {"name": "space"}})
    asked = hooked.hooks.requests("/hook")
    assert [request["name"] for request in asked] == ["meant", "node", "space"]
    assert [request.get("namespace") for request in asked] == ["kube-system", None, "space"]


async def test_match_conditions_have_the_last_word(hooked: HookedServer) -> None:
    hooked.hooks.on("/hook", {})
    conditions = [
        {"name": "not-ours", "expression": "!request.userInfo.username.startsWith('trainmaster')"},
        {"name": "growing", "expression": "oldObject == null || size(object.data) > size(oldObject.data)"},
    ]
    await hooked.validating(hooked.webhook(matchConditions=conditions))
    obj = {"metadata": {"name": "a"}, "data": {"x": "1", "y": "2"}}
    await hooked.server.api.create(CONFIGMAPS, obj, namespace="default")
    await _update(hooked.server, x="2")
    await _update(hooked.server, z="3")
    assert [request["object"]["data"].get("z") for request in hooked.hooks.requests("/hook")] == [None, "3"]
    async with hooked.server.session() as session, session.post(_PATH, json={"metadata": {"name": "b"}}) as answer:
        assert answer.status == 201
    assert len(hooked.hooks.asked) == 2


@pytest.mark.parametrize("policy", ["Fail", "Ignore"])
async def test_a_condition_without_result_counts_as_the_failure_policy_says(hooked: HookedServer, policy: str) -> None:
    hooked.hooks.on("/hook", _DENIED)
    conditions = [{"name": "broken", "expression": 'object.data.missing == "x"'}]
    await hooked.validating(hooked.webhook(matchConditions=conditions, failurePolicy=policy))
    if policy == "Ignore":
        await _create(hooked.server)
    else:
        with pytest.raises(StatusError) as caught:
            await _create(hooked.server)
        text = "expression 'object.data.missing == \"x\"' resulted in error: no such key: data"
        assert (caught.value.code, caught.value.message) == (403, f'configmaps "a" is forbidden: {text}')
    assert hooked.hooks.asked == []


async def test_events_are_shown_in_the_version_that_the_rule_names(hooked: HookedServer) -> None:
    """The same objects are served as core/v1 and as events.k8s.io/v1."""
    for path in ("/equivalent", "/exact"):
        hooked.hooks.on(path, {})
    rules = [rule("events", group="events.k8s.io")]
    await hooked.validating(
        hooked.webhook("/equivalent", rules=rules), hooked.webhook("/exact", rules=rules, matchPolicy="Exact")
    )
    event = {
        "metadata": {"name": "a"},
        "involvedObject": {"kind": "Pod", "name": "p", "namespace": "default"},
        "message": "hello",
        "reason": "Tested",
        "type": "Normal",
    }
    await hooked.server.api.create(EVENTS, event, namespace="default")
    assert hooked.hooks.requests("/exact") == []
    (request,) = hooked.hooks.requests("/equivalent")
    assert (request["resource"]["group"], request["requestResource"]["group"]) == ("events.k8s.io", "")
    assert (request["object"]["apiVersion"], request["object"]["note"]) == ("events.k8s.io/v1", "hello")


async def test_deletions_show_the_old_object_and_can_be_denied(hooked: HookedServer) -> None:
    hooked.hooks.on("/hook", _DENIED)
    await _create(hooked.server)
    await hooked.validating(hooked.webhook(rules=[rule("configmaps", operations=("DELETE",))]))
    with pytest.raises(StatusError, match="denied the request: no"):
        await hooked.server.api.delete(CONFIGMAPS, "default", "a")
    with pytest.raises(StatusError, match="denied the request: no"):
        await hooked.server.api.delete_collection(CONFIGMAPS, "default")
    hooked.hooks.on("/hook", {})
    await hooked.server.api.delete(
        CONFIGMAPS, "default", "a", options=DeleteOptions(propagation="Background", grace_seconds=0)
    )
    request = hooked.hooks.requests("/hook")[-1]
    assert (request["operation"], request["object"], request["oldObject"]["metadata"]["name"]) == ("DELETE", None, "a")
    assert request["options"] == {
        "kind": "DeleteOptions",
        "apiVersion": "meta.k8s.io/v1",
        "gracePeriodSeconds": 0,
        "propagationPolicy": "Background",
    }
    assert hooked.server.api.list(CONFIGMAPS, "default")[0] == []


async def test_a_mutating_webhook_may_deny_a_deletion_but_not_change_it(hooked: HookedServer) -> None:
    await _create(hooked.server)
    await hooked.mutating(hooked.webhook(rules=[rule("configmaps", operations=("DELETE",))]))
    hooked.hooks.on("/hook", label("x"))
    with pytest.raises(StatusError) as caught:
        await hooked.server.api.delete(CONFIGMAPS, "default", "a")
    assert (caught.value.code, "attempted to modify the object" in caught.value.message) == (500, True)
    hooked.hooks.on("/hook", {})
    await hooked.server.api.delete(CONFIGMAPS, "default", "a")


async def test_a_dry_run_calls_only_webhooks_that_promise_to_do_nothing(hooked: HookedServer) -> None:
    hooked.hooks.on("/hook", {})
    await hooked.validating(hooked.webhook(sideEffects="NoneOnDryRun"))
    obj = {"metadata": {"name": "a"}}
    await hooked.server.api.create(CONFIGMAPS, obj, namespace="default", options=WriteOptions(dry_run=True))
    assert hooked.hooks.requests("/hook")[0]["dryRun"] is True


async def test_configurations_are_exempt_and_their_changes_count_at_once(hooked: HookedServer) -> None:
    """A webhook that denies everything could otherwise never be removed."""
    hooked.hooks.on("/hook", _DENIED)
    everything = [rule("*/*", group="*", operations=("*",))]
    await hooked.validating(hooked.webhook(rules=everything))
    await hooked.mutating(hooked.webhook(rules=everything))
    with pytest.raises(StatusError, match="denied"):
        await _create(hooked.server)
    narrowed = {"webhooks": [{"name": "hook.example.com", "rules": [rule("secrets")]}]}
    await hooked.server.api.patch(MUTATING_WEBHOOKS, None, "mutating", narrowed, patch_type=PatchType.STRATEGIC)
    await hooked.server.api.delete(VALIDATING_WEBHOOKS, None, "validating")
    await _create(hooked.server)
