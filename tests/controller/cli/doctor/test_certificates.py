"""The certificate of the webhooks."""

from __future__ import annotations

import base64
import contextlib
import datetime as dt
from pathlib import Path

from support.authorities import Authority
from support.explained import NAMESPACE, findings
from support.stack import Stack

from trainmaster.controller.certificates.webhook_names import VALIDATING
from trainmaster.controller.kube.rest.errors import NotFound
from trainmaster.controller.kube.rest.resources import SECRETS

NAME = "kubeflow-trainer-webhook-cert"
HOST = "kubeflow-trainer-controller-manager.kubeflow.svc"


async def store(stack: Stack, **data: bytes) -> None:
    encoded = {key.replace("_", "."): base64.b64encode(value).decode() for key, value in data.items()}
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": NAME, "namespace": NAMESPACE}}
    with contextlib.suppress(NotFound):
        await stack.client.delete(SECRETS, NAMESPACE, NAME)
    await stack.client.create(SECRETS, {**secret, "data": encoded})


def pair(authority: Authority, directory: Path, *, name: str = HOST, days: int = 90) -> dict[str, bytes]:
    certificate, key = authority.issue(directory, name=name, valid=dt.timedelta(days=days))
    return {"tls_crt": certificate.read_bytes(), "tls_key": key.read_bytes(), "ca_crt": authority.pem}


async def told(stack: Stack, *, managed: bool = True) -> list[str]:
    return (await findings(stack, certManagement={"enable": managed}))["certificates"]


async def test_a_secret_that_is_not_there_or_empty_is_filled_and_a_good_one_kept(stack: Stack, tmp_path: Path) -> None:
    # A secret that is not there or empty is filled.
    assert await told(stack) == [
        f"ok: the Secret kubeflow/{NAME} is not there yet; the manifests bring it, and the manager fills it"
    ]
    await store(stack)
    assert await told(stack) == [f"ok: the Secret kubeflow/{NAME} has no certificate yet; the manager makes one"]
    # A good one.
    until = dt.datetime.now(dt.UTC) + dt.timedelta(days=90)
    await store(stack, **pair(Authority(), tmp_path))
    (line,) = await told(stack)
    assert line.startswith(f"ok: the certificate in the Secret kubeflow/{NAME} is for {HOST}, until 20"), line
    assert f"{until:%Y-%m}" in line


async def test_what_is_wrong_with_a_certificate_is_told(stack: Stack, tmp_path: Path) -> None:
    # One for another service.
    await store(stack, **pair(Authority(), tmp_path, name="other"))
    problem = f"the certificate in the Secret kubeflow/{NAME} is not for {HOST}, but for localhost, other"
    assert await told(stack) == [f"warn: {problem}; the manager replaces it when it leads"]
    assert (await told(stack, managed=False))[1] == (
        f"fail: {problem}; put a good one there; webhooks that do not answer refuse every TrainJob"
    )
    # One that expires or has expired.
    await store(stack, **pair(Authority(), tmp_path, days=2))
    assert (await told(stack, managed=False))[1].startswith(
        f"warn: the certificate in the Secret kubeflow/{NAME} expires on "
    )
    await store(stack, **pair(Authority(), tmp_path, days=-2))
    assert (await told(stack))[0].startswith(f"warn: the certificate in the Secret kubeflow/{NAME} has expired on ")
    # What is no pair.
    first, second = pair(Authority(), tmp_path), pair(Authority(), tmp_path)
    await store(stack, tls_crt=first["tls_crt"], tls_key=second["tls_key"])
    assert (await told(stack))[0].startswith(f"warn: in the Secret kubeflow/{NAME} tls.key is not the key of tls.crt; ")
    await store(stack, tls_crt=b"nonsense", tls_key=b"nonsense")
    assert (await told(stack))[0].startswith(f"warn: the Secret kubeflow/{NAME} holds no pair of certificate and key: ")


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
            f"warn: validator.trainer.kubeflow.org does not trust the authority in the Secret kubeflow/{NAME}: its "
            "caBundle is another one; the manager that leads corrects that within moments; without one, TrainJobs "
            "cannot be written"
        )
    ]
    both = base64.b64encode(Authority("other").pem + authority.pem).decode()
    webhook["clientConfig"] |= {"caBundle": both}  # type: ignore[operator]  # a dict
    await stack.client.update(VALIDATING, {**made, "webhooks": [webhook]})
    assert (await told(stack))[1:] == []
