"""Gangs of Kubernetes itself on an API server: its API comes, a TrainJob gets its groups, and gives them back.

The embedded API server does not have that API, so definitions play its part.
"""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from support.processes import DEFINITIONS
from support.stack import Stack, api_server, manager
from support.training import apply_runtime, conditions, found, runtime, trainjob, until

from trainmaster.controller.kube.rest.resources import Resource
from trainmaster.controller.resources import JOBSETS, TRAINJOBS
from trainmaster.plugins.workload import Workload
from trainmaster.runtime.framework import Framework, load_plugins
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.scheduling import object_name

GROUP, VERSION = "scheduling.k8s.io", "v1alpha2"
POD_GROUPS = Resource(GROUP, VERSION, "PodGroup", "podgroups", namespaced=True)
WORKLOADS = Resource(GROUP, VERSION, "Workload", "workloads", namespaced=True)


@pytest.fixture
async def stack(tmp_path: Path, impatient: None) -> AsyncIterator[Stack]:
    async with api_server(tmp_path) as stack:
        if stack.cluster is None:
            pytest.skip("definitions are those of the cluster")
        yield stack


def definition(resource: Resource) -> JsonObject:
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": VERSION, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    names = {"kind": resource.kind, "plural": resource.plural, "singular": resource.kind.lower()}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": DEFINITIONS.kind,
        "metadata": {
            "name": f"{resource.plural}.{GROUP}",
            "annotations": {"api-approved.kubernetes.io": "https://github.com/kubernetes/enhancements/issues/4671"},
        },
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {**names, "listKind": f"{resource.kind}List"},
            "versions": [version],
        },
    }


async def test_a_trainjob_has_its_groups_while_it_is_not_suspended(stack: Stack) -> None:
    gang = runtime("gang")
    gang["spec"] |= {"mlPolicy": {"numNodes": 3}, "scheduling": {"disruptionMode": "PodGroup"}}
    await apply_runtime(stack.client, gang)
    workload, group = object_name("demo"), object_name("demo", "trainjob")
    client = stack.client

    async def blocked() -> str | None:
        return ((await conditions(client, "demo")).get("Blocked") or {}).get("message")

    async def starts() -> bool:
        return await blocked() is None

    async def released() -> bool:
        return not (await found(client, POD_GROUPS, group) or await found(client, WORKLOADS, workload))

    async with manager(stack.access, framework=Framework([*load_plugins(), Workload()])):
        await client.create(TRAINJOBS, trainjob("demo", on="gang"))
        assert "GenericWorkload" in str(await until(blocked))
        for each in (WORKLOADS, POD_GROUPS):
            await client.create(DEFINITIONS, definition(each))
        jobset = await until(lambda: found(client, JOBSETS, "demo"))
        pods = jobset["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
        assert pods["schedulingGroup"] == {"podGroupName": group}
        first = await client.get(POD_GROUPS, "default", group)
        assert first["spec"]["schedulingPolicy"] == {"gang": {"minCount": 3}}
        for suspended in (True, False):
            await client.patch(TRAINJOBS, "default", "demo", {"spec": {"suspend": suspended}}, field_manager="user")
            await until(released if suspended else lambda: found(client, POD_GROUPS, group))
        assert (await client.get(POD_GROUPS, "default", group))["metadata"]["uid"] != first["metadata"]["uid"]
        assert not (await client.get(JOBSETS, "default", "demo"))["spec"]["suspend"]
        await until(starts)
