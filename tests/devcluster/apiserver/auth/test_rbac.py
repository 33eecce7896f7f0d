"""What roles allow, and nothing beyond it."""

from typing import Any

import pytest

from trainmaster.devcluster.apiserver.auth.authorizer import Attributes, User, make_group_names, make_username, require
from trainmaster.devcluster.apiserver.auth.rbac import RbacAuthorizer
from trainmaster.devcluster.apiserver.bootstrap import create_system_namespaces, ensure_bootstrap_policy
from trainmaster.devcluster.apiserver.errors import StatusError
from trainmaster.devcluster.apiserver.registry.builtin import builtin_registry
from trainmaster.devcluster.apiserver.registry.generic import Api
from trainmaster.devcluster.apiserver.resources import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, ROLE_BINDINGS, ROLES
from trainmaster.devcluster.apiserver.storage import Store
from trainmaster.runtime.jsontree import JsonObject

_VERSION = "rbac.authorization.k8s.io/v1"
ANN = User("ann", ("staff", "system:authenticated"))
ACCOUNT = User(make_username("default", "me"), make_group_names("default"))


class Access:
    """A cluster in which tests grant rights."""

    def __init__(self) -> None:
        self.api = Api(Store(), builtin_registry())
        self.authorizer = RbacAuthorizer(self.api)

    async def role(self, *rules: JsonObject, name: str = "r", namespace: str | None = "default", **more: Any) -> None:
        resource, kind = (ROLES, "Role") if namespace else (CLUSTER_ROLES, "ClusterRole")
        metadata = {"name": name, "labels": more.pop("labels", {})}
        body = {"apiVersion": _VERSION, "kind": kind, "metadata": metadata, "rules": list(rules), **more}
        await self.api.create(resource, body, namespace=namespace)

    async def bind(
        self, *, role: str = "Role/r", namespace: str | None = "default", subject: str = "User/ann", name: str = "b"
    ) -> None:
        kind, who = subject.split("/", 1)
        given: JsonObject = {"kind": kind, "name": who, "apiGroup": "rbac.authorization.k8s.io"}
        if kind == "ServiceAccount":
            given = {"kind": kind, "namespace": who.split("/")[0], "name": who.split("/")[1]}
        kind_of_role, name_of_role = role.split("/")
        reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": kind_of_role, "name": name_of_role}
        resource, own = (ROLE_BINDINGS, "RoleBinding") if namespace else (CLUSTER_ROLE_BINDINGS, "ClusterRoleBinding")
        body = {
            "apiVersion": _VERSION,
            "kind": own,
            "metadata": {"name": name},
            "subjects": [given],
            "roleRef": reference,
        }
        await self.api.create(resource, body, namespace=namespace)

    def may(
        self, verb: str, resource: str = "pods", *, user: User = ANN, namespace: str = "default", **more: Any
    ) -> bool:
        plural, _, subresource = resource.partition("/")
        wanted = Attributes(verb=verb, resource=plural, subresource=subresource, namespace=namespace, **more)
        return self.authorizer.authorize(user, wanted).allowed


def rule(verbs: str, resources: str, groups: str = "", **more: Any) -> JsonObject:
    return {"verbs": verbs.split(","), "resources": resources.split(","), "apiGroups": groups.split(","), **more}


@pytest.fixture
async def access() -> Access:
    made = Access()
    await create_system_namespaces(made.api)
    return made


async def test_a_role_counts_in_its_namespace(access: Access) -> None:
    await access.role(rule("get,list", "pods,pods/log"))
    await access.bind()
    assert access.may("get")
    assert access.may("get", "pods/log")
    assert not access.may("delete")
    assert not access.may("get", "pods/status"), "a resource does not include its subresources"
    assert not access.may("get", "secrets")
    assert not access.may("get", group="batch")
    assert not access.may("get", namespace="kubeflow")
    assert not access.may("get", namespace="")
    assert not access.may("get", user=ACCOUNT)


async def test_a_cluster_role_in_a_namespace_and_everywhere(access: Access) -> None:
    await access.role(rule("get", "pods"), namespace=None)
    await access.bind(role="ClusterRole/r")
    assert access.may("get")
    assert not access.may("get", namespace="kubeflow")
    await access.bind(role="ClusterRole/r", namespace=None)
    assert access.may("get", namespace="kubeflow")
    assert access.may("get", namespace="")


@pytest.mark.parametrize(
    "subject", ["ServiceAccount/default/me", "Group/system:serviceaccounts:default", "Group/system:serviceaccounts"]
)
async def test_service_accounts_as_subjects(access: Access, subject: str) -> None:
    await access.role(rule("get", "pods"))
    await access.bind(subject=subject)
    assert access.may("get", user=ACCOUNT)
    assert not access.may("get")
    assert subject.endswith("accounts") == access.may(
        "get", user=User(make_username("kubeflow", "me"), make_group_names("kubeflow"))
    )


async def test_wildcards_and_names(access: Access) -> None:
    await access.role(rule("*", "*/status", "*"), rule("get", "secrets", resourceNames=["one"]))
    await access.bind()
    assert access.may("patch", "jobs/status", group="batch")
    assert not access.may("patch", "jobs", group="batch")
    assert access.may("get", "secrets", name="one")
    assert not access.may("get", "secrets", name="two")
    assert not access.may("get", "secrets")


