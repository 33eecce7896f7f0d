"""Whole pods and templates: what depends on metadata, on there being a pod at all, and on its past."""

from __future__ import annotations

from typing import Any

import pytest
from support.podlifecycle import container, in_short, pod_spec, wrong, wrong_in_template

from trainmaster.devcluster.apiserver.registry.core.validation.pods.pod_resize import validate_pod_resize
from trainmaster.devcluster.apiserver.registry.core.validation.pods.pod_status import validate_pod_status_update
from trainmaster.devcluster.apiserver.registry.core.validation.pods.pod_update import validate_pod_update
from trainmaster.devcluster.apiserver.registry.core.validation.pods.pods import (
    validate_new_pod,
    validate_pod,
    validate_pod_template,
)
from trainmaster.runtime.jsontree import JsonObject

SECCOMP = "seccomp.security.alpha.kubernetes.io/pod"
APP_ARMOR = "container.apparmor.security.beta.kubernetes.io/"


def _pod(annotations: Any = None, /, **fields: Any) -> JsonObject:
    return {"metadata": {"name": "demo", "annotations": annotations or {}}, "spec": pod_spec(**fields)}


@pytest.mark.parametrize(
    ("key", "value", "found"),
    [
        ("controller.kubernetes.io/pod-deletion-cost", "-5", []),
        ("controller.kubernetes.io/pod-deletion-cost", "05", ["[%s] Invalid"]),
        ("controller.kubernetes.io/pod-deletion-cost", "2147483648", ["[%s] Invalid"]),
        ("kubernetes.io/config.mirror", "x", ["[%s] Invalid"]),
        (SECCOMP, "localhost/../a", [".%s Invalid"]),
        (SECCOMP, "strict", [".%s Invalid"]),
        (f"{APP_ARMOR}c", "localhost/a", []),
        (f"{APP_ARMOR}c", "a", ["[%s] Invalid"]),
        (f"{APP_ARMOR}other", "", ["[%s] Invalid"]),
    ],
)
def test_annotations_that_mean_something(key: str, value: str, found: list[str]) -> None:
    assert in_short(validate_pod(_pod({key: value}))) == [f"metadata.annotations{each % key}" for each in found]
    template = _pod({key: value})
    assert in_short(validate_pod_template(template, "t")) == [f"t.annotations{each % key}" for each in found]


@pytest.mark.parametrize(
    ("annotations", "fields", "found"),
    [
        ({}, {"ephemeralContainers": [container(name="e")]}, ["ephemeralContainers Forbidden"]),
        ({SECCOMP: "unconfined"}, {"securityContext": {"seccompProfile": {"type": "Unconfined"}}}, []),
        (
            {SECCOMP: "unconfined"},
            {"securityContext": {"seccompProfile": {"type": "RuntimeDefault"}}},
            ["securityContext.seccompProfile.type Forbidden"],
        ),
        (
            {SECCOMP: "localhost/a"},
            {"securityContext": {"seccompProfile": {"type": "Localhost", "localhostProfile": "b"}}},
            ["securityContext.seccompProfile.localhostProfile Forbidden"],
        ),
        (
            {f"{APP_ARMOR}c": "unconfined"},
            {"securityContext": {"appArmorProfile": {"type": "Localhost", "localhostProfile": "b"}}},
            ["containers[0].securityContext.appArmorProfile.type Forbidden"],
        ),
    ],
)
def test_what_a_new_pod_may_not_have(annotations: Any, fields: Any, found: list[str]) -> None:
    assert in_short(list(validate_new_pod(_pod(annotations, **fields)))) == found


def test_a_template_has_no_containers_for_debugging() -> None:
    template = _pod(ephemeralContainers=[container(name="e")])
    template["metadata"]["labels"] = {"a b": "c d"}
    assert in_short(validate_pod_template(template, "t")) == [
        "t.labels Invalid",
        "t.spec.ephemeralContainers Forbidden",
    ]


REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
GATES: Any = {"schedulingGates": [{"name": "a"}, {"name": "b"}]}


