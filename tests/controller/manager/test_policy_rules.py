"""The rights that are declared, who needs them, and the roles that grant them: no more than what was declared."""

import itertools
from collections.abc import Collection
from dataclasses import replace
from typing import Any

import pytest

from trainmaster.controller.configuration import Configuration
from trainmaster.controller.job_kinds import job_kinds
from trainmaster.controller.kube.rest.resources import CONFIGMAPS, LEASES, NAMESPACES, SECRETS, Resource
from trainmaster.controller.manager import training_operator
from trainmaster.controller.manager.policy_rules import policy_rules
from trainmaster.controller.manager.roles import LABELS, merged, roles
from trainmaster.controller.policyrule import PolicyRule
from trainmaster.runtime.framework import Framework, load_plugins
from trainmaster.runtime.jobs.loader import load_job_kinds
from trainmaster.runtime.listers import Watch

TOKEN_REVIEWS = ("authentication.k8s.io", "tokenreviews", "create")
ACCESS_REVIEWS = ("authorization.k8s.io", "subjectaccessreviews", "create")
LEASE_RULES = {("coordination.k8s.io", "leases", verb) for verb in ("get", "list", "create", "update")}
LIST_OF_LEASES = ("coordination.k8s.io", "leases", "list")
WEBHOOKS = {
    ("admissionregistration.k8s.io", f"{kind}webhookconfigurations", verb)
    for kind in ("mutating", "validating")
    for verb in ("list", "watch", "patch")
}


def rules_of(
    *, features: Collection[str] = (), without: Collection[str] = (), watches: Collection[Watch] = (), **options: Any
) -> list[PolicyRule]:
    framework = Framework(load_plugins(disabled=frozenset(without)))
    configuration = Configuration.model_validate({"cert_management": {"enable": False}, **options})
    declared = [*framework.watches(), *watches]
    return policy_rules(configuration, features=features, watches=declared, namespace="ours")


def rights(rules: Collection[PolicyRule]) -> set[tuple[str, str, str]]:
    return {(rule.resource.group, rule.full_resource, verb) for rule in rules for verb in rule.verbs}


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({"leader_election": {"leaderElect": True}}, LEASE_RULES),
        ({"leader_election": {"leaderElect": False}}, set()),
        ({"leader_election": {"leaderElect": True}, "watch_namespaces": ["a"]}, LEASE_RULES - {LIST_OF_LEASES}),
        ({"metrics": {"auth": {"enabled": True}}}, {TOKEN_REVIEWS, ACCESS_REVIEWS}),
        ({"metrics": {"auth": {"enabled": True}, "bindAddress": "0"}}, set()),
        (
            {"cert_management": {"enable": True}},
            {("", "secrets", verb) for verb in ("list", "watch", "patch")} | WEBHOOKS,
        ),
        ({"features": {"TrainJobStatus"}}, {TOKEN_REVIEWS, ("", "pods", "get"), ("batch", "jobs", "get")}),
    ],
)
def test_a_part_of_the_configuration_needs_what_it_uses(more: dict[str, Any], expected: Any) -> None:
    assert rights(rules_of(**more)) - rights(rules_of()) == expected


def jobs_rights(**options: Any) -> set[tuple[str, str, str]]:
    configuration = Configuration.model_validate({"training_operator": options})
    return rights(list(training_operator.policy_rules(configuration, job_kinds(configuration))))


def test_a_reason_that_speaks_of_deleting_has_the_verb() -> None:
    jobs = training_operator.policy_rules(Configuration(), job_kinds(Configuration()))
    told = [rule for rule in (*rules_of(), *jobs) if "delete" in rule.reason.split()]
    assert [rule for rule in told if "delete" not in rule.verbs] == []
    assert {"pods", "horizontalpodautoscalers"} <= {rule.resource.plural for rule in told}


@pytest.mark.defect("V1-B35")
def test_mpijobs_over_ssh_take_no_right_to_roles_nor_to_exec() -> None:
    """V1-B35: with kubectl exec the manager has to have what it gives to launchers; nobody may delete any of it."""
    assert jobs_rights(enabled=False) == set()
    default = jobs_rights(enableScheme=["mpijob"])
    ssh = jobs_rights(enableScheme=["mpijob"], options={"mpijob": {"transport": "ssh"}})
    roles = ("rbac.authorization.k8s.io", "roles")
    assert {("", "pods/exec", "create"), (*roles, "create"), (*roles, "patch")} <= default
    sensitive = ("roles", "rolebindings", "pods/exec", "serviceaccounts")
    assert {right for right in ssh if right[1] in sensitive} == set()
    assert {verb for _, resource, verb in ssh if resource == "secrets"} == {"get", "create"}
    built = (*sensitive, "configmaps", "secrets")
    assert {right for right in default | ssh if right[1] in built and right[2] == "delete"} == set()


