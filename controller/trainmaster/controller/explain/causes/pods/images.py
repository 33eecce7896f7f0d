"""ImagePullFailed: images that cannot be had, in the words of the registry, and whether a pull secret is at fault."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from trainmaster.controller.explain.cause import Cause
from trainmaster.controller.explain.causes.pods.evidence import (
    evidence_of,
    grouped,
    is_deleted,
    one_line,
    spec_of,
    waiting_containers,
)
from trainmaster.controller.explain.findings import Certainty, Evidence, Finding, parse_time, reference_to
from trainmaster.controller.explain.view import JobView
from trainmaster.runtime.jsontree import JsonObject

_REASONS: Final = frozenset(
    {
        "ErrImagePull",
        "ImagePullBackOff",
        "InvalidImageName",
        "ErrImageNeverPull",
        "ImageInspectError",
        "RegistryUnavailable",
        "SignatureValidationFailed",
    }
)
_BACK_OFF: Final = re.compile(r'^Back-off pulling image "[^"]*"(?:: ErrImagePull: |$)')
_RPC: Final = re.compile(r"rpc error: code = \w+ desc = ")
_UNREAD_CREDENTIALS: Final = "FailedToRetrieveImagePullSecret"

_ADVICE: Final[Sequence[tuple[re.Pattern[str], str]]] = tuple(
    (re.compile(pattern, re.IGNORECASE), text)
    for pattern, text in (
        (
            r"unauthorized|authentication required|denied|insufficient_scope|authorization failed|\b40[13]\b",
            "correct the name of the image, or give the pods a pull secret for the registry (imagePullSecrets)",
        ),
        (
            r"no such host|server misbehaving|name resolution|lookup ",
            "correct the registry in the name of the image: its host name cannot be resolved",
        ),
        (
            r"toomanyrequests|too many requests|rate limit|\b429\b",
            "wait, or pull with credentials: the registry limits its requests",
        ),
        (r"x509|certificate|tls:", "let the nodes trust the certificate of the registry"),
        (
            r"no match for platform|exec format|no matching manifest",
            "build the image for the architecture of the nodes",
        ),
        (
            r"not found|manifest unknown|name unknown|\b404\b",
            "correct the name or the tag of the image: the registry does not have it",
        ),
        (
            r"i/o timeout|connection refused|deadline exceeded|no route|unreachable|\beof\b|\b50\d\b",
            "see whether the nodes reach the registry, and whether it works",
        ),
        (r"no space left", "make room on the disk of the node"),
        (
            r"pull policy of never",
            "let the node pull it: imagePullPolicy is Never, and the node does not have the image",
        ),
        (r"parse image name|invalid reference", "correct the name of the image: it is not written as one"),
    )
)


def image_pull_failed(view: JobView) -> Iterator[Finding]:
    """Find containers that wait for an image that their node does not get."""
    told, advice = [], []
    for pod in view.pods or ():
        if is_deleted(pod):
            continue
        for status, waiting in waiting_containers(pod):
            if waiting.get("reason") in _REASONS:
                image = _image_of(pod, status)
                words = _words(view, pod, image, str(waiting.get("message") or ""))
                told.append((f"container {status['name']}: image {image}: {words or waiting['reason']}", pod))
                advice.append(f"{image}: {image_advice(words)}")
    groups = grouped(told)
    if not groups:
        return
    evidence = evidence_of(groups, of=len(told))
    for _, pods in groups[:1]:
        evidence += _secrets(view, pods[0])
    times = (parse_time(pods[0]["metadata"].get("creationTimestamp")) for _, pods in groups)
    since = min((time for time in times if time is not None), default=None)
    yield Finding(
        Cause.IMAGE_PULL_FAILED, Certainty.CERTAIN, evidence, since, list(dict.fromkeys(advice))[: len(groups)]
    )


def _image_of(pod: JsonObject, status: JsonObject) -> str:
    """Return the image as its author wrote it; the status may have a longer name."""
    containers = (*(spec_of(pod).get("initContainers") or ()), *(spec_of(pod).get("containers") or ()))
    found: JsonObject = next((each for each in containers if each.get("name") == status["name"]), {})
    return str(found.get("image") or status.get("image") or "")


def _words(view: JobView, pod: JsonObject, image: str, message: str) -> str:
    """Return what the registry, or the container runtime, says of an image."""
    words = _BACK_OFF.sub("", message)
    if not words:  # older kubelets say while they wait only that they do
        events = view.events_about("Pod", pod["metadata"]["name"])
        failed = f'Failed to pull image "{image}": '
        told = [event.note.removeprefix(failed) for event in events if event.note.startswith(failed)]
        words = told[-1] if told else ""
    return one_line(_RPC.sub("", words), limit=400)


def image_advice(words: str) -> str:
    """Return what to do about an image, from what the registry or the container runtime says."""
    return next((text for pattern, text in _ADVICE if pattern.search(words)), "correct the name of the image")


def _secrets(view: JobView, pod: JsonObject) -> Iterator[Evidence]:
    """Yield which credentials the pod has for registries, or that they are missing."""
    events = view.events_about("Pod", pod["metadata"]["name"])
    missing = [event for event in events if event.reason == _UNREAD_CREDENTIALS]
    about = reference_to({"kind": "Pod", **pod})
    if missing:
        yield Evidence(about, one_line(missing[-1].note), missing[-1].last)
        return
    names = [str(each.get("name")) for each in spec_of(pod).get("imagePullSecrets") or ()]
    yield Evidence(about, f"its pull secrets: {', '.join(names)}" if names else "it has no pull secrets")
