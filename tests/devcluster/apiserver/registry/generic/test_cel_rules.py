"""Rules in CEL, as clients meet them: the texts are those of a real API server with the same definitions."""

from __future__ import annotations

from typing import Any

import pytest
from support.definitions import definitions

from trainmaster.devcluster.apiserver.errors import StatusError
from trainmaster.devcluster.apiserver.registry.generic import Api, PatchType, WriteOptions
from trainmaster.devcluster.apiserver.resources import CRDS, JOBSETS, TRAINJOBS, GroupResource
from trainmaster.runtime.jsontree import copy_tree

RUNTIMES = GroupResource("trainer.kubeflow.org", "trainingruntimes")
WIDGETS = GroupResource("example.com", "widgets")
UNCHECKED = (
    "Invalid value: null: some validation rules were not checked because the object was invalid; "
    "correct the existing errors to complete validation"
)
SUBDOMAIN = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    r"'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
NO_LABEL = "Invalid value: metadata.name must match RFC 1035 DNS label format"
POD = "template.spec.replicatedJobs[0].template.spec.template.spec"


@pytest.fixture
async def trainer(api: Api) -> Api:
    """An Api that serves the definitions of Trainer and JobSet."""
    for definition in definitions():
        await api.create(CRDS, definition)
    return api


def job(name: str = "demo", **spec: Any) -> dict[str, Any]:
    head = {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "metadata": {"name": name}}
    return {**head, "spec": {"runtimeRef": {"name": "rt", "kind": "TrainingRuntime"}, **spec}}


def replicated(name: str = "node", **more: Any) -> dict[str, Any]:
    pod = {"containers": [{"name": "node", "image": "registry.test/train:1"}]}
    return {"name": name, "template": {"spec": {"template": {"spec": pod}}}, **more}


