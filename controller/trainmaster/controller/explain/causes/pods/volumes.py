"""VolumePending: claims that do not exist or are not bound, with the storage class at fault, and volumes not mounted.

A claim whose class waits for the first pod is as it should be for as long as that has no node.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from trainmaster.controller.explain.cause import Cause
from trainmaster.controller.explain.causes.pods.container_config import lacks_something
from trainmaster.controller.explain.causes.pods.evidence import evidence_of, grouped, one_line, spec_of, waiting_pods
from trainmaster.controller.explain.causes.pods.scheduling import scheduling_message
from trainmaster.controller.explain.findings import Certainty, Event, Evidence, Finding, ObjectReference, parse_time
from trainmaster.controller.explain.view import JobView, kubectl
from trainmaster.runtime.jsontree import JsonObject

OF_VOLUMES: Final = re.compile(r"persistentvolume|volume node affinity|volume zone", re.IGNORECASE)
"""What the scheduler says of volumes."""

_NOT_FOUND: Final = re.compile(r'persistentvolumeclaims? "([^"]+)" (?:not found|is being deleted)')
_NOT_MOUNTED: Final = frozenset({"FailedMount", "FailedAttachVolume", "FailedMapVolume"})
_WAITS_FOR_POD: Final = frozenset({"WaitForFirstConsumer", "WaitForPodScheduled"})
_DEFAULT_CLASS: Final = "storageclass.kubernetes.io/is-default-class"
_SHOWN: Final = 3


def volume_pending(view: JobView) -> Iterator[Finding]:
    """Find volumes for which pods wait."""
    waiting = waiting_pods(view)
    evidence, advice = [], []
    for name in dict.fromkeys(claim for pod in waiting for claim in claim_names(pod)):
        for text, what_helps in _problem(view, name, waiting):
            evidence.append(Evidence(ObjectReference("PersistentVolumeClaim", view.namespace, name), text))
            advice.append(what_helps)
    said = [(message, pod) for pod in waiting if OF_VOLUMES.search(message := scheduling_message(view, pod))]
    evidence = evidence[:_SHOWN] + evidence_of(grouped(said), of=len(said), condition="PodScheduled")
    if not advice and said:
        advice = [f"see the claims of the pods: {kubectl(view, 'get', 'pvc')}"]
    mounts = [(one_line(event.note), pod) for pod in waiting for event in _failed_mounts(view, pod)[-1:]]
    evidence += evidence_of(grouped(mounts), of=len(mounts))
    if mounts and not advice:
        advice = [
            f"see the volume and whatever serves it: {kubectl(view, 'describe', 'pod', waiting[0]['metadata']['name'])}"
        ]
    if not evidence:
        return
    created = (parse_time(pod["metadata"].get("creationTimestamp")) for pod in waiting)
    since = min((time for time in created if time is not None), default=None)
    yield Finding(Cause.VOLUME_PENDING, Certainty.CERTAIN, evidence, since, list(dict.fromkeys(advice)))


def claim_names(pod: JsonObject) -> Iterator[str]:
    """Yield the names of the claims that a pod mounts."""
    for volume in spec_of(pod).get("volumes") or ():
        if claim := volume.get("persistentVolumeClaim"):
            yield str(claim.get("claimName"))
        elif volume.get("ephemeral"):
            yield f"{pod['metadata']['name']}-{volume['name']}"


def _problem(view: JobView, name: str, waiting: list[JsonObject]) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with a claim, and what helps; nothing if that is unknown, or nothing is wrong."""
    create = f"create the claim {name} in the namespace {view.namespace}, or name another one in the volumes of the job"
    if view.claims is None:
        messages = (scheduling_message(view, pod) for pod in waiting)
        if any(name in _NOT_FOUND.findall(message) for message in messages):
            yield "it does not exist", create
        return
    claim = next((each for each in view.claims if each["metadata"]["name"] == name), None)
    if claim is None:
        yield "it does not exist", create
    elif claim["metadata"].get("deletionTimestamp"):
        yield "it is being deleted", f"wait until it is gone, and create the claim {name} again"
    elif (claim.get("status") or {}).get("phase") != "Bound":
        yield from _unbound(view, claim)


def _unbound(view: JobView, claim: JsonObject) -> Iterator[tuple[str, str]]:
    name, spec = claim["metadata"]["name"], claim.get("spec") or {}
    class_name = spec.get("storageClassName")
    events = list(view.events_about("PersistentVolumeClaim", name))
    warnings = [event for event in events if event.is_warning or event.reason == "FailedBinding"]
    classes = (
        None if view.storage_classes is None else {each["metadata"]["name"]: each for each in view.storage_classes}
    )
    phase = (claim.get("status") or {}).get("phase") or "Pending"
    said = f": {one_line(warnings[-1].note, limit=300)}" if warnings else ""
    if phase == "Lost":
        yield (
            f"it is Lost: its volume {spec.get('volumeName', '')} is gone{said}",
            "restore the volume, or use another claim",
        )
    elif class_name and classes is not None and class_name not in classes:
        there = ", ".join(sorted(classes)[:_SHOWN]) or "none"
        yield (
            f"it is {phase}: its storage class {class_name} does not exist{said}; there are: {there}",
            f"create the claim {name} anew with another storageClassName, or create the class {class_name}",
        )
    elif class_name is None and classes is not None and not any(map(_is_default, classes.values())):
        yield (
            f"it is {phase}: it names no storage class, and none is the default{said}",
            f"create the claim {name} anew with a storageClassName; which there are: "
            + kubectl(view, "get", "storageclass", namespaced=False),
        )
    elif warnings or not _waits_for_pod(events, classes, class_name):
        yield f"it is {phase}{said}", f"see why it is not bound: {kubectl(view, 'describe', 'pvc', name)}"


def _waits_for_pod(events: list[Event], classes: dict[str, JsonObject] | None, class_name: str | None) -> bool:
    if any(event.reason in _WAITS_FOR_POD for event in events):
        return True
    found = (classes or {}).get(class_name or "") or {}
    return found.get("volumeBindingMode") == "WaitForFirstConsumer"


def _is_default(storage_class: JsonObject) -> bool:
    return (storage_class["metadata"].get("annotations") or {}).get(_DEFAULT_CLASS) == "true"


def _failed_mounts(view: JobView, pod: JsonObject) -> list[Event]:
    """Return the events about volumes of a pod that could not be mounted, but for those of missing ConfigMaps."""
    events = view.events_about("Pod", pod["metadata"]["name"])
    return [event for event in events if event.reason in _NOT_MOUNTED and not lacks_something(event.note)]
