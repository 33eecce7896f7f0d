"""Pods as a whole, and what is refused of them and of templates beyond the recorded cases of tests/golden/api."""

import random
from collections.abc import Iterator
from typing import Any

import pytest
from support.podlifecycle import container, in_short, pod_spec, wrong, wrong_in_container, wrong_in_template
from support.verdicts.cases import case, case_names, in_namespace

from trainmaster.devcluster.apiserver.bootstrap import create_system_namespaces, register_plugins
from trainmaster.devcluster.apiserver.errors import StatusError
from trainmaster.devcluster.apiserver.registry.builtin import builtin_registry
from trainmaster.devcluster.apiserver.registry.core.container_validation import requested_by_containers
from trainmaster.devcluster.apiserver.registry.core.pod_validation import (
    validate_new_pod,
    validate_pod_template,
    validate_pod_update,
)
from trainmaster.devcluster.apiserver.registry.core.podspec import add_label_keys, default_pod_spec, qos_class
from trainmaster.devcluster.apiserver.registry.generic import Api
from trainmaster.devcluster.apiserver.resources import JOBS, NAMESPACES, PODS
from trainmaster.devcluster.apiserver.storage import Store
from trainmaster.runtime.jsontree import JsonObject, copy_tree

NUMBERS = (0, -1, 1, 601, 65536, 2**31 - 1, 2**40, 1.5)
TEXTS = ("", "..", "a/b", "x" * 300, "ü", "1Gi", "0.5", "Always", "c", "/a", "a=b", "Localhost", "None")
ANYTHING: tuple[Any, ...] = (None, "", 0, [], {}, [None], [{}], {"a": None}, [[]], True)


def _recorded() -> list[JsonObject]:
    """The pods and jobs of the recorded requests."""
    given = [
        obj for name in case_names() for obj in (*(case(name).get("given") or ()), case(name)["request"].get("create"))
    ]
    sound = [obj for obj in given if obj and obj.get("kind") in ("Pod", "Job") and isinstance(obj.get("spec"), dict)]
    return [in_namespace(obj, "default") for obj in sound]


def _places(node: Any) -> Iterator[tuple[Any, Any]]:
    """Every member and item of a tree, as its holder and its key."""
    for key, value in node.items() if isinstance(node, dict) else enumerate(node):
        yield node, key
        if isinstance(value, dict | list):
            yield from _places(value)


def _spoilt(value: Any, chance: random.Random) -> Any:
    if chance.random() < 0.1:
        return copy_tree(chance.choice(ANYTHING))
    match value:
        case bool():
            return not value
        case int():
            return chance.choice(NUMBERS)
        case str():
            return chance.choice(TEXTS)
        case list():
            return chance.choice([[], [*value, *copy_tree(value)], value[:1]])
        case dict():
            return chance.choice([{}, dict(list(value.items())[1:])])
    return value


@pytest.mark.parametrize("seed", range(4))
async def test_an_odd_pod_is_refused_or_stored_and_never_an_error_of_the_server(seed: int) -> None:
    chance, seeds = random.Random(seed), _recorded()
    api = Api(Store(), builtin_registry())
    register_plugins(api)
    await create_system_namespaces(api)
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    await api.create(NAMESPACES, {"metadata": {"name": "restricted", "labels": labels}})
    answers: set[int] = set()
    for number in range(400):
        obj = copy_tree(chance.choice(seeds))
        for holder, key in chance.choices(list(_places(obj["spec"])), k=chance.randint(1, 3)):
            holder[key] = _spoilt(holder[key], chance)
        obj["metadata"] = {"name": f"odd-{number}"}
        namespace = chance.choice(["default", "restricted"])
        try:
            await api.create(PODS if obj["kind"] == "Pod" else JOBS, obj, namespace=namespace)
            answers.add(201)
        except StatusError as error:
            answers.add(error.code)
    assert {201, 400, 422} <= answers <= {201, 400, 403, 422}


def _asking(limits: Any = None, requests: Any = None, **fields: Any) -> Any:
    sides = {"limits": limits, "requests": requests}
    return container(resources={side: amounts for side, amounts in sides.items() if amounts}, **fields)


