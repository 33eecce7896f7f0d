"""ContainerConfigError: containers that cannot be created as written, mostly for want of a ConfigMap or Secret.

Those that wait for the devices of others on an embedded cluster are Unschedulable: nothing is wrong with how they are
written.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from typing import Final

from trainmaster.controller.explain.cause import Cause
from trainmaster.controller.explain.causes.pods.evidence import (
    evidence_of,
    grouped,
    one_line,
    spec_of,
    waiting_containers,
    waiting_pods,
)
from trainmaster.controller.explain.findings import Certainty, Finding, parse_time
from trainmaster.controller.explain.view import JobView
from trainmaster.runtime.jsontree import JsonObject

_REASONS: Final = frozenset(
    {"CreateContainerConfigError", "CreateContainerError", "RunContainerError", "PreCreateHookError"}
)

MISSING_OBJECT: Final = re.compile(r'\b(configmap|secret)s? "([^"]+)" not found', re.IGNORECASE)
"""What the kubelet says of a ConfigMap or Secret that a container or a volume names."""

_MISSING_KEY: Final = re.compile(
    r"couldn't find key (?P<key>\S+) in (?P<kind>ConfigMap|Secret) [^/\s]+/(?P<name>[^\s,]+)"
    r"|references non-existent (?P<kind2>config|secret) key: (?P<key2>\S+)",
    re.IGNORECASE,
)
_KINDS: Final = {"configmap": "ConfigMap", "secret": "Secret", "config": "ConfigMap"}
_VOLUME: Final = re.compile(r'for volume "([^"]+)"')
_MOUNT: Final = "FailedMount"
_GOES_ON: Final = "the pods go on by themselves"

_DEVICES: Final = re.compile(r"asks for \d+ \S+, and \d+ are free until others have ended")
"""What the kubelet of an embedded cluster says of devices that others have."""

_OTHER_CLUSTER: Final = re.compile(r"of another cluster, that in ([^;]+)")


def container_config_error(view: JobView) -> Iterator[Finding]:
    """Find containers that cannot be created, volumes whose ConfigMap or Secret is missing, and devices in use."""
    told: list[tuple[str, JsonObject]] = []
    held: list[tuple[str, JsonObject]] = []
    for pod in waiting_pods(view):
        found = False
        for status, waiting in waiting_containers(pod):
            if waiting.get("reason") in _REASONS:
                found = True
                message = one_line(waiting.get("message"))
                waits = held if _DEVICES.search(message) else told
                waits.append((f"container {status['name']}: {waiting['reason']}: {message}", pod))
        events = view.events_about("Pod", pod["metadata"]["name"])
        mounts = [event.note for event in events if event.reason == _MOUNT and lacks_something(event.note)]
        if mounts and not found and not _is_mounted(pod):
            told.append((one_line(mounts[-1]), pod))
    for cause, texts in ((Cause.CONTAINER_CONFIG_ERROR, told), (Cause.UNSCHEDULABLE, held)):
        if groups := grouped(texts):
            advice = list(dict.fromkeys(line for text, pods in groups for line in _advice(text, view, pods[0])))
            times = (parse_time(pods[0]["metadata"].get("creationTimestamp")) for _, pods in groups)
            since = min((time for time in times if time is not None), default=None)
            yield Finding(cause, Certainty.CERTAIN, evidence_of(groups, of=len(texts)), since, advice)


def lacks_something(note: str) -> bool:
    """Say whether a text tells that a ConfigMap, a Secret or a key of one is missing."""
    return MISSING_OBJECT.search(note) is not None or _MISSING_KEY.search(note) is not None


def _is_mounted(pod: JsonObject) -> bool:
    """Say whether a container of a pod got further than its volumes."""
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    return any("running" in (each.get("state") or {}) or "terminated" in (each.get("state") or {}) for each in statuses)


def _source_of(pod: JsonObject, text: str) -> str:
    """Return of which ConfigMap or Secret a volume is that a text names; empty if nobody knows."""
    found = _VOLUME.search(text)
    volumes = spec_of(pod).get("volumes") or ()
    volume: JsonObject = next((each for each in volumes if found and each.get("name") == found[1]), {})
    source = volume.get("configMap") or volume.get("secret") or {}
    return str(source.get("name") or source.get("secretName") or "")


def _advice(text: str, view: JobView, pod: JsonObject) -> Iterator[str]:
    if _DEVICES.search(text):
        yield f"wait until those have ended that have the devices: {_GOES_ON} then"
        for directory in dict.fromkeys(_OTHER_CLUSTER.findall(text)):
            jobs = shlex.join(["trainmaster", "list", "-A", "--kubeconfig", f"{directory}/kubeconfig"])
            yield f"or see which jobs of the other cluster have them, and delete one: {jobs}"
    elif missing := MISSING_OBJECT.search(text):
        kind, name = _KINDS[missing[1].lower()], missing[2]
        yield f"create the {kind} {name} in the namespace {view.namespace}, or correct what refers to it; {_GOES_ON}"
    elif key := _MISSING_KEY.search(text):
        kind = _KINDS[(key["kind"] or key["kind2"]).lower()]
        of = key["name"] or _source_of(pod, text)
        where = f" {of}" if of else ""
        name = key["key"] or key["key2"]
        yield f"put the key {name} into the {kind}{where}, or correct what refers to it; {_GOES_ON}"
    else:
        yield "correct what the message names, in the job or in its runtime"