async def test_paths(access: Access) -> None:
    await access.role({"verbs": ["get"], "nonResourceURLs": ["/metrics", "/apis/*"]}, namespace=None)
    await access.bind(role="ClusterRole/r", namespace=None)

    def may(path: str, verb: str = "get") -> bool:
        return access.authorizer.authorize(ANN, Attributes(verb=verb, path=path)).allowed

    assert may("/metrics")
    assert may("/apis/batch/v1")
    assert not may("/metrics/x")
    assert not may("/metrics", "post")


async def test_the_reason_names_the_binding_or_what_is_missing(access: Access) -> None:
    await access.bind()
    wanted = Attributes(verb="get", resource="pods", namespace="default")
    denied = access.authorizer.authorize(ANN, wanted)
    assert (denied.allowed, denied.reason) == (False, 'RBAC: role.rbac.authorization.k8s.io "r" not found')
    await access.role(rule("get", "pods"))
    expected = 'RBAC: allowed by RoleBinding "b/default" of Role "r" to User "ann"'
    assert access.authorizer.authorize(ANN, wanted).reason == expected


async def test_aggregation_takes_in_labelled_roles_also_of_each_other(access: Access) -> None:
    selectors = {"clusterRoleSelectors": [{"matchLabels": {"to": "a"}}]}
    await access.role(namespace=None, name="a", aggregationRule=selectors, labels={"to": "b"})
    selectors = {"clusterRoleSelectors": [{"matchLabels": {"to": "b"}}]}
    await access.role(namespace=None, name="b", aggregationRule=selectors, labels={"to": "a"})
    await access.bind(role="ClusterRole/a", namespace=None)
    assert not access.may("get")
    await access.role(rule("get", "pods"), namespace=None, name="part", labels={"to": "b"})
    assert access.may("get")


async def test_the_roles_of_every_cluster(access: Access) -> None:
    await ensure_bootstrap_policy(access.api)
    await ensure_bootstrap_policy(access.api)  # as a restarted cluster does
    assert access.may("create", "selfsubjectaccessreviews", group="authorization.k8s.io", namespace="")
    assert not access.may("get", "configmaps")
    for role, verb, resource in (
        ("view", "get", "configmaps"),
        ("edit", "create", "pods"),
        ("admin", "create", "roles"),
    ):
        group = "rbac.authorization.k8s.io" if resource == "roles" else ""
        assert not access.may(verb, resource, group=group)
        await access.bind(role=f"ClusterRole/{role}", name=role)
        assert access.may(verb, resource, group=group)
    assert access.may("get", "configmaps")
    assert not access.may("get", "nodes", namespace="")
    await access.bind(role="ClusterRole/cluster-admin", namespace=None)
    assert access.may("get", "nodes", namespace="")


async def test_whoever_may_edit_may_deploy_and_whoever_may_view_sees_it(access: Access) -> None:
    await ensure_bootstrap_policy(access.api)
    kinds = {
        "deployments": "apps",
        "replicasets": "apps",
        "poddisruptionbudgets": "policy",
        "horizontalpodautoscalers": "autoscaling",
        "networkpolicies": "networking.k8s.io",
    }
    derived = {"endpoints": "", "endpointslices": "discovery.k8s.io"}
    await access.bind(role="ClusterRole/view", name="view")
    assert all(access.may("list", resource, group=group) for resource, group in (kinds | derived).items())
    assert not any(access.may("create", resource, group=group) for resource, group in kinds.items())
    await access.bind(role="ClusterRole/edit", name="edit")
    assert all(access.may("create", resource, group=group) for resource, group in kinds.items())
    assert not any(access.may("create", resource, group=group) for resource, group in derived.items())


async def test_larger_roles_hold_the_smaller_ones(access: Access) -> None:
    await ensure_bootstrap_policy(access.api)
    labels = {"rbac.authorization.k8s.io/aggregate-to-view": "true"}
    await access.role(rule("get", "things", "example.com"), namespace=None, name="things-view", labels=labels)
    await access.bind(role="ClusterRole/admin")
    assert access.may("get", "things", group="example.com")
    assert access.may("get", "configmaps")


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        (
            Attributes(verb="list", resource="pods", namespace="ns"),
            'pods is forbidden: User "ann" cannot list resource "pods" in API group "" in the namespace "ns"',
        ),
        (
            Attributes(verb="get", resource="pods", subresource="log", namespace="ns", name="p"),
            'pods "p" is forbidden: User "ann" cannot get resource "pods/log" in API group "" in the namespace "ns"',
        ),
        (
            Attributes(verb="list", group="batch", resource="jobs"),
            'jobs.batch is forbidden: User "ann" cannot list resource "jobs" in API group "batch" at the cluster scope',
        ),
        (Attributes(verb="get", path="/metrics"), 'forbidden: User "ann" cannot get path "/metrics"'),
    ],
)
async def test_refusals_in_the_words_of_the_real_server(access: Access, attributes: Attributes, message: str) -> None:
    with pytest.raises(StatusError) as refused:
        require(access.authorizer, ANN, attributes)
    assert (refused.value.code, refused.value.message) == (403, message)
