"""What is refused of pods and templates beyond the recorded cases of tests/golden/api: containers, volumes, updates."""

from __future__ import annotations

from typing import Any

import pytest
from support.podlifecycle import container, in_short, pod_spec, wrong, wrong_in_container, wrong_in_template

from trainmaster.devcluster.apiserver.registry.core.container_validation import requested_by_containers
from trainmaster.devcluster.apiserver.registry.core.pod_validation import (
    validate_new_pod,
    validate_pod_template,
    validate_pod_update,
)
from trainmaster.runtime.jsontree import JsonObject

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
EXEC: Any = {"exec": {"command": ["true"]}}
VOLUMES: Any = {"volumes": [{"name": "v", "emptyDir": {}}, {"name": "i", "image": {"reference": "img:1"}}]}
MOUNT: Any = {"name": "v", "mountPath": "/a"}
SPREAD: Any = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {}}


@pytest.mark.parametrize(
    ("fields", "found"),
    [
        ({"ports": [{"containerPort": 0}]}, ["ports[0].containerPort Required"]),
        ({"ports": [{"containerPort": 1, "name": "-a"}]}, ["ports[0].name Invalid"]),
        ({"ports": [{"containerPort": 1, "name": "a--b"}]}, ["ports[0].name Invalid"]),
        ({"envFrom": [{}]}, ["envFrom Invalid"]),
        ({"volumeMounts": [{"name": "v"}]}, ["volumeMounts[0].mountPath Required"]),
        ({"volumeMounts": [{**MOUNT, "subPath": "b/..c"}]}, []),
        ({"volumeMounts": [{**MOUNT, "name": "i", "subPath": "b"}]}, []),
        ({"volumeMounts": [MOUNT, {**MOUNT, "mountPath": "/b"}, MOUNT]}, ["volumeMounts[2].mountPath Invalid"]),
        ({"startupProbe": {"tcpSocket": {"port": "a--b"}}}, ["startupProbe.tcpSocket.port Invalid"]),
        ({"readinessProbe": {**EXEC, "successThreshold": 3}}, []),
        ({"lifecycle": {"preStop": {"sleep": {"seconds": 30}}}}, []),
        ({"resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "1000m"}}}, []),
        ({"resources": {"requests": {"cpu": -1}}}, ["resources.requests[cpu] Invalid"]),
    ],
)
def test_containers(fields: Any, found: list[str]) -> None:
    spec = VOLUMES if "volumeMounts" in fields else {}
    assert wrong_in_container(spec, **fields) == found


def test_what_runs_one_after_the_other_may_have_the_same_port_of_the_host() -> None:
    port = [{"containerPort": 80, "hostPort": 80}]
    one, two = container(name="a", ports=port), container(name="b", ports=port)
    assert wrong(initContainers=[one, two]) == []
    assert wrong(containers=[one, two]) == ["containers[1].ports[0].hostPort Duplicate"]
    other = container(name="b", ports=[{**port[0], "protocol": "UDP"}])
    assert wrong(containers=[one, other]) == []


def test_ports_are_those_of_the_host_in_its_network() -> None:
    one = [container(ports=[{"containerPort": 80}])]
    assert wrong(hostNetwork=True, containers=one) == [], "the server gives the port of the host"
    assert wrong_in_template(hostNetwork=True, containers=one) == [], "and may do so later"
    other = [container(ports=[{"containerPort": 80, "hostPort": 81}])]
    assert wrong_in_template(hostNetwork=True, containers=other) == ["containers[0].ports[0].hostPort Invalid"]
    assert wrong(containers=other) == []


@pytest.mark.parametrize(
    ("path", "found"),
    [
        *((path, []) for path in ("metadata.name", "metadata.labels['app']", "status.hostIP", "status.podIPs")),
        ("", ["fieldPath Required"]),
        ("metadata.annotations", ["fieldPath NotSupported"]),
        ("spec.restartPolicy", ["fieldPath NotSupported"]),
    ],
)
def test_a_variable_can_show_some_fields_of_the_pod(path: str, found: list[str]) -> None:
    variable = {"name": "A", "valueFrom": {"fieldRef": {"fieldPath": path}}}
    assert wrong_in_container(env=[variable]) == [f"env[0].valueFrom.fieldRef.{each}" for each in found]


@pytest.mark.parametrize("name", ["a.b", "1A", "a b", "-", "/"])
def test_names_of_variables_are_almost_free(name: str) -> None:
    assert wrong_in_container(env=[{"name": name}], envFrom=[{"prefix": name, "secretRef": {"name": "s"}}]) == []


def test_what_runs_before_the_others_has_no_probes_unless_it_goes_on() -> None:
    before = {**container(lifecycle={"preStop": EXEC}, readinessProbe=EXEC), "name": "i"}
    assert wrong(initContainers=[before]) == [
        "initContainers[0].lifecycle Forbidden",
        "initContainers[0].readinessProbe Forbidden",
    ]
    assert wrong(initContainers=[before | {"restartPolicy": "Always"}]) == []


def test_containers_before_the_others_count_by_the_greatest_and_sidecars_always() -> None:
    def asking(cpu: int, **fields: Any) -> Any:
        return container(resources={"requests": {"cpu": cpu}}, **fields)

    spec = {
        "containers": [asking(1), asking(2)],
        "initContainers": [asking(7), asking(1, restartPolicy="Always"), asking(5)],
    }
    assert str(requested_by_containers(spec)["cpu"]) == "7"
    spec["initContainers"].append(asking(8))
    assert str(requested_by_containers(spec)["cpu"]) == "9"


@pytest.mark.parametrize(
    ("claim", "found"),
    [
        ({"resourceClaimName": "x"}, [".name Required"]),
    ],
)
def test_a_claim_of_a_pod_has_a_name_and_one_source(claim: Any, found: list[str]) -> None:
    assert wrong(resourceClaims=[claim]) == [f"resourceClaims[0]{each}" for each in found]


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ({"emptyDir": {"medium": "anything"}}, []),
        ({"hostPath": {"path": "/a", "type": "DirectoryOrCreate"}}, []),
        ({"configMap": {"name": "A B"}}, []),
        ({"downwardAPI": {"items": [{"path": "a"}]}}, ["downwardAPI Required"]),
        ({"downwardAPI": {"items": [{"path": "a", "fieldRef": {"fieldPath": "metadata.labels['a']"}}]}}, []),
    ],
)
def test_volumes(source: Any, found: list[str]) -> None:
    assert wrong(volumes=[{"name": "v", **source}]) == [f"volumes[0].{each}" for each in found]


