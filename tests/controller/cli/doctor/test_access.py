"""Rights: of whoever asks, and of the manager's service account; and what cannot be told without them."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from support.explained import NAMESPACE, findings, only_finding
from support.processes import account_token
from support.service_accounts import RBAC, allow
from support.stack import Stack, api_server

from trainmaster.controller.cli.doctor.command import CHECKS
from trainmaster.controller.cli.doctor.facts import SERVICE_ACCOUNTS
from trainmaster.controller.configuration import complete, parse_configuration
from trainmaster.controller.job_kinds import job_kinds
from trainmaster.controller.kube.rest.config import Token
from trainmaster.controller.manager.policy_rules import policy_rules
from trainmaster.controller.manager.roles import NAME, roles
from trainmaster.runtime.framework import Framework, load_plugins


@pytest.fixture
async def stack(tmp_path: Path) -> AsyncIterator[Stack]:
    async with api_server(tmp_path, rbac=True) as stack:
        yield stack


async def test_what_an_account_may_not_do_or_see_is_told(stack: Stack) -> None:
    # Roles take the rights in them. Whoever may write roles, and no more, may not give away what he has not.
    token = await account_token(stack.client, "installer")
    rule = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "list", "watch", "create", "patch"]}
    await allow(stack.client, "installer", rule)
    found = await findings(stack, access=dataclasses.replace(stack.access, credentials=Token(token)))
    assert found["rights"] == [
        (
            "warn: you may apply all that the manifests hold, but roles only with rights that you have yourself; see "
            "that you have all of `trainmaster rbac -n kubeflow`, or ask for `escalate` on roles"
        )
    ]
    # Without any right each check says what it lacks. Whatever cannot be told is unknown, and says whom to ask.
    token = await account_token(stack.client, "nobody")
    found = await findings(stack, access=dataclasses.replace(stack.access, credentials=Token(token)))
    (rights,) = found.pop("rights")
    assert rights.startswith(
        "fail: you may not get, create, patch customresourcedefinitions.apiextensions.k8s.io; get, "
    )
    assert "get, create, patch deployments.apps in namespace kubeflow" in rights
    assert rights.endswith("; have somebody install who may, or ask for these rights")
    (kubernetes,) = found.pop("kubernetes")
    assert kubernetes.startswith("ok: Kubernetes v1.")
    for lines in found.values():
        (line,) = lines
        assert line.startswith("unknown: "), line
        assert line.endswith(("; ask somebody who may, or for that right", "; ask somebody who may read these")), line
    assert set(found) | {"rights", "kubernetes"} == {
        *CHECKS,
        "trainjobs",
        "stored-objects",
        "gang-scheduling",
        "runtimes",
    }
    assert found["leases"] == [
        "unknown: may not list leases.coordination.k8s.io in all namespaces; ask somebody who may, or for that right"
    ]
    assert found["certificates"] == [
        (
            "unknown: may not get secrets kubeflow-trainer-webhook-cert in namespace kubeflow; ask somebody who may, "
            "or for that right"
        )
    ]


async def test_the_service_account_needs_what_the_configuration_takes(stack: Stack) -> None:
    found = await findings(stack)
    assert found["rights"] == ["ok: you may apply all that the manifests hold"]
    assert found["service-account"] == [
        f"ok: the service account kubeflow/{NAME} is not there yet; the manifests bring it and its roles"
    ]
    await stack.client.create(SERVICE_ACCOUNTS, {"metadata": {"name": NAME, "namespace": NAMESPACE}})
    line = await only_finding(stack, "service-account")
    assert line.startswith(
        f"warn: the service account kubeflow/{NAME} may not get, list, watch, delete trainjobs.trainer.kubeflow.org; "
    )
    assert line.endswith(
        "; apply our roles, with --config and --feature-gates if you gave them: trainmaster rbac -n kubeflow | "
        "kubectl apply --server-side -f -"
    )

    head = {"apiVersion": "config.trainer.kubeflow.org/v1alpha1", "kind": "Configuration"}
    effective = complete(parse_configuration({**head, "leaderElection": {"leaderElect": True}}))
    rules = policy_rules(
        effective.configuration,
        features=(),
        watches=Framework(load_plugins()).watches(),
        job_kinds=job_kinds(effective.configuration),
        namespace=NAMESPACE,
    )
    for role in roles(rules, namespace=NAMESPACE):
        await stack.client.create(RBAC[role["kind"]], role)
    assert await only_finding(stack, "service-account") == (
        f"ok: the service account kubeflow/{NAME} may do all that this configuration needs"
    )
    line = await only_finding(stack, "service-account", metrics={"auth": {"enabled": True}})
    assert line.startswith(
        f"warn: the service account kubeflow/{NAME} may not create tokenreviews.authentication.k8s.io; create "
        "subjectaccessreviews.authorization.k8s.io; apply our roles, with --config and "
    )