def runtime(policy: dict[str, Any], **jobset: Any) -> dict[str, Any]:
    head = {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainingRuntime", "metadata": {"name": "rt"}}
    template = {"spec": {"replicatedJobs": [replicated()], **jobset}}
    return {**head, "spec": {"mlPolicy": policy, "template": template}}


def gang(policy: dict[str, Any]) -> dict[str, Any]:
    obj = runtime({})
    return {**obj, "spec": {**obj["spec"], "podGroupPolicy": policy}}


def patched(account: str) -> dict[str, Any]:
    pod = {"spec": {"template": {"spec": {"serviceAccountName": account}}}}
    template = {"spec": {"replicatedJobs": [{"name": "node", "template": pod}]}}
    return {"runtimePatches": [{"manager": "acme.io/a", "trainingRuntimeSpec": {"template": template}}]}


def dependent(status: str) -> dict[str, Any]:
    dependency = [{"name": "a", "status": status}]
    return {"replicatedJobs": [replicated("a"), replicated(dependsOn=dependency)]}


def causes(error: StatusError) -> dict[str, str]:
    assert error.code == 422
    assert error.details is not None
    return {cause["field"]: cause["message"] for cause in error.details["causes"]}


@pytest.mark.parametrize(
    ("obj", "expected"),
    [
        (job("a" * 64), {"<nil>": "Invalid value: metadata.name must be no more than 63 characters"}),
        (job("1demo"), {"<nil>": NO_LABEL}),
        (job("Demo"), {"<nil>": NO_LABEL, "metadata.name": f'Invalid value: "Demo": {SUBDOMAIN}'}),
        (job("a.b"), {"<nil>": NO_LABEL}),
        (job("abc-"), {"<nil>": NO_LABEL, "metadata.name": f'Invalid value: "abc-": {SUBDOMAIN}'}),
        (
            job(initializer={"model": {"storageUri": "just-a-name"}}),
            {
                "spec.initializer.model.storageUri": 'Invalid value: "just-a-name": storageUri may be empty, '
                "or it must be a valid URI (scheme://...)"
            },
        ),
        (
            {**job(), "spec": {}},
            {"<nil>": UNCHECKED, "spec.runtimeRef": "Required value"},
        ),
        (
            job("1demo", trainer={"image": "x" * 501}),
            {"<nil>": UNCHECKED, "spec.trainer.image": "Too long: may not be more than 500 bytes"},
        ),
        (
            runtime({"torch": {}, "mpi": {}}),
            {"spec.mlPolicy": "Invalid value: Only one of the policy can be configured"},
        ),
        (
            runtime({"xgboost": {}, "torch": {}}),
            {"spec.mlPolicy": "Invalid value: Only one of the policy can be configured"},
        ),
        (
            runtime({"custom": {"name": "acme"}, "jax": {}}),
            {"spec.mlPolicy": "Invalid value: Only one of the policy can be configured"},
        ),
        (
            gang({"custom": {"name": "acme"}, "volcano": {}}),
            {"spec.podGroupPolicy": "Invalid value: Only one of the policy can be configured"},
        ),
        (
            gang({"custom": {"name": "acme"}, "coscheduling": {}}),
            {"spec.podGroupPolicy": "Invalid value: Only one of the policy can be configured"},
        ),
        (
            runtime({"custom": {"config": {"any": "thing"}}}),
            {"<nil>": UNCHECKED, "spec.mlPolicy.custom.name": "Required value"},
        ),
        (
            runtime({"torch": {"envInjection": {"targets": [{"jobName": "node", "containerNames": ["x", "node"]}]}}}),
            {
                "spec.mlPolicy.torch.envInjection.targets[0].containerNames": "Invalid value: containerNames must not "
                "include the main node container because PET_* envs are always injected into it"
            },
        ),
    ],
)
async def test_objects_that_are_refused(trainer: Api, obj: dict[str, Any], expected: dict[str, str]) -> None:
    resource = TRAINJOBS if obj["kind"] == "TrainJob" else RUNTIMES
    with pytest.raises(StatusError) as caught:
        await trainer.create(resource, obj, namespace="default")
    assert causes(caught.value) == expected


@pytest.mark.parametrize(
    ("before", "spec", "expected"),
    [
        (
            job(initializer={"dataset": {"storageUri": "hf://a/b"}}),
            {"initializer": {"dataset": {"storageUri": "hf://c/d"}}},
            {"spec.initializer": "Invalid value: field is immutable"},
        ),
        (job(), {"runtimeRef": {"name": "other"}}, {"spec.runtimeRef": "Invalid value: field is immutable"}),
        (
            job(),
            {"managedBy": "kueue.x-k8s.io/multikueue"},
            {"spec.managedBy": 'Invalid value: "kueue.x-k8s.io/multikueue": field is immutable'},
        ),
        (
            job(suspend=True, **patched("x")),
            patched("y"),
            {
                f"spec.runtimePatches[0].trainingRuntimeSpec.{POD}.serviceAccountName": 'Invalid value: "y": '
                "field is immutable"
            },
        ),
        (
            runtime({"torch": {}}),
            {"mlPolicy": {"jax": {}}},
            {"spec.mlPolicy": "Invalid value: Only one of the policy can be configured"},
        ),
        (
            runtime({"torch": {}}, network={"subdomain": "a"}),
            {"template": {"spec": {"network": {"subdomain": "b"}}}},
            {"spec.template.spec.network": "Invalid value: Value is immutable"},
        ),
        (
            runtime({"torch": {}}, **dependent("Complete")),
            {"template": {"spec": dependent("Ready")}},
            {"spec.template.spec.replicatedJobs[1].dependsOn": "Invalid value: Value is immutable"},
        ),
        (
            runtime({"torch": {}}, failurePolicy={"maxRestarts": 1}),
            {"template": {"spec": {"failurePolicy": {"maxRestarts": 2}}}},
            {"spec.template.spec.failurePolicy": "Invalid value: Value is immutable"},
        ),
    ],
)
async def test_changes_that_are_refused(
    trainer: Api, before: dict[str, Any], spec: dict[str, Any], expected: dict[str, str]
) -> None:
    resource = TRAINJOBS if before["kind"] == "TrainJob" else RUNTIMES
    await trainer.create(resource, before, namespace="default")
    name = before["metadata"]["name"]
    with pytest.raises(StatusError) as caught:
        await trainer.patch(resource, "default", name, {"spec": spec}, patch_type=PatchType.MERGE)
    assert causes(caught.value) == expected


@pytest.mark.parametrize(
    ("status", "field", "text"),
    [
        (
            {"trainerStatus": {"progressPercentage": 1}},
            "status.trainerStatus",
            "Invalid value: lastUpdatedTime is required when trainerStatus is present",
        ),
        ({"jobsStatus": [{"name": "node"}]}, "<nil>", UNCHECKED),
    ],
)
async def test_rules_cover_the_status(trainer: Api, status: dict[str, Any], field: str, text: str) -> None:
    await trainer.create(TRAINJOBS, job(), namespace="default")
    with pytest.raises(StatusError) as caught:
        await trainer.patch(
            TRAINJOBS, "default", "demo", {"status": status}, patch_type=PatchType.MERGE, subresource="status"
        )
    assert causes(caught.value)[field] == text


async def test_optional_fields_may_come_and_go(trainer: Api) -> None:
    await trainer.create(TRAINJOBS, job(), namespace="default")
    for deadline in (5, None):
        body = {"spec": {"activeDeadlineSeconds": deadline}}
        await trainer.patch(TRAINJOBS, "default", "demo", body, patch_type=PatchType.MERGE)


async def test_jobsets_have_rules_too(trainer: Api) -> None:
    ordered = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "demo"},
        "spec": {"startupPolicy": {"startupPolicyOrder": "InOrder"}, **dependent("Ready")},
    }
    with pytest.raises(StatusError) as caught:
        await trainer.create(JOBSETS, ordered, namespace="default")
    assert causes(caught.value) == {"spec": "Invalid value: StartupPolicy and DependsOn APIs are mutually exclusive"}