@pytest.mark.parametrize(("image", "policy"), [("a", "Always"), ("registry:5000/a:1", "IfNotPresent")])
def test_images_that_may_change_are_pulled_always(image: str, policy: str) -> None:
    spec = pod_spec(containers=[container(image=image)], volumes=[{"name": "v", "image": {"reference": image}}])
    assert spec["containers"][0]["imagePullPolicy"] == policy
    assert spec["volumes"][0]["image"]["pullPolicy"] == policy


@pytest.mark.parametrize(
    ("source", "completed"),
    [
        ({"projected": {}}, {"projected": {"defaultMode": 0o644}}),
        (
            {"projected": {"sources": [{"serviceAccountToken": {"path": "t"}}, {"clusterTrustBundle": {"path": "x"}}]}},
            {
                "projected": {
                    "defaultMode": 0o644,
                    "sources": [{"serviceAccountToken": {"path": "t", "expirationSeconds": 3600}}, {}],
                }
            },
        ),
    ],
)
def test_volumes_are_completed(source: Any, completed: Any) -> None:
    assert pod_spec(volumes=[{"name": "v", **source}])["volumes"] == [{"name": "v", **completed}]


def test_what_a_pod_asks_for_as_a_whole_is_completed_by_its_containers() -> None:
    spec = pod_spec(resources={"limits": {"cpu": "4", "memory": "1Gi"}}, containers=[_asking(requests={"cpu": "1"})])
    assert spec["resources"]["requests"] == {"cpu": "1", "memory": "1Gi"}
    assert "requests" not in pod_spec(resources={"limits": {}})["resources"]


def test_a_template_keeps_its_requests_and_ports() -> None:
    spec: Any = {"hostNetwork": True, "containers": [_asking({"cpu": "1"}, ports=[{"containerPort": 80}])]}
    default_pod_spec(spec)
    assert spec["containers"][0]["resources"] == {"limits": {"cpu": "1"}}
    assert spec["containers"][0]["ports"] == [{"containerPort": 80, "protocol": "TCP"}]
    assert pod_spec(**spec)["containers"][0]["ports"][0]["hostPort"] == 80


def test_keys_of_labels_become_part_of_selectors() -> None:
    selector: Any = {"matchLabels": {"app": "x"}}
    term: Any = {"labelSelector": selector, "matchLabelKeys": ["v", "absent"], "mismatchLabelKeys": ["w"]}
    spec: Any = {
        "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}},
        "topologySpreadConstraints": [{"labelSelector": selector, "matchLabelKeys": ["v"]}, {"matchLabelKeys": ["v"]}],
    }
    add_label_keys(spec, {"v": "1", "w": "2"})
    by_v = {"key": "v", "operator": "In", "values": ["1"]}
    assert term["labelSelector"] == {
        **selector,
        "matchExpressions": [by_v, {"key": "w", "operator": "NotIn", "values": ["2"]}],
    }
    assert spec["topologySpreadConstraints"] == [
        {"labelSelector": {**selector, "matchExpressions": [by_v]}, "matchLabelKeys": ["v"]},
        {"matchLabelKeys": ["v"]},
    ]


BOTH: Any = {"cpu": "1", "memory": "1Gi"}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"containers": [_asking({"nvidia.com/gpu": "1"})]}, "BestEffort"),
        ({"containers": [_asking({"cpu": "0"})]}, "BestEffort"),
        ({"containers": [_asking(BOTH, {"cpu": "1000m", "memory": "1024Mi"})]}, "Guaranteed"),
        ({"containers": [_asking(BOTH, BOTH), _asking()]}, "Burstable"),
        ({"containers": [_asking(BOTH, BOTH)], "initContainers": [_asking(requests={"cpu": "1"})]}, "Burstable"),
        ({"containers": [_asking()], "resources": {"limits": BOTH, "requests": BOTH}}, "Guaranteed"),
        ({"containers": [_asking(BOTH, BOTH)], "resources": {"limits": {"cpu": "1"}}}, "Burstable"),
    ],
)
def test_the_quality_of_service_follows_from_what_is_asked_for(spec: Any, expected: str) -> None:
    assert qos_class(spec) == expected


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
    assert wrong(containers=[one, container(name="b", ports=[{**port[0], "protocol": "UDP"}])]) == []


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


@pytest.mark.parametrize(("claim", "found"), [({"resourceClaimName": "x"}, [".name Required"])])
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