def test_names_of_volumes_differ() -> None:
    assert wrong(volumes=[{"name": "v"}, {"name": "v"}, {}]) == [
        "volumes[1].name Duplicate",
        "volumes[2].name Required",
    ]


@pytest.mark.parametrize(
    ("requirement", "found"),
    [
        ({"key": "a", "operator": "In", "values": ["b", ""]}, []),
        ({"key": "a", "operator": "Lt", "values": ["1"]}, []),
        ({"key": "a", "operator": "In", "values": ["ok", "a b"]}, [".values[1] Invalid"]),
    ],
)
def test_labels_of_a_node(requirement: Any, found: list[str]) -> None:
    path = f"affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms[0].matchExpressions[0]"
    terms = {"nodeSelectorTerms": [{"matchExpressions": [requirement]}]}
    assert wrong(affinity={"nodeAffinity": {REQUIRED: terms}}) == [f"{path}{each}" for each in found]


@pytest.mark.parametrize(
    ("weight", "found"), [(1, []), (100, []), (0, ["weight"]), (101, ["weight"]), (-1, ["weight"])]
)
def test_weights_are_from_1_to_100(weight: int, found: list[str]) -> None:
    term = {"topologyKey": "rack", "labelSelector": {}}
    path = f"affinity.%s.{PREFERRED}[0].%s Invalid"
    assert wrong(affinity={"nodeAffinity": {PREFERRED: [{"weight": weight, "preference": {}}]}}) == [
        path % ("nodeAffinity", each) for each in found
    ]
    assert wrong(affinity={"podAntiAffinity": {PREFERRED: [{"weight": weight, "podAffinityTerm": term}]}}) == [
        path % ("podAntiAffinity", each) for each in found
    ]


@pytest.mark.parametrize(
    ("fields", "found"),
    [
        ({"tolerations": [{"operator": "Exists"}]}, []),
        ({"tolerations": [{"key": "a", "operator": "Lt", "value": "5"}]}, ["tolerations[0].operator NotSupported"]),
        (
            {"topologySpreadConstraints": [SPREAD | {"maxSkew": -1, "topologyKey": ""}]},
            ["topologySpreadConstraints[0].maxSkew Invalid", "topologySpreadConstraints[0].topologyKey Required"],
        ),
        ({"overhead": {"cpu": 1}}, []),
    ],
)
def test_single_fields(fields: Any, found: list[str]) -> None:
    assert wrong(**fields) == found


def _pod(**fields: Any) -> JsonObject:
    return {"metadata": {"name": "demo"}, "spec": pod_spec(**fields)}


def test_what_a_new_pod_and_a_template_may_not_have() -> None:
    pod = _pod(ephemeralContainers=[container(name="e")])
    assert in_short(list(validate_new_pod(pod))) == ["ephemeralContainers Forbidden"]
    pod["metadata"]["labels"] = {"a b": "c d"}
    found = ["t.labels Invalid", "t.spec.ephemeralContainers Forbidden"]
    assert in_short(validate_pod_template(pod, "t")) == found


GATES: Any = {"schedulingGates": [{"name": "a"}, {"name": "b"}]}


@pytest.mark.parametrize(
    ("before", "after", "found"),
    [
        ({}, {"containers": [container(image="img:2")]}, []),
        ({}, {"containers": [container(command=[], stdin=False)]}, []),
        ({"tolerations": [{"key": "a", "operator": "Exists"}]}, {}, ["tolerations Forbidden"]),
        (GATES, GATES | {"nodeSelector": {"a": "b"}}, []),
    ],
)
def test_what_of_a_pod_may_change(before: Any, after: Any, found: list[str]) -> None:
    assert in_short(list(validate_pod_update(pod_spec(**after), pod_spec(**before)))) == found
