"""The rights that the overlays give to the manager's account, whichever roles hold them."""

import shutil
from pathlib import Path

import pytest
from support.manifests import (
    DEPLOY,
    MANAGER,
    NEEDS_KUBECTL,
    Id,
    by_identity,
    combined,
    configuration_of,
    kustomize,
    overlay,
)

from trainmaster.controller.configuration import parse_configuration
from trainmaster.controller.job_kinds import job_kinds
from trainmaster.controller.manager.policy_rules import policy_rules
from trainmaster.controller.manager.roles import roles
from trainmaster.runtime.framework import Framework, load_plugins
from trainmaster.runtime.jsontree import JsonObject

pytestmark = NEEDS_KUBECTL

JOBS_ROLE = f"{MANAGER}-training-operator"


def held(objects: dict[Id, JsonObject]) -> set[tuple[str, str, str, str, str]]:
    """The rights that bindings give to the manager's account: namespace, group, resource, name, verb."""
    return {
        (namespace, group, resource, name, verb)
        for (kind, namespace, _), binding in objects.items()
        if kind.endswith("RoleBinding") and MANAGER in {subject["name"] for subject in binding["subjects"]}
        for rule in objects[binding["roleRef"]["kind"], namespace, binding["roleRef"]["name"]]["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for name in rule.get("resourceNames", [""])
        for verb in rule["verbs"]
    }


@pytest.mark.defect("V1-B35")
@pytest.mark.parametrize("name", ["standalone", "namespaced"])
def test_the_manager_has_the_rights_of_its_configuration_with_the_training_operators_jobs_and_without(
    name: str, tmp_path: Path
) -> None:
    every = combined(tmp_path / "every", resource=DEPLOY / "overlays" / name, components=[])
    left = combined(tmp_path / "left", resource=DEPLOY / "overlays" / name, components=["without-training-operator"])
    for objects in (every, left):
        configuration = parse_configuration(configuration_of(objects))
        rules = policy_rules(
            configuration,
            features=(),
            watches=Framework(load_plugins()).watches(),
            job_kinds=job_kinds(configuration),
            namespace="kubeflow",
        )
        watched = configuration.watch_namespaces
        assert held(objects) == held(by_identity(roles(rules, namespace="kubeflow", watch_namespaces=watched)))
    of_jobs = {right for right in held(every) if right[1] == "kubeflow.org" or right[2] == "pods/exec"}
    assert {right[0] for right in of_jobs} == set(configuration.watch_namespaces or [""])
    assert not of_jobs & held(left)
    assert not [key for key in left if key[2] == JOBS_ROLE], "a role that nothing binds"


def test_a_copy_of_the_namespaced_overlay_may_name_the_component_itself(tmp_path: Path) -> None:
    """Its patches of what the component takes away then have nothing to change."""
    shutil.copytree(DEPLOY, tmp_path / "deploy", ignore=shutil.ignore_patterns("charts"))
    copied = tmp_path / "deploy/overlays/namespaced"
    with (copied / "kustomization.yaml").open("a") as file:
        file.write("components: [../../components/without-training-operator]\n")
    component = ["without-training-operator"]
    above = combined(tmp_path / "above", resource=DEPLOY / "overlays/namespaced", components=component)
    assert by_identity(kustomize(copied)) == above


@pytest.mark.defect("V1-B31")
def test_jobs_of_named_namespaces_take_no_right_in_the_cluster() -> None:
    rights = held(overlay("namespaced"))
    wide = {each[1:3] for each in rights if not each[0]}
    assert not {each for each in wide if each[0] == "kubeflow.org" or each[1] in {"pods", "services", "podgroups"}}
    for namespace in ("team-a", "team-b"):
        verbs = {verb for where, _, resource, _, verb in rights if (where, resource) == (namespace, "tfjobs")}
        assert verbs == {"get", "list", "watch", "delete", "patch"}
    leases = {verb for where, _, resource, _, verb in rights if (where, resource) == ("kubeflow", "leases")}
    assert leases >= {"get", "create", "update"}


def test_a_namespaced_manager_has_no_rights_in_other_namespaces() -> None:
    everywhere = {resource for namespace, _, resource, _, _ in held(overlay("namespaced")) if not namespace}
    assert not everywhere & {"secrets", "configmaps", "trainjobs", "jobsets", "events", "podgroups"}
