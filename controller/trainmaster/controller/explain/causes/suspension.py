"""Suspended: who wants the job not to run, as far as it can be told; and QuotaExceeded of queues of Kueue.

Kueue suspends jobs when they are created, by a webhook: it is told by the label of the queue, not by who wrote the
field.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Final

from trainmaster.controller.explain.cause import Cause
from trainmaster.controller.explain.commands import kubectl, trainmaster
from trainmaster.controller.explain.findings import Certainty, Evidence, Finding, ObjectReference, reference_to
from trainmaster.controller.explain.state import State, state_of
from trainmaster.controller.explain.times import parse_time
from trainmaster.controller.explain.view import JobView, WhyUnread, condition_since, true_conditions
from trainmaster.runtime.api.constants import FIELD_MANAGER
from trainmaster.runtime.jobs.constants import SUSPENDED
from trainmaster.runtime.jsontree import JsonObject

QUEUE_LABEL: Final = "kueue.x-k8s.io/queue-name"
_PRIORITY_LABEL: Final = "kueue.x-k8s.io/priority-class"
_KUEUE: Final = "Kueue"
_WORKLOADS: Final = "workloads.kueue.x-k8s.io"
_RESERVED, _EVICTED, _ADMITTED = "QuotaReserved", "Evicted", "Admitted"
_COMMANDS: Final = {
    "trainmaster-cli": "by `trainmaster suspend`",
    "kubectl-client-side-apply": "by kubectl apply",
    "kubectl": "by kubectl apply --server-side",
}
"""What managers of fields are that people know by another name; the others of kubectl are `kubectl-COMMAND`."""


def suspended(view: JobView) -> Iterator[Finding]:
    """Who has suspended the job."""
    if state_of(view).state is not State.SUSPENDED:
        return
    since = condition_since(view.conditions.get(SUSPENDED) or {})
    queue = "" if _lacks_kueue(view) else queue_of(view)
    jobset = _suspended_jobset(view)
    if _suspends(view.job):
        manager, at = _who(view.job, "spec") if view.is_trainjob else _who(view.job, "spec", "runPolicy")
        path = "spec.suspend" if view.is_trainjob else "spec.runPolicy.suspend"
        by = f", set {_by(manager)}" if manager else ""
        text = f"{path} is true{by}"
        if queue:
            text += f"; it waits in the queue {queue} of {_KUEUE}, which resumes it when it is admitted"
        elif queue_of(view):
            text += f"; the label {QUEUE_LABEL} has no effect: {_KUEUE} is not installed here"
        evidence = [Evidence(view.reference, text, at or since)]
        advice = _queue_advice(view, queue) if queue else (f"resume it: {trainmaster(view, 'resume')}",)
    elif jobset is not None:
        manager, at = _who(jobset, "spec")
        is_on_its_way = manager in ("", FIELD_MANAGER)
        by = f", set {_by(manager)}" if manager else ""
        evidence = [Evidence(reference_to(jobset), f"spec.suspend is true{by}, and that of the job is not", at)]
        advice = (
            ("wait a moment; if it stays so, see whether the manager is at work: trainmaster doctor",)
            if is_on_its_way
            else (f"ask who runs {manager}; the manager does not undo it",)
        )
    else:
        return
    yield Finding(Cause.SUSPENDED, Certainty.CERTAIN, tuple(evidence), since or evidence[0].at, advice)


def queued(view: JobView) -> Iterator[Finding]:
    """Why Kueue does not admit the job."""
    for workload in view.workloads or ():
        conditions = {str(each.get("type")): each for each in (workload.get("status") or {}).get("conditions") or ()}
        holding = true_conditions(workload)
        if _ADMITTED in holding or "Finished" in holding:
            continue
        evidence = list(_workload_evidence(workload, conditions))
        since = next((each.at for each in evidence if each.at is not None), None)
        evidence += _queue_evidence(view, workload)
        if not evidence:
            text = "it has not been looked at yet: no quota is reserved for it"
            evidence = [Evidence(reference_to(workload), text)]
        advice = _queue_advice(view, str((workload.get("spec") or {}).get("queueName") or queue_of(view)))
        yield Finding(Cause.QUOTA_EXCEEDED, Certainty.CERTAIN, tuple(evidence), since, advice)


def gated(view: JobView) -> Iterator[Finding]:
    """Pods that are held back by scheduling gates, which somebody has to remove."""
    held = [pod for pod in view.pods or () if (pod.get("spec") or {}).get("schedulingGates")]
    if not held:
        return
    gates = sorted({str(gate.get("name")) for pod in held for gate in pod["spec"]["schedulingGates"]})
    first = held[0]
    more = f", and {len(held) - 1} more" if len(held) > 1 else ""
    text = f"held back by scheduling gates: {', '.join(gates)}{more}"
    since = parse_time(first["metadata"].get("creationTimestamp"))
    by_kueue = all(gate.startswith("kueue.x-k8s.io/") for gate in gates)
    look = kubectl(view, "get", "pod", first["metadata"]["name"], "-o", "yaml")
    advice = _queue_advice(view, queue_of(view)) if by_kueue else (f"whoever set them has to remove them: {look}",)
    evidence = Evidence(reference_to({"kind": "Pod", **first}), text, since)
    yield Finding(Cause.SUSPENDED, Certainty.CERTAIN, (evidence,), since, advice)


def queue_of(view: JobView) -> str:
    """Return the name of the queue of Kueue that the job asks for; empty if it asks for none."""
    return str((view.job["metadata"].get("labels") or {}).get(QUEUE_LABEL) or "")


def _lacks_kueue(view: JobView) -> bool:
    return any(each.what == _WORKLOADS and each.why is WhyUnread.NOT_SERVED for each in view.unread)


def _suspends(job: JsonObject) -> bool:
    spec = job.get("spec") or {}
    return bool(spec.get("suspend") or (spec.get("runPolicy") or {}).get("suspend"))


def _suspended_jobset(view: JobView) -> JsonObject | None:
    return next((each for each in view.jobsets or () if (each.get("spec") or {}).get("suspend")), None)


def _who(obj: JsonObject, *path: str) -> tuple[str, datetime | None]:
    """Return which manager of fields has set `suspend` last, and when."""
    found: list[tuple[str, str]] = []
    for entry in obj["metadata"].get("managedFields") or ():
        fields = entry.get("fieldsV1") or {}
        for step in path:
            fields = fields.get(f"f:{step}") or {}
        if "f:suspend" in fields and not entry.get("subresource"):
            found.append((str(entry.get("time") or ""), str(entry.get("manager") or "")))
    if not found:
        return "", None
    time, manager = max(found)
    return manager, parse_time(time)


def _by(manager: str) -> str:
    return _COMMANDS.get(manager) or f"by {manager.replace('kubectl-', 'kubectl ', 1)}"


def _workload_evidence(workload: JsonObject, conditions: dict[str, JsonObject]) -> Iterator[Evidence]:
    spec, status = workload.get("spec") or {}, workload.get("status") or {}
    about = reference_to(workload)
    if spec.get("active") is False:
        yield Evidence(about, "spec.active is false: it is not to be admitted until somebody changes that")
    for name, wanted in ((_RESERVED, "False"), (_EVICTED, "True")):
        condition = conditions.get(name) or {}
        if condition.get("status") == wanted:
            yield Evidence(about, f"{condition.get('reason')}: {condition.get('message')}", condition_since(condition))
    for check in status.get("admissionChecks") or ():
        if check.get("state") != "Ready":
            told = f": {check['message']}" if check.get("message") else ""
            since = parse_time(check.get("lastTransitionTime"))
            yield Evidence(about, f"the admission check {check.get('name')} is {check.get('state')}{told}", since)


def _queue_evidence(view: JobView, workload: JsonObject) -> Iterator[Evidence]:
    """Tell of queues that are stopped, or do not exist."""
    name = str((workload.get("spec") or {}).get("queueName") or "")
    if view.queues is None:
        return
    if name and all((each.get("kind"), each["metadata"]["name"]) != ("LocalQueue", name) for each in view.queues):
        yield Evidence(ObjectReference("LocalQueue", view.namespace, name), "does not exist")
    for queue in view.queues:
        policy = (queue.get("spec") or {}).get("stopPolicy") or "None"
        if policy != "None":
            yield Evidence(reference_to(queue), f"is stopped: spec.stopPolicy is {policy}")
        for condition in (queue.get("status") or {}).get("conditions") or ():
            if condition.get("type") == "Active" and condition.get("status") == "False":
                told = f"is not active: {condition.get('reason')}: {condition.get('message')}"
                yield Evidence(reference_to(queue), told, condition_since(condition))


def _queue_advice(view: JobView, queue: str) -> tuple[str, ...]:
    """Say how to look at the queue."""
    if not queue:
        return (f"see what Kueue says: {kubectl(view, 'describe', 'workloads.kueue.x-k8s.io')}",)
    return (
        f"see what Kueue says: {kubectl(view, 'describe', 'workloads.kueue.x-k8s.io')}",
        f"see the queue: {kubectl(view, 'describe', 'localqueue', queue)}",
        f"wait until others end, ask for less, or set another {QUEUE_LABEL} or a higher {_PRIORITY_LABEL} (labels)",
        "resuming it by hand does not help: Kueue suspends it again",
    )
