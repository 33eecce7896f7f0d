"""QuotaExceeded of queues of Kueue: what it says of the workload of a job, how its queues are, who has the quota."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from trainmaster.controller.explain.cause import Cause
from trainmaster.controller.explain.findings import (
    Certainty,
    Evidence,
    Finding,
    ObjectReference,
    parse_time,
    reference_to,
)
from trainmaster.controller.explain.view import JobView, WhyUnread, condition_since, kubectl
from trainmaster.controller.job_fields import QUEUE_LABEL, true_conditions
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.quantity import Quantity, QuantityError

_PRIORITY_LABEL: Final = "kueue.x-k8s.io/priority-class"
_WORKLOADS: Final = "workloads.kueue.x-k8s.io"
_SHOWN: Final = 3
_RESERVED, _EVICTED, _ADMITTED = "QuotaReserved", "Evicted", "Admitted"


def queued(view: JobView) -> Iterator[Finding]:
    """Why Kueue does not admit the job."""
    for workload in view.workloads or ():
        conditions = {str(each.get("type")): each for each in (workload.get("status") or {}).get("conditions") or ()}
        holding = true_conditions(workload)
        if _ADMITTED in holding or "Finished" in holding:
            continue
        evidence = list(_workload_evidence(workload, conditions))
        since = next((each.at for each in evidence if each.at is not None), None)
        evidence += [*_queue_evidence(view, workload), *_quota_evidence(view, conditions.get(_RESERVED) or {})]
        if not evidence:
            text = "it has not been looked at yet: no quota is reserved for it"
            evidence = [Evidence(reference_to(workload), text)]
        advice = queue_advice(view, str((workload.get("spec") or {}).get("queueName") or queue_of(view)))
        yield Finding(Cause.QUOTA_EXCEEDED, Certainty.CERTAIN, evidence, since, advice)


def queue_of(view: JobView) -> str:
    """Return the name of the queue of Kueue that the job asks for; empty if it asks for none."""
    return str((view.metadata.get("labels") or {}).get(QUEUE_LABEL) or "")


def lacks_kueue(view: JobView) -> bool:
    """Tell whether the cluster is known to have no Kueue."""
    return any(each.what == _WORKLOADS and each.why is WhyUnread.NOT_SERVED for each in view.unread)


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


class _Amount(NamedTuple):
    """Of a resource in a flavor."""

    flavor: str
    resource: str


def _quota_evidence(view: JobView, reserved: JsonObject) -> Iterator[Evidence]:
    """Tell of what is scarce in the cluster's queue how much there is, and who has it."""
    if reserved.get("status") != "False":
        return
    for queue in view.queues or ():
        if queue.get("kind") != "ClusterQueue":
            continue
        about, name = reference_to(queue), queue["metadata"]["name"]
        limits, used = _limits(queue), _reservations(queue)
        scarce = _scarce(str(reserved.get("message") or ""), limits, used)
        amounts = [
            f"{used.get(each, '0')} of {limits[each]} {each.resource} in flavor {each.flavor}" for each in scarce
        ]
        if amounts:
            waiting = (queue.get("status") or {}).get("pendingWorkloads")
            also = f"; {waiting} workload{'s wait' if waiting != 1 else ' waits'} for it" if waiting else ""
            yield Evidence(about, f"has given away {', '.join(amounts)}{also}")
        held = [(each, amount) for each in view.quota_holders or () if (amount := _held(each, name, scarce))]
        held.sort(key=lambda pair: -max(_nano(amount) for amount in pair[1].values()))
        for number, (holder, amount) in enumerate(held[:_SHOWN], 1):
            more = f"; {len(held) - _SHOWN} more hold some" if number == _SHOWN < len(held) else ""
            yield _holder(holder, amount, name, more)


def _limits(queue: JsonObject) -> Mapping[_Amount, str]:
    return {
        _Amount(str(flavor.get("name")), str(resource.get("name"))): str(resource.get("nominalQuota", 0))
        for group in (queue.get("spec") or {}).get("resourceGroups") or ()
        for flavor in group.get("flavors") or ()
        for resource in flavor.get("resources") or ()
    }


def _reservations(queue: JsonObject) -> Mapping[_Amount, str]:
    return {
        _Amount(str(flavor.get("name")), str(resource.get("name"))): str(resource.get("total", 0))
        for flavor in (queue.get("status") or {}).get("flavorsReservation") or ()
        for resource in flavor.get("resources") or ()
    }


def _scarce(message: str, limits: Mapping[_Amount, str], used: Mapping[_Amount, str]) -> Sequence[_Amount]:
    """Return what a message says that it does not suffice; of a message that names nothing, what is given away."""
    words = set(re.findall(r"[\w./-]*\w", message))
    named = [each for each in limits if each.resource in words]
    of_flavor = [each for each in named if each.flavor in words]
    full = [each for each in limits if _nano(used.get(each, "0")) >= _nano(limits[each]) > 0]
    return (of_flavor or named or full)[:_SHOWN]


def _held(workload: JsonObject, queue: str, scarce: Sequence[_Amount]) -> Mapping[_Amount, str]:
    """Return how much a workload holds of what is scarce in a queue."""
    admission = (workload.get("status") or {}).get("admission") or {}
    if admission.get("clusterQueue") != queue or "Finished" in true_conditions(workload):
        return {}
    held: dict[_Amount, Quantity] = {}
    for pods in admission.get("podSetAssignments") or ():
        for resource, amount in (pods.get("resourceUsage") or {}).items():
            each = _Amount(str((pods.get("flavors") or {}).get(resource)), resource)
            if each in scarce and _nano(str(amount)):
                held[each] = held[each] + Quantity.parse(amount) if each in held else Quantity.parse(amount)
    return {each: str(amount) for each, amount in held.items()}


def _holder(workload: JsonObject, held: Mapping[_Amount, str], queue: str, more: str) -> Evidence:
    amounts = ", ".join(f"{amount} {each.resource}" for each, amount in held.items())
    owners = workload["metadata"].get("ownerReferences") or ()
    owner = next((f"{each.get('kind')} {each.get('name')}" for each in owners), "nobody")
    where = workload["metadata"].get("namespace")
    text = f"holds {amounts} of the ClusterQueue {queue}, for {owner} in namespace {where}{more}"
    return Evidence(reference_to(workload), text, condition_since(true_conditions(workload).get(_RESERVED) or {}))


def _nano(amount: str) -> int:
    try:
        return Quantity.parse(amount).nano
    except QuantityError:  # somebody else's server let it in
        return 0


def queue_advice(view: JobView, queue: str) -> tuple[str, ...]:
    """Say how to look at the queue."""
    names = [each["metadata"]["name"] for each in view.workloads or ()][:1]
    look = f"see what Kueue says: {kubectl(view, 'describe', _WORKLOADS, *names)}"
    if not queue:
        return (look,)
    return (
        look,
        f"see the queue: {kubectl(view, 'describe', 'localqueue', queue)}",
        f"wait until others end, ask for less, or set another {QUEUE_LABEL} or a higher {_PRIORITY_LABEL} (labels)",
        "resuming it by hand does not help: Kueue suspends it again",
    )