def _steered(*terms: Any, **others: Any) -> Any:
    return GATES | {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": list(terms)}}, **others}}


ONE: Any = {"matchExpressions": [{"key": "a", "operator": "Exists"}]}
TWO: Any = {"matchExpressions": [*ONE["matchExpressions"], {"key": "b", "operator": "Exists"}]}


@pytest.mark.parametrize(
    ("before", "after", "found"),
    [
        ({}, {"containers": [container(image="img:2")]}, []),
        ({"initContainers": [container(name="i")]}, {}, ["initContainers Forbidden"]),
        ({}, {"containers": [container(command=[], stdin=False)]}, []),
        ({}, {"terminationGracePeriodSeconds": 1}, ["spec Forbidden"]),
        ({"terminationGracePeriodSeconds": -1}, {"terminationGracePeriodSeconds": 1}, []),
        ({"activeDeadlineSeconds": 5}, {"activeDeadlineSeconds": 6}, ["activeDeadlineSeconds Invalid"]),
        ({}, {"activeDeadlineSeconds": 2**31}, ["activeDeadlineSeconds Invalid"]),
        ({"tolerations": [{"key": "a", "operator": "Exists"}]}, {}, ["tolerations Forbidden"]),
        (GATES, GATES | {"nodeSelector": {"a": "b"}}, []),
        (_steered(ONE), _steered(TWO), []),
        (_steered(TWO), _steered(ONE), [f"affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms[0] Invalid"]),
        (_steered(ONE), _steered(ONE, TWO), [f"affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms Invalid"]),
        (_steered(ONE), GATES, [f"affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms Invalid"]),
        (GATES, _steered(ONE, podAffinity={REQUIRED: [{"topologyKey": "a"}]}), ["spec Forbidden"]),
    ],
)
def test_what_of_a_pod_may_change(before: Any, after: Any, found: list[str]) -> None:
    assert in_short(list(validate_pod_update(pod_spec(**after), pod_spec(**before)))) == found


def test_a_refused_change_is_shown() -> None:
    (error,) = validate_pod_update(pod_spec(hostname="new"), pod_spec(hostname="old"))
    assert '-  "hostname": "old",' in error.detail.splitlines()
    assert '+  "hostname": "new",' in error.detail.splitlines()


def _asking(limits: Any, requests: Any, **fields: Any) -> JsonObject:
    return container(resources={"limits": limits, "requests": requests}, **fields)


@pytest.mark.parametrize(
    ("before", "after", "found"),
    [
        (_asking({"cpu": 2}, {"cpu": 1}), _asking({}, {"cpu": 1}), ["containers[0].resources.limits Forbidden"]),
        (_asking({"memory": 2, "cpu": 1}, {}), _asking({"memory": 2, "cpu": 2}, {"cpu": 1}), ["spec Invalid"]),
        (_asking({"memory": 2}, {}), _asking({"memory": 1}, {}), []),
        (_asking({"a.b/c": 1, "cpu": 1}, {}), _asking({"a.b/c": 2, "cpu": 1}, {}), ["spec Forbidden"]),
        (_asking({"cpu": 1}, {}), _asking({"cpu": 1}, {}, name="other"), ["spec Forbidden"]),
    ],
)
def test_only_cpu_and_memory_are_resized(before: Any, after: Any, found: list[str]) -> None:
    old, new = (_pod(containers=[each]) for each in (before, after))
    assert in_short(list(validate_pod_resize(new, old))) == found


ENDED: Any = {"name": "c", "state": {"terminated": {"exitCode": 0}}}
RUNNING: Any = {"name": "c", "state": {"running": {}}}


@pytest.mark.parametrize(
    ("before", "after", "found"),
    [
        ({}, {"phase": "Anything", "conditions": [{"type": "example.com/x"}, {"type": "Ready"}]}, []),
        ({}, {"conditions": [{"type": "a b"}]}, ["metadata.conditions[0].Type Invalid"]),
        ({}, {"observedGeneration": -1}, ["status.observedGeneration Invalid"]),
        ({}, {"nominatedNodeName": "N_1"}, ["status.nominatedNodeName Invalid"]),
        ({"qosClass": "Burstable"}, {}, ["status.qosClass Invalid"]),
        (
            {"containerStatuses": [ENDED]},
            {"containerStatuses": [RUNNING]},
            ["status.containerStatuses[0].state Forbidden"],
        ),
        ({"containerStatuses": [ENDED]}, {"containerStatuses": [ENDED]}, []),
        ({"containerStatuses": [ENDED]}, {}, []),
        ({}, {"podIPs": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}]}, []),
        ({}, {"podIPs": [{"ip": "10.0.0.1"}] * 2}, ["status.podIPs Invalid", "status.podIPs[1] Duplicate"]),
        ({}, {"hostIPs": [{"ip": "10.0.0.1"}]}, ["status.hostIPs[0].ip Invalid"]),
        ({}, {"hostIP": "10.0.0.1", "hostIPs": [{"ip": "10.0.0.1"}]}, []),
        (
            {},
            {"resourceClaimStatuses": [{"name": "g", "resourceClaimName": "x"}] * 2},
            ["status.resourceClaimStatuses[1].name Duplicate"],
        ),
        (
            {},
            {"resourceClaimStatuses": [{"name": "g", "resourceClaimName": "X"}]},
            ["status.resourceClaimStatuses[0].name Invalid"],
        ),
        (
            {},
            {"containerStatuses": [{"name": "c", "user": {"linux": {"uid": -1, "supplementalGroups": [-1]}}}]},
            [
                "status.containerStatuses[0].linux.supplementalGroups[0] Invalid",
                "status.containerStatuses[0].linux.uid Invalid",
            ],
        ),
    ],
)
def test_a_status_that_a_pod_can_have(before: Any, after: Any, found: list[str]) -> None:
    spec = pod_spec(restartPolicy="Never", resourceClaims=[{"name": "g", "resourceClaimTemplateName": "t"}])
    old, new = ({"metadata": {}, "spec": spec, "status": status} for status in (before, after))
    assert in_short(list(validate_pod_status_update(new, old))) == found


