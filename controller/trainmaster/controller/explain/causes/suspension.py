"""Suspended: who wants the job not to run, as far as it can be told.

Kueue suspends jobs when they are created, by a webhook: it is told by the label of the queue, not by who wrote the
field.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Final

from trainmaster.controller.explain.cause import Cause
from trainmaster.controller.explain.causes.kueue import lacks_kueue, queue_advice, queue_of
from trainmaster.controller.explain.findings import Certainty, Evidence, Finding, parse_time, reference_to
from trainmaster.controller.explain.state import State, state_of
from trainmaster.controller.explain.view import JobView, condition_since, kubectl, trainmaster
from trainmaster.controller.job_fields import QUEUE_LABEL
from trainmaster.runtime.api.constants import FIELD_MANAGER
from trainmaster.runtime.jobs.constants import SUSPENDED
from trainmaster.runtime.jsontree import JsonObject

_COMMANDS: Final = {
    "trainmaster-cli": "by `trainmaster run` or `suspend`",
    "kubectl-client-side-apply": "by kubectl apply",
    "kubectl": "by kubectl apply --server-side",
}
"""What managers of fields are that people know by another name; the others of kubectl are `kubectl-COMMAND`."""


def suspended(view: JobView) -> Iterator[Finding]:
    """Who has suspended the job."""
    if state_of(view).state is not State.SUSPENDED:
        return
    since = condition_since(view.conditions.get(SUSPENDED) or {})
    queue = "" if lacks_kueue(view) else queue_of(view)
    jobset = _suspended_jobset(view)
    if _suspends(view.object):
        manager, at = _who(view.object, "spec") if view.is_trainjob else _who(view.object, "spec", "runPolicy")
        path = "spec.suspend" if view.is_trainjob else "spec.runPolicy.suspend"
        by = f", set {_by(manager)}" if manager else ""
        text = f"{path} is true{by}"
        if queue:
            text += f"; it waits in the queue {queue} of Kueue, which resumes it when it is admitted"
        elif queue_of(view):
            text += f"; the label {QUEUE_LABEL} has no effect: Kueue is not installed here"
        evidence = [Evidence(view.reference, text, at or since)]
        advice = queue_advice(view, queue) if queue else (f"resume it: {trainmaster(view, 'resume')}",)
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
    advice = queue_advice(view, queue_of(view)) if by_kueue else (f"whoever set them has to remove them: {look}",)
    evidence = Evidence(reference_to({"kind": "Pod", **first}), text, since)
    yield Finding(Cause.SUSPENDED, Certainty.CERTAIN, (evidence,), since, advice)


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
