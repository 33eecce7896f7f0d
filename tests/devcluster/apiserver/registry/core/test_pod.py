"""Pods as a whole: the answer is an object or a refusal; what is warned of, and what a PodSpec gets."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest
from support.podlifecycle import container, pod_spec
from support.verdicts.cases import case, case_names, in_namespace

from trainmaster.devcluster.apiserver.bootstrap import create_system_namespaces, register_plugins
from trainmaster.devcluster.apiserver.errors import StatusError
from trainmaster.devcluster.apiserver.registry.builtin import builtin_registry
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