@pytest.mark.parametrize(
    ("policy", "fields", "code", "found"),
    [
        ("Always", {}, 0, False),
        ("OnFailure", {}, 1, False),
        ("OnFailure", {}, 0, True),
        ("Never", {}, 1, True),
        ("Never", {"restartPolicy": "OnFailure"}, 1, False),
        ("Always", {"restartPolicy": "Never"}, 1, True),
        ("Never", {"restartPolicy": "Never", "restartPolicyRules": [{"action": "Restart"}]}, 1, False),
    ],
)
def test_who_may_start_again(policy: str, fields: Any, code: int, found: bool) -> None:
    spec = pod_spec(restartPolicy=policy, containers=[container(**fields)])
    ended = {"name": "c", "state": {"terminated": {"exitCode": code}}}
    old = {"spec": spec, "status": {"containerStatuses": [ended]}}
    new = {"spec": spec, "status": {"containerStatuses": [RUNNING]}}
    assert bool(list(validate_pod_status_update(new, old))) is found


@pytest.mark.parametrize(
    ("fields", "found"),
    [
        ({"dnsPolicy": "None"}, ["dnsConfig Required"]),
        ({"dnsPolicy": "None", "dnsConfig": {"nameservers": ["::1"]}}, []),
        ({"dnsConfig": {"nameservers": ["1.2.3"]}}, ["dnsConfig.nameservers[0] Invalid"]),
        ({"dnsConfig": {"nameservers": ["010.0.0.1"]}}, []),
        ({"dnsConfig": {"nameservers": ["fe80::1%eth0"]}}, ["dnsConfig.nameservers[0] Invalid"]),
        ({"dnsConfig": {"searches": [".", "_tcp.example.com.", "a_b"]}}, []),
        ({"dnsConfig": {"searches": ["A.b", ""]}}, ["dnsConfig.searches[0] Invalid", "dnsConfig.searches[1] Invalid"]),
        ({"dnsConfig": {"searches": ["a" * 64]}}, []),
        (
            {"hostAliases": [{"ip": "nope", "hostnames": ["a", "B"]}]},
            ["hostAliases[0].hostnames[1] Invalid", "hostAliases[0].ip Invalid"],
        ),
        ({"hostname": "a.b"}, ["hostname Invalid"]),
        ({"hostnameOverride": "a.example.com"}, []),
        ({"hostnameOverride": "A"}, ["hostnameOverride Invalid"]),
        ({"hostnameOverride": "a" * 60 + ".b.cd"}, ["hostnameOverride TooLong"]),
    ],
)
def test_names_of_a_pod_and_of_others(fields: Any, found: list[str]) -> None:
    assert wrong(**fields) == found


def test_ports_are_those_of_the_host_in_its_network() -> None:
    one = [container(ports=[{"containerPort": 80}])]
    assert wrong(hostNetwork=True, containers=one) == [], "the server gives the port of the host"
    assert wrong_in_template(hostNetwork=True, containers=one) == [], "and may do so later"
    other = [container(ports=[{"containerPort": 80, "hostPort": 81}])]
    assert wrong_in_template(hostNetwork=True, containers=other) == ["containers[0].ports[0].hostPort Invalid"]
    assert wrong(containers=other) == []
