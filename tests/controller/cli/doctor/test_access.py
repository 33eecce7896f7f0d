"""Rights of whoever asks and of the manager, and the certificate of the webhooks."""

import base64
import contextlib
import dataclasses
import datetime as dt
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from support.authorities import Authority
from support.explained import NAMESPACE, findings, only_finding
from support.installations import RBAC, allow
from support.processes import account_token
from support.stack import Stack, api_server

from trainmaster.controller.certificates.webhook_names import VALIDATING
from trainmaster.controller.cli.doctor.checks import BEFORE, CHECKS
from trainmaster.controller.cli.probes import SERVICE_ACCOUNTS
from trainmaster.controller.configuration import complete, parse_configuration
from trainmaster.controller.job_kinds import job_kinds
from trainmaster.controller.kube.rest.config import Token
from trainmaster.controller.kube.rest.errors import NotFound
from trainmaster.controller.kube.rest.resources import SECRETS
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
        *BEFORE,
        "installation",
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
        "; apply our roles, with the --config and --feature-gates of the manager: trainmaster rbac -n kubeflow | "
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
        "subjectaccessreviews.authorization.k8s.io; apply our roles, with the --config and "
    )


SECRET = "kubeflow-trainer-webhook-cert"
HOST = "kubeflow-trainer-controller-manager.kubeflow.svc"


async def store(stack: Stack, **data: bytes) -> None:
    encoded = {key.replace("_", "."): base64.b64encode(value).decode() for key, value in data.items()}
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": SECRET, "namespace": NAMESPACE}}
    with contextlib.suppress(NotFound):
        await stack.client.delete(SECRETS, NAMESPACE, SECRET)
    await stack.client.create(SECRETS, {**secret, "data": encoded})


def pair(authority: Authority, directory: Path, *, name: str = HOST, days: int = 90) -> dict[str, bytes]:
    certificate, key = authority.issue(directory, name=name, valid=dt.timedelta(days=days))
    return {"tls_crt": certificate.read_bytes(), "tls_key": key.read_bytes(), "ca_crt": authority.pem}


async def told(stack: Stack, *, managed: bool = True) -> list[str]:
    return (await findings(stack, certManagement={"enable": managed}))["certificates"]


async def test_a_secret_that_is_not_there_or_empty_is_filled_and_a_good_one_kept(stack: Stack, tmp_path: Path) -> None:
    # A secret that is not there or empty is filled.
    assert await told(stack) == [
        f"ok: the Secret kubeflow/{SECRET} is not there yet; the manifests bring it, and the manager fills it"
    ]
    await store(stack)
    assert await told(stack) == [f"ok: the Secret kubeflow/{SECRET} has no certificate yet; the manager makes one"]
    # A good one.
    until = dt.datetime.now(dt.UTC) + dt.timedelta(days=90)
    await store(stack, **pair(Authority(), tmp_path))
    (line,) = await told(stack)
    assert line.startswith(f"ok: the certificate in the Secret kubeflow/{SECRET} is for {HOST}, until 20"), line
    assert f"{until:%Y-%m}" in line


async def test_what_is_wrong_with_a_certificate_is_told(stack: Stack, tmp_path: Path) -> None:
    # One for another service.
    await store(stack, **pair(Authority(), tmp_path, name="other"))
    problem = f"the certificate in the Secret kubeflow/{SECRET} is not for {HOST}, but for localhost, other"
    assert await told(stack) == [f"warn: {problem}; the manager replaces it when it leads"]
    assert (await told(stack, managed=False))[1] == (
        f"fail: {problem}; put a good one there; webhooks that do not answer refuse every TrainJob"
    )
    # One that expires or has expired.
    await store(stack, **pair(Authority(), tmp_path, days=2))
    assert (await told(stack, managed=False))[1].startswith(
        f"warn: the certificate in the Secret kubeflow/{SECRET} expires on "
    )
    await store(stack, **pair(Authority(), tmp_path, days=-2))
    assert (await told(stack))[0].startswith(f"warn: the certificate in the Secret kubeflow/{SECRET} has expired on ")
    # What is no pair.
    first, second = pair(Authority(), tmp_path), pair(Authority(), tmp_path)
    await store(stack, tls_crt=first["tls_crt"], tls_key=second["tls_key"])
    assert (await told(stack))[0].startswith(
        f"warn: in the Secret kubeflow/{SECRET} tls.key is not the key of tls.crt; "
    )
    await store(stack, tls_crt=b"nonsense", tls_key=b"nonsense")
    assert (await told(stack))[0].startswith(
        f"warn: the Secret kubeflow/{SECRET} holds no pair of certificate and key: "
    )


async def test_webhooks_that_trust_another_authority(stack: Stack, tmp_path: Path) -> None:
    authority = Authority()
    await store(stack, **pair(authority, tmp_path))
    webhook = {
        "name": "validator.trainjob.trainer.kubeflow.org",
        "clientConfig": {
            "service": {"namespace": NAMESPACE, "name": "kubeflow-trainer-controller-manager"},
            "caBundle": base64.b64encode(Authority("other").pem).decode(),
        },
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    configuration = {"metadata": {"name": "validator.trainer.kubeflow.org"}, "webhooks": [webhook]}
    made = await stack.client.create(VALIDATING, configuration)
    assert (await told(stack))[1:] == [
        (
            f"warn: validator.trainer.kubeflow.org does not trust the authority in the Secret kubeflow/{SECRET}: its "
            "caBundle is another one; the manager that leads corrects that within moments; without one, TrainJobs "
            "cannot be written"
        )
    ]
    both = base64.b64encode(Authority("other").pem + authority.pem).decode()
    webhook["clientConfig"] |= {"caBundle": both}  # type: ignore[operator]  # a dict
    await stack.client.update(VALIDATING, {**made, "webhooks": [webhook]})
    assert (await told(stack))[1:] == []