@pytest.mark.parametrize(
    ("plugins", "resources"),
    [
        ({"mpi"}, set()),  # flux needs them as well
        ({"mpi", "flux"}, {("", "secrets")}),
        ({"volcano"}, {("scheduling.volcano.sh", "podgroups"), ("scheduling.k8s.io", "priorityclasses")}),
        (
            {"volcano", "coscheduling"},
            {
                *(("scheduling.volcano.sh", "podgroups"), ("scheduling.k8s.io", "priorityclasses")),
                *(("scheduling.x-k8s.io", "podgroups"), ("", "limitranges"), ("node.k8s.io", "runtimeclasses")),
            },
        ),
        ({"claims"}, {("resource.k8s.io", "resourceclaims"), ("resource.k8s.io", "resourceclaimtemplates")}),
    ],
)
def test_what_only_some_plugins_need_goes_with_them(plugins: set[str], resources: set[tuple[str, str]]) -> None:
    def touched(rules: Collection[PolicyRule]) -> set[tuple[str, str]]:
        return {(rule.resource.group, rule.full_resource) for rule in rules}

    assert touched(rules_of()) - touched(rules_of(without=plugins)) == resources


def test_a_plugin_of_others_gets_what_its_watches_declare() -> None:
    """To build takes what an apply takes, to read takes a cache, and nothing more than that."""
    watches = [
        Watch("acme.io/v1", "Rocket", "rockets", writes=True, declared_by="acme"),
        Watch("acme.io/v1", "Pad", "pads", namespaced=False, metadata_only=True, declared_by="acme"),
    ]
    rules = rules_of(watches=watches)
    assert rights(rules) - rights(rules_of()) == {
        *(("acme.io", "rockets", verb) for verb in ("get", "list", "watch", "create", "patch")),
        *(("acme.io", "pads", verb) for verb in ("list", "watch")),
    }
    assert {rule.needed_by for rule in rules if rule.resource.group == "acme.io"} == {"acme"}
    workload = rules_of(watches=[replace(watches[0], workload=True)])
    assert rights(workload) - rights(rules) == {("acme.io", "rockets", "delete")}, "only workloads are deleted"
    # The deletion of what is built is the garbage collector's, and Secrets are not even listed.
    everywhere = rights([rule for rule in rules_of(cert_management={"enable": True}) if not rule.namespace])
    for kind, more in (("secrets", set[str]()), ("configmaps", {"list", "watch", "patch"})):
        assert {verb for _, each, verb in everywhere if each == kind} == {"get", "create", *more}


@pytest.mark.parametrize(
    ("served", "scopes"), [([], {"a", "b"}), (["a", "c"], {"a"}), (["a", "b"], {""}), (["c"], set())]
)
def test_namespaces_that_a_plugin_chose_are_read_by_rights_of_these_alone(served: list[str], scopes: set[str]) -> None:
    """Of those that are served; all of these need no namespace in the rule."""
    watch = Watch("acme.io/v1", "Pad", "pads", namespaces=("a", "b"), declared_by="acme")
    rules = [rule for rule in rules_of(watches=[watch], watch_namespaces=served) if rule.resource.plural == "pads"]
    assert {rule.namespace for rule in rules} == scopes
    assert {rule.verbs for rule in rules} <= {("list", "watch")}


def test_without_the_plugin_of_jobsets_nobody_needs_rights_to_them() -> None:
    def needed(*disabled: str) -> set[str]:
        watches = Framework(load_plugins(disabled=disabled)).watches()
        features = {"TrainJobStatus"}
        rules = policy_rules(Configuration(), features=features, watches=watches, namespace="ours")
        return {rule.resource.name for rule in rules}

    assert needed() - needed("jobset") == {"jobsets.jobset.x-k8s.io", "events", "jobs.batch"}


def test_what_has_a_name_is_granted_by_its_name() -> None:
    rules = rules_of(
        cert_management={"enable": True, "webhookSecretName": "our-cert"},
        leader_election={"leaderElect": True, "resourceName": "our-lease", "resourceNamespace": "locks"},
    )
    named = {(rule.resource.plural, rule.namespace, rule.names) for rule in rules if rule.names or rule.namespace}
    assert named == {
        ("secrets", "ours", ("our-cert",)),
        ("events", "ours", ()),  # about the Secret
        ("leases", "locks", ("our-lease",)),
        ("leases", "locks", ()),  # to create
        ("leases", "", ("our-lease",)),  # to tell of a second installation
        ("mutatingwebhookconfigurations", "", ("defaulter.trainer.kubeflow.org",)),
        ("validatingwebhookconfigurations", "", ("validator.trainer.kubeflow.org",)),
        ("validatingwebhookconfigurations", "", ("validator.training-operator.kubeflow.org",)),
    }
    created = [rule.verbs for rule in rules if rule.resource.plural == "leases" and not rule.names]
    assert created == [("create",)]


