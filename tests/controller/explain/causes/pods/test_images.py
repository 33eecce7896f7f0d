"""Images that cannot be pulled, in the words of containerd, CRI-O, registries and kubelets of several releases."""

from __future__ import annotations

import pytest
from support.pod_views import event, pod, view, waiting

from trainmaster.controller.explain.cause import Cause
from trainmaster.controller.explain.causes.pods.images import image_pull_failed
from trainmaster.controller.explain.findings import Certainty, Finding
from trainmaster.controller.explain.view import JobView
from trainmaster.runtime.jsontree import JsonObject

IMAGE = "example.com/train:1"
MISSING = "Unable to retrieve some image pull secrets (regcred); attempting to pull the image may not succeed."
RESOLVE = f'failed to pull and unpack image "{IMAGE}": failed to resolve reference "{IMAGE}": '


def found(view: JobView) -> Finding:
    (finding,) = image_pull_failed(view)
    assert (finding.cause, finding.certainty) == (Cause.IMAGE_PULL_FAILED, Certainty.CERTAIN)
    return finding


@pytest.mark.parametrize(
    ("reason", "message", "advice"),
    [
        (
            "ErrImagePull",
            f"rpc error: code = NotFound desc = {RESOLVE}{IMAGE}: not found",
            "the registry does not have it",
        ),
        (
            "ImagePullBackOff",
            f'Back-off pulling image "{IMAGE}": ErrImagePull: {RESOLVE}unexpected status from HEAD: 401 Unauthorized',
            "imagePullSecrets",
        ),
        (
            "ErrImagePull",
            f"{RESOLVE}pull access denied, repository does not exist or may require authorization: server message: x",
            "imagePullSecrets",
        ),
        ("ErrImagePull", f"{RESOLVE}429 Too Many Requests - Server message: toomanyrequests: rate limit", "limits"),
        (
            "ErrImagePull",
            f"{RESOLVE}tls: failed to verify certificate: x509: certificate signed by unknown authority",
            "trust the certificate",
        ),
        ("ErrImagePull", f"{RESOLVE}dial tcp 10.0.0.1:443: i/o timeout", "nodes reach the registry"),
        ("ErrImagePull", f"{RESOLVE}no match for platform in manifest: not found", "architecture"),
        ("ErrImageNeverPull", f'Container image "{IMAGE}" is not present with pull policy of Never', "imagePullPolicy"),
    ],
)
def test_what_the_registry_says_and_what_helps(reason: str, message: str, advice: str) -> None:
    finding = found(view(pod(**waiting(reason, message))))
    assert IMAGE in finding.evidence[0].text
    assert "rpc error" not in finding.evidence[0].text
    assert advice in finding.what_next[0], finding.what_next


def test_older_kubelets_say_it_by_an_event_only() -> None:
    note = (
        f'Failed to pull image "{IMAGE}": rpc error: code = Unknown desc = Error response from daemon: manifest unknown'
    )
    told = event("Pod", "t-node-0-0", "Failed", note)
    waits = waiting("ImagePullBackOff", f'Back-off pulling image "{IMAGE}"')
    finding = found(view(pod(**waits), events=[told]))
    assert "Error response from daemon: manifest unknown" in finding.evidence[0].text
    # One rank of many and its number.
    others = [pod(0, phase="Running"), pod(1, **waiting("ContainerCreating"))]
    finding = found(view(*others, pod(3, **waiting("ErrImagePull", "denied"))))
    assert finding.evidence[0].text.startswith("rank 3: container node: ")
    # A credential that a registry quotes is not shown.
    words = "denied: Authorization: Bearer abcdefghij0123456789abcdefghij0123456789"
    assert "abcdefghij0123456789" not in found(view(pod(**waiting("ErrImagePull", words)))).evidence[0].text


def test_the_credentials_are_told() -> None:
    containers = [{"name": "node", "image": IMAGE}]
    missing = [event("Pod", "t-node-0-0", "FailedToRetrieveImagePullSecret", MISSING)]
    for secrets, events, text in (
        ([], [], "it has no pull secrets"),
        ([{"name": "regcred"}], [], "its pull secrets: regcred"),
        ([{"name": "regcred"}], missing, MISSING),
    ):
        spec: JsonObject = {"containers": containers, "imagePullSecrets": secrets}
        finding = found(view(pod(spec=spec, **waiting("ErrImagePull", "denied")), events=events))
        assert finding.evidence[-1].text == text
