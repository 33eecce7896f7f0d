"""Resources: paths of objects, rules about them, what to do about a kind that a cluster does not serve."""

from __future__ import annotations

from typing import Any

import pytest

from trainmaster.controller.kube.rest.errors import InvalidName
from trainmaster.controller.kube.rest.policyrule import PolicyRule
from trainmaster.controller.kube.rest.resources import CONFIGMAPS, EVENTS, LEASES, NAMESPACES, PODS, SECRETS, Resource


@pytest.mark.parametrize(
    "resource",
    [PODS, EVENTS, LEASES, Resource("resource.k8s.io", "v1", "DeviceClass", "deviceclasses", namespaced=False)],
)
def test_a_kind_of_kubernetes_itself_takes_a_cluster_that_serves_it(resource: Resource) -> None:
    """Nobody can install a definition of it."""
    assert resource.remedy == "use a cluster that does"


@pytest.mark.parametrize("name", ["a/b", "..", ".", "../secrets/b", "a%2Fb", "/"])
@pytest.mark.parametrize("where", ["namespace", "name"])
def test_a_name_that_leads_to_another_path_is_refused(name: str, where: str) -> None:
    segments = {"namespace": "ns", "name": "a"} | {where: name}
    with pytest.raises(InvalidName, match=r'422 Invalid: invalid (namespace|ConfigMap name) ".*": may not'):
        CONFIGMAPS.path(**segments)


@pytest.mark.parametrize(
    ("name", "written"),
    [("a?watch=1", "a%3Fwatch%3D1"), ("a#b", "a%23b"), ("ä b", "%C3%A4%20b"), ("a..b:c", "a..b%3Ac")],
)
def test_what_a_path_cannot_hold_is_escaped(name: str, written: str) -> None:
    assert CONFIGMAPS.path("ns", name) == f"/api/v1/namespaces/ns/configmaps/{written}"
    assert PODS.path("ns", name, "log") == f"/api/v1/namespaces/ns/pods/{written}/log"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"verbs": ()}, "the verbs of a rule are some of get, list"),
        ({"verbs": ("list", "get")}, "in this order"),
        ({"verbs": ("read",)}, "the verbs of a rule are some of get, list"),
        ({"verbs": ("get", "create"), "names": ("one",)}, "never allows create"),
        ({"resource": NAMESPACES, "namespace": "one"}, "belong to no namespace"),
    ],
)
def test_a_rule_that_makes_no_sense_is_refused(fields: dict[str, Any], message: str) -> None:
    given = {"resource": SECRETS, "verbs": ("get",), "needed_by": "me", "reason": "to know", **fields}
    with pytest.raises(ValueError, match=message):
        PolicyRule(**given)


def test_a_subresource_is_a_part_of_what_rules_name() -> None:
    rule = PolicyRule(resource=SECRETS, verbs=("get",), needed_by="me", reason="to know", subresource="status")
    assert rule.full_resource == "secrets/status"
