"""SidecarRunning: pods that go on because another container of them does, while the one that trains has ended."""

from __future__ import annotations

from collections.abc import Iterator

from trainmaster.controller.container_failures import REPLICATED_JOB_LABEL
from trainmaster.controller.explain.cause import Cause
from trainmaster.controller.explain.causes.pods.evidence import is_deleted, labels_of, spec_of, who
from trainmaster.controller.explain.findings import Certainty, Evidence, Finding, parse_time, reference_to
from trainmaster.controller.explain.pods import current_pods, phase_of
from trainmaster.controller.explain.view import JobView, own_pod_specs
from trainmaster.runtime.api.constants import NODE
from trainmaster.runtime.jobs.constants import REPLICA_TYPE_LABEL
from trainmaster.runtime.jsontree import JsonObject


def sidecar_running(view: JobView) -> Iterator[Finding]:
    """Find pods whose container that trains has ended for good, while others of them still run."""
    found: dict[tuple[int, str], list[JsonObject]] = {}
    for pod in current_pods(view):
        states = {each["name"]: each.get("state") or {} for each in _statuses(pod)}
        ended = states.pop(training_container(view, pod), {}).get("terminated")
        goes_on = ", ".join(name for name, state in states.items() if "running" in state)
        if phase_of(pod) != "Running" or is_deleted(pod) or not ended or not goes_on:
            continue
        if not ended.get("exitCode") or spec_of(pod).get("restartPolicy") == "Never":
            found.setdefault((ended.get("exitCode") or 0, goes_on), []).append(pod)
    for (code, goes_on), pods in found.items():
        container = training_container(view, pods[0])
        text = f"{who(pods)}: container {container} has ended with exit code {code}, and {goes_on} still runs"
        ends = [each["state"]["terminated"] for each in _statuses(pods[0]) if each["name"] == container]
        about, at = reference_to({"kind": "Pod", **pods[0]}), parse_time(ends[0].get("finishedAt"))
        evidence = Evidence(about, f"{text}: a pod ends with its last container", at)
        where = "the runtime" if view.is_trainjob else "the job"
        native = "an init container with restartPolicy: Always, which ends with the others"
        istio = 'sidecar.istio.io/inject: "false"'
        advice = (
            f"make {goes_on} a native sidecar in {where}: {native}",
            f"if it is injected, keep it away by a label of the pods in {where}: for Istio {istio}",
        )
        # How it is, not what happened: other pods may have started since.
        yield Finding(Cause.SIDECAR_RUNNING, Certainty.CERTAIN, (evidence,), None, advice)


def training_container(view: JobView, pod: JsonObject) -> str:
    """Return the name of the container of a pod that trains; empty if nobody knows."""
    labels, names = labels_of(pod), [each["name"] for each in _statuses(pod)]
    if group := labels.get(REPLICATED_JOB_LABEL):
        return next((name for name in (NODE, group) if name in names), "")
    # What is injected a job of kubeflow.org/v1 does not name.
    specs = own_pod_specs(view, str(labels.get(REPLICA_TYPE_LABEL)))
    own = [str(each.get("name")) for spec in specs for each in spec.get("containers") or ()]
    return next((name for name in own if name in names), "")


def _statuses(pod: JsonObject) -> list[JsonObject]:
    return (pod.get("status") or {}).get("containerStatuses") or []
