"""Webhook configurations as objects: their defaults and their rules."""

from typing import Any

import pytest
from support.apiserver import assert_refused

from trainmaster.devcluster.apiserver.errors import StatusError
from trainmaster.devcluster.apiserver.registry.generic import Api, PatchType
from trainmaster.devcluster.apiserver.resources import MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS


def _webhook(**more: Any) -> dict[str, Any]:
    return {
        "name": "hook.example.com",
        "clientConfig": {"url": "https://localhost/hook"},
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "rules": [_rule()],
        **more,
    }


def _rule(**more: Any) -> dict[str, Any]:
    return {"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], **more}


async def _create(api: Api, *webhooks: dict[str, Any], mutating: bool = True) -> Any:
    resource = MUTATING_WEBHOOKS if mutating else VALIDATING_WEBHOOKS
    return await api.create(resource, {"metadata": {"name": "a"}, "webhooks": list(webhooks)})


async def test_defaults(api: Api) -> None:
    client = {"service": {"namespace": "default", "name": "hooks"}}
    mutating = (await _create(api, _webhook(clientConfig=client)))["webhooks"][0]
    validating = (await _create(api, _webhook(clientConfig=client), mutating=False))["webhooks"][0]
    assert mutating.pop("reinvocationPolicy") == "Never"
    assert mutating == validating
    assert validating == {
        **_webhook(rules=[_rule(scope="*")]),
        "clientConfig": {"service": {"namespace": "default", "name": "hooks", "port": 443}},
        "failurePolicy": "Fail",
        "matchPolicy": "Equivalent",
        "namespaceSelector": {},
        "objectSelector": {},
        "timeoutSeconds": 10,
    }


async def test_the_generation_counts_changes_of_webhooks(api: Api) -> None:
    created = await _create(api, _webhook())
    patch = {"metadata": {"labels": {"a": "b"}}}
    labelled, _ = await api.patch(MUTATING_WEBHOOKS, None, "a", patch, patch_type=PatchType.MERGE)
    changed, _ = await api.patch(MUTATING_WEBHOOKS, None, "a", {"webhooks": []}, patch_type=PatchType.MERGE)
    assert [each["metadata"]["generation"] for each in (created, labelled, changed)] == [1, 1, 2]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"sideEffects": "Some"}, 'sideEffects: Unsupported value: "Some": supported values: "None", "NoneOnDryRun"'),
        ({"failurePolicy": "x"}, 'failurePolicy: Unsupported value: "x": supported values: "Fail", "Ignore"'),
        ({"matchPolicy": "x"}, 'matchPolicy: Unsupported value: "x": supported values: "Equivalent", "Exact"'),
        (
            {"reinvocationPolicy": "x"},
            'reinvocationPolicy: Unsupported value: "x": supported values: "IfNeeded", "Never"',
        ),
        ({"timeoutSeconds": 0}, "timeoutSeconds: Invalid value: 0: the timeout value must be between 1 and 30 seconds"),
        ({"timeoutSeconds": 31}, "timeoutSeconds: Invalid value: 31"),
        ({"admissionReviewVersions": []}, "admissionReviewVersions: Required value: must specify one of v1, v1beta1"),
        ({"admissionReviewVersions": ["v2"]}, 'Invalid value: ["v2"]: must include at least one of v1, v1beta1'),
        ({"clientConfig": {}}, "clientConfig: Required value: exactly one of url or service is required"),
        (
            {"clientConfig": {"url": "http://a"}},
            "clientConfig.url: Invalid value: \"http\": 'https' is the only allowed URL scheme; desired format",
        ),
        (
            {"objectSelector": {"matchExpressions": [{"key": "a", "operator": "In"}]}},
            "objectSelector.matchExpressions[0].values: Required value: must be specified when `operator` is",
        ),
        (
            {"namespaceSelector": {"matchExpressions": [{"key": "a", "operator": "Near"}]}},
            'namespaceSelector.matchExpressions[0].operator: Invalid value: "Near": not a valid selector operator',
        ),
        (
            {"matchConditions": [{"name": "a", "expression": "objet == 1"}]},
            'matchConditions[0].expression: Invalid value: "objet == 1": compilation failed: ERROR: <input>:1:1',
        ),
        (
            {"matchConditions": [{"name": "a", "expression": "1 + 1"}]},
            'matchConditions[0].expression: Invalid value: "1 + 1": must evaluate to bool',
        ),
        ({"matchConditions": [{"name": "a", "expression": " "}]}, "matchConditions[0].expression: Required value"),
        ({"rules": [_rule(operations=["PATCH"])]}, 'rules[0].operations[0]: Unsupported value: "PATCH"'),
        ({"rules": [_rule(scope="Node")]}, 'rules[0].scope: Unsupported value: "Node"'),
    ],
)
async def test_rules(api: Api, change: dict[str, Any], problem: str) -> None:
    await assert_refused(_create(api, _webhook(**change)), 422, "webhooks[0].", problem)


@pytest.mark.parametrize("field", ["name", "clientConfig", "sideEffects", "admissionReviewVersions"])
async def test_fields_without_which_there_is_no_webhook(api: Api, field: str) -> None:
    webhook = _webhook()
    del webhook[field]
    with pytest.raises(StatusError, match=rf"webhooks\[0\]\.{field}: Required value"):
        await _create(api, webhook)


async def test_an_update_must_name_the_version_it_replaces(api: Api) -> None:
    created = await _create(api, _webhook())
    del created["metadata"]["resourceVersion"]
    with pytest.raises(StatusError, match="must be specified for an update"):
        await api.update(MUTATING_WEBHOOKS, created)


async def test_what_cannot_be_done_is_refused_when_it_is_asked_for(api: Api) -> None:
    may = [{"name": "may", "expression": 'authorizer.group("").check("create").allowed()'}]
    for change in ({"admissionReviewVersions": ["v1beta1"]}, {"matchConditions": may}):
        await assert_refused(_create(api, _webhook(**change)), 501)