def with_rule(crd: dict[str, Any], entry: dict[str, Any]) -> dict[str, Any]:
    changed: dict[str, Any] = copy_tree(crd)
    schema = changed["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    schema["properties"]["spec"]["x-kubernetes-validations"] = [entry]
    return changed


async def test_a_rule_that_came_later_only_warns_of_what_is_there(api: Api, define: Any) -> None:
    """Ratcheting: an object stays usable when its definition gets stricter."""
    crd = await define()
    widget = {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": {"size": 9}}
    await api.create(WIDGETS, widget, namespace="default")
    await api.update(CRDS, with_rule(crd, {"rule": "self.size < 5", "message": "too big"}))
    options = WriteOptions()
    label = {"metadata": {"labels": {"a": "b"}}}
    await api.patch(WIDGETS, "default", "w", label, patch_type=PatchType.MERGE, options=options)
    assert options.warnings == ["spec: Invalid value: too big"]
    with pytest.raises(StatusError, match="spec: Invalid value: too big"):
        await api.patch(WIDGETS, "default", "w", {"spec": {"size": 8}}, patch_type=PatchType.MERGE)


async def test_a_rule_that_does_not_compile_is_the_definition_s_error(api: Api, define: Any) -> None:
    crd = await define()
    entry = {"rule": "self.colour == 'red'", "message": "paint it"}
    with pytest.raises(StatusError) as caught:
        await api.update(CRDS, with_rule(crd, entry))
    assert causes(caught.value) == {
        "spec.validation.openAPIV3Schema.properties[spec].x-kubernetes-validations[0].rule": "Invalid value: "
        '{"rule":"self.colour == \'red\'","message":"paint it"}: compilation failed: '
        "ERROR: <input>:1:5: undefined field 'colour'\n | self.colour == 'red'\n | ....^"
    }
    assert api.get(CRDS, None, "widgets.example.com") == crd
