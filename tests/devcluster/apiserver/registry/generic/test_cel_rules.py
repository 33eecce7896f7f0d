"""Rules in CEL, as clients meet them: the texts are those of a real API server with the same definitions."""

from __future__ import annotations

from typing import Any

import pytest
from support.definitions import definitions

from trainmaster.devcluster.apiserver.errors import StatusError
from trainmaster.devcluster.apiserver.registry.generic import Api, PatchType, WriteOptions
from trainmaster.devcluster.apiserver.resources import CRDS, JOBSETS, GroupResource
from trainmaster.devcluster.crds.install import JOBSET_DEFINITIONS
from trainmaster.runtime.jsontree import copy_tree

WIDGETS = GroupResource("example.com", "widgets")


def replicated(name: str = "node", **more: Any) -> dict[str, Any]:
    pod = {"containers": [{"name": "node", "image": "registry.test/train:1"}]}
    return {"name": name, "template": {"spec": {"template": {"spec": pod}}}, **more}


def dependent(status: str) -> dict[str, Any]:
    dependency = [{"name": "a", "status": status}]
    return {"replicatedJobs": [replicated("a"), replicated(dependsOn=dependency)]}


def causes(error: StatusError) -> dict[str, str]:
    assert error.code == 422
    assert error.details is not None
    return {cause["field"]: cause["message"] for cause in error.details["causes"]}


async def test_jobsets_have_rules_too(api: Api) -> None:
    for definition in definitions(JOBSET_DEFINITIONS):
        await api.create(CRDS, definition)
    ordered = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "demo"},
        "spec": {"startupPolicy": {"startupPolicyOrder": "InOrder"}, **dependent("Ready")},
    }
    with pytest.raises(StatusError) as caught:
        await api.create(JOBSETS, ordered, namespace="default")
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