@pytest.mark.defect("V1-B31")
def test_who_leads_may_write_its_lease_and_jobs_of_one_namespace_need_nothing_beyond_it() -> None:
    def needed(**options: Any) -> list[PolicyRule]:
        configuration = Configuration.model_validate({"cert_management": {"enable": False}, **options})
        kinds = load_job_kinds()
        everything = policy_rules(configuration, features=(), watches=(), job_kinds=kinds, namespace="ours")
        without = policy_rules(configuration, features=(), watches=(), namespace="ours")
        return [rule for rule in everything if rule not in without or rule.resource.group == "coordination.k8s.io"]

    election = {"leader_election": {"leaderElect": True}}
    assert rights(needed(**election)) >= LEASE_RULES
    rules = needed(watch_namespaces=["team"], **election)
    assert len(rules) > len(LEASE_RULES)
    assert {rule.resource.plural for rule in rules if not rule.resource.namespaced} == {"priorityclasses"}
    assert all(rule.optional for rule in rules if not rule.resource.namespaced)


def rule(resource: Resource, *verbs: str, **fields: Any) -> PolicyRule:
    return PolicyRule(resource=resource, verbs=verbs, needed_by="somebody", reason="something", **fields)


def granted(role: dict[str, Any]) -> list[tuple[str, list[str], list[str], list[str]]]:
    rules = role["rules"]
    return [(each["apiGroups"][0], each["resources"], each.get("resourceNames", []), each["verbs"]) for each in rules]


def test_what_concerns_one_namespace_is_granted_there_and_bound_to_the_account_whose_name_it_has() -> None:
    """With watched namespaces only what has no namespace is granted everywhere; our own may be one of them."""
    cert = rule(SECRETS, "get", names=("cert",), namespace="ours")
    everywhere, bound, here, binding = roles(
        [cert, rule(CONFIGMAPS, "list", "watch")], namespace="ours", service_account="me"
    )
    assert [each["kind"] for each in (everywhere, bound)] == ["ClusterRole", "ClusterRoleBinding"]
    assert granted(everywhere) == [("", ["configmaps"], [], ["list", "watch"])]
    assert granted(here) == [("", ["secrets"], ["cert"], ["get"])]
    assert here["metadata"] == binding["metadata"] == {"name": "me", "namespace": "ours", "labels": LABELS}
    assert binding["roleRef"] == {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "me"}
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "me", "namespace": "ours"}]
    wanted = [rule(NAMESPACES, "get"), rule(CONFIGMAPS, "list", "watch"), rule(LEASES, "create", namespace="ours")]
    made = roles(wanted, namespace="ours", watch_namespaces=("team", "ours"))
    by_place = {each["metadata"].get("namespace"): granted(each) for each in made if "rules" in each}
    assert by_place == {
        None: [("", ["namespaces"], [], ["get"])],
        "ours": [("", ["configmaps"], [], ["list", "watch"]), ("coordination.k8s.io", ["leases"], [], ["create"])],
        "team": [("", ["configmaps"], [], ["list", "watch"])],
    }


def test_rights_of_another_role_stand_in_one_of_its_own_name_for_the_same_account() -> None:
    """Whoever leaves that role out takes no right from the other, though both need some of the same."""
    wanted = [rule(CONFIGMAPS, "list"), rule(CONFIGMAPS, "list", "watch", role="jobs")]
    made = {each["metadata"]["name"]: each for each in roles(wanted, namespace="ours", service_account="me")[::2]}
    assert {name: granted(each) for name, each in made.items()} == {
        "me": [("", ["configmaps"], [], ["list"])],
        "me-jobs": [("", ["configmaps"], [], ["list", "watch"])],
    }
    bindings = roles(wanted, namespace="ours", service_account="me")[1::2]
    assert [each["roleRef"]["name"] for each in bindings] == ["me", "me-jobs"]
    assert [each["subjects"][0]["name"] for each in bindings] == ["me", "me"]


def test_rights_are_merged_whatever_order_they_come_in() -> None:
    wanted = [
        rule(SECRETS, "list", "watch"),
        rule(SECRETS, "get", "create"),
        rule(CONFIGMAPS, "get", "list", "watch", "create"),
        rule(CONFIGMAPS, "patch", subresource="status"),
        rule(SECRETS, "get", "update", names=("cert",)),
    ]
    expected = [
        {"apiGroups": [""], "resources": ["configmaps", "secrets"], "verbs": ["get", "list", "watch", "create"]},
        {"apiGroups": [""], "resources": ["configmaps/status"], "verbs": ["patch"]},
        # What may be done to all Secrets need not be said of one.
        {"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["cert"], "verbs": ["update"]},
    ]
    for order in itertools.permutations(wanted):
        assert merged(order) == expected
