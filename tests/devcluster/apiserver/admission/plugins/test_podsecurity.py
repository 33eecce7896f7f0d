"""The PodSecurity plugin: what a namespace that enforces a level refuses of new pods."""

from typing import Any

import pytest
from support.apiserver import assert_refused
from support.devcluster.stepper import Stepper

from trainmaster.devcluster.apiserver.resources import NAMESPACES, PODS
from trainmaster.runtime.jsontree import JsonObject

LABEL = "pod-security.kubernetes.io/enforce"
GOOD: Any = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "runAsNonRoot": True,
    "seccompProfile": {"type": "RuntimeDefault"},
}


async def namespace(cluster: Stepper, level: str) -> None:
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team", "labels": {LABEL: level}}}
    await cluster.api.create(NAMESPACES, body)


async def create(cluster: Stepper, context: Any = None, pod: Any = None, **spec: Any) -> JsonObject:
    containers = [{"name": "node", "image": "i", "securityContext": context or {}, **spec.pop("container", {})}]
    body = {"metadata": {"name": "p"}, "spec": {"containers": containers, "securityContext": pod or {}, **spec}}
    return await cluster.api.create(PODS, body, namespace="team")


async def test_a_restricted_namespace_says_all_that_a_pod_lacks(cluster: Stepper) -> None:
    await namespace(cluster, "restricted")
    await assert_refused(
        create(cluster),
        403,
        'pods "p" is forbidden: violates PodSecurity "restricted:latest": allowPrivilegeEscalation != false (container '
        '"node" must set securityContext.allowPrivilegeEscalation=false), unrestricted capabilities (container "node" '
        'must set securityContext.capabilities.drop=["ALL"]',
        'runAsNonRoot != true (pod or container "node" must set securityContext.runAsNonRoot=true), seccompProfile '
        '(pod or container "node" must set securityContext.seccompProfile.type to "RuntimeDefault" or "Localhost")',
    )
    await create(cluster, GOOD)


async def test_what_the_pod_says_counts_for_its_containers(cluster: Stepper) -> None:
    await namespace(cluster, "restricted")
    own = {field: GOOD[field] for field in ("allowPrivilegeEscalation", "capabilities")}
    await create(cluster, own, {field: GOOD[field] for field in ("runAsNonRoot", "seccompProfile")})


@pytest.mark.parametrize(
    ("context", "spec", "complaint"),
    [
        ({"privileged": True}, {}, 'privileged (container "node" must not set securityContext.privileged=true)'),
        ({}, {"hostNetwork": True}, "host namespaces (hostNetwork=true)"),
        ({"capabilities": {"add": ["SYS_ADMIN", "KILL"]}}, {}, 'must not include "SYS_ADMIN" in'),
        ({}, {"volumes": [{"name": "v", "hostPath": {"path": "/"}}]}, 'hostPath volumes (volume "v")'),
        ({}, {"container": {"ports": [{"containerPort": 1, "hostPort": 2}]}}, "must not use hostPorts 2"),
        ({"seccompProfile": {"type": "Unconfined"}}, {}, "seccompProfile"),
    ],
)
async def test_baseline_refuses_ways_to_the_host(cluster: Stepper, context: Any, spec: Any, complaint: str) -> None:
    await namespace(cluster, "baseline")
    await assert_refused(create(cluster, context, **spec), 403, 'violates PodSecurity "baseline:latest"', complaint)
    await create(cluster)


@pytest.mark.parametrize(
    ("context", "spec", "complaint"),
    [
        ({**GOOD, "runAsUser": 0}, {}, "runAsUser=0"),
        ({**GOOD, "capabilities": {"drop": ["ALL"], "add": ["CHOWN"]}}, {}, "unrestricted capabilities"),
        (GOOD, {"volumes": [{"name": "v", "nfs": {"server": "s", "path": "/"}}]}, 'volume "v" uses nfs'),
    ],
)
async def test_restricted_refuses_more(cluster: Stepper, context: Any, spec: Any, complaint: str) -> None:
    await namespace(cluster, "restricted")
    await assert_refused(create(cluster, context, **spec), 403, complaint)


async def test_an_unknown_level_is_refused(cluster: Stepper) -> None:
    await assert_refused(namespace(cluster, "strict"), 422, "must be one of privileged, baseline, restricted")
    await namespace(cluster, "privileged")
    await create(cluster, {"privileged": True})
