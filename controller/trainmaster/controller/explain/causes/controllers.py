"""JobSetControllerAbsent, ManagerAbsent, AnotherManagerLeads: nobody is at work, or somebody else is.

That nobody is at work is seen by what is not done: an object that should be there half a minute after its creation,
or a status that should follow another one. Deployments and leases, where they may be read, make it certain.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Final

from trainmaster.controller.conditions import BLOCKED
from trainmaster.controller.container_failures import restart_attempt
from trainmaster.controller.explain.cause import Cause
from trainmaster.controller.explain.findings import (
    Certainty,
    Evidence,
    Finding,
    ObjectReference,
    parse_time,
    reference_to,
)
from trainmaster.controller.explain.state import PATIENCE
from trainmaster.controller.explain.view import JobView, WhyUnread, condition_since
from trainmaster.controller.job_fields import true_conditions
from trainmaster.runtime.api.constants import JOBSET_COMPLETED, JOBSET_FAILED
from trainmaster.runtime.jsontree import JsonObject

LEASE: Final = "trainer.kubeflow.org"
"""For which managers compete, unless their configuration names another one."""

_JOBSETS: Final = "jobsets.jobset.x-k8s.io"
_SKEW: Final = 2
"""After so many times its duration a lease is expired for sure: clocks differ."""

_DOCTOR: Final = "see what is wrong with the installation: trainmaster doctor"


def another_manager_leads(view: JobView) -> Iterator[Finding]:
    """A job that is not ours to run, or that the leader does not care for."""
    if view.has_ended:
        return
    if view.managed_by is not None:
        path = "spec.managedBy" if view.is_trainjob else "spec.runPolicy.managedBy"
        evidence = Evidence(view.reference, f"{path} is {view.managed_by}: Trainmaster leaves it alone")
        advice: tuple[str, ...] = (
            f"see whether {view.managed_by} is at work",
            f"{path} cannot be changed: to let Trainmaster run the job, create it again without that field",
        )
        yield Finding(Cause.ANOTHER_MANAGER_LEADS, Certainty.CERTAIN, (evidence,), view.created, advice)
        return
    leases = [lease for lease in view.leases or () if is_held(lease, view.now)]
    if leases and (neglected := _neglected(view)) is not None:
        evidence_of = [
            Evidence(
                reference_to({"kind": "Lease", **lease}),
                f"in namespace {lease['metadata']['namespace']} is held by {lease['spec']['holderIdentity']}",
                parse_time(lease["spec"].get("acquireTime")),
            )
            for lease in leases
        ]
        advice = (
            "see whether that manager serves this namespace (watchNamespaces), and what its log says of the job",
            _DOCTOR,
        )
        yield Finding(Cause.ANOTHER_MANAGER_LEADS, Certainty.LIKELY, (*evidence_of, neglected), neglected.at, advice)


def manager_absent(view: JobView) -> Iterator[Finding]:
    """A job that no manager has looked at, or of whose end none has taken note."""
    neglected = None if view.has_ended or view.managed_by is not None else _neglected(view)
    if neglected is None or any(is_held(lease, view.now) for lease in view.leases or ()):
        return
    evidence = [neglected]
    certainty = Certainty.LIKELY
    if view.managers is not None:
        evidence += _deployments(view.managers, "Deployment of a manager")
        certainty = Certainty.CERTAIN if all(not _available(each) for each in view.managers) else certainty
    for lease in view.leases or ():
        certainty = Certainty.CERTAIN
        renewed = parse_time((lease.get("spec") or {}).get("renewTime"))
        holder = (lease.get("spec") or {}).get("holderIdentity") or "nobody"
        text = (
            f"in namespace {lease['metadata']['namespace']} was held by {holder} last, who does not renew it any more"
        )
        evidence.append(Evidence(reference_to({"kind": "Lease", **lease}), text, renewed))
    if view.leases is not None and not view.leases:
        evidence.append(Evidence(ObjectReference("Lease", "", LEASE), "exists in no namespace: nobody leads"))
    yield Finding(
        Cause.MANAGER_ABSENT,
        certainty,
        tuple(evidence),
        neglected.at,
        (_DOCTOR, "the job goes on by itself when a manager is there"),
    )


def jobset_controller_absent(view: JobView) -> Iterator[Finding]:
    """A JobSet of which nobody makes Jobs, or that does not take note of their end."""
    if view.has_ended or not view.is_trainjob:
        return
    if any(each.what == _JOBSETS and each.why is WhyUnread.NOT_SERVED for each in view.unread):
        text = f"the cluster serves no {_JOBSETS}: JobSet is not installed"
        absent = Evidence(view.reference, text)
        yield Finding(Cause.JOBSET_CONTROLLER_ABSENT, Certainty.CERTAIN, (absent,), view.created, _install())
        return
    for jobset in view.jobsets or ():
        neglected = _neglected_jobset(view, jobset)
        if neglected is None:
            continue
        found: list[Evidence] = [neglected]
        certainty = Certainty.LIKELY
        if view.jobset_controllers is not None:
            found += _deployments(view.jobset_controllers, "Deployment of JobSet's controller")
            if all(not _available(each) for each in view.jobset_controllers):
                certainty = Certainty.CERTAIN
        yield Finding(Cause.JOBSET_CONTROLLER_ABSENT, certainty, tuple(found), neglected.at, _install())


def _install() -> tuple[str, ...]:
    return (
        "see its pods: kubectl get pods -n jobset-system",
        f"install JobSet where it is missing: https://jobset.sigs.k8s.io; {_DOCTOR}",
    )


def _is_old(moment: datetime | None, now: datetime) -> bool:
    return moment is not None and now - moment > PATIENCE


def _neglected(view: JobView) -> Evidence | None:
    """Say what a manager should have done with the job and has not."""
    if view.is_trainjob:
        if view.jobsets is None or BLOCKED in view.conditions:
            return None
        for jobset in view.jobsets:
            if jobset["metadata"].get("deletionTimestamp"):
                continue  # a new one takes its place
            for name, condition in true_conditions(jobset).items():
                since = condition_since(condition)
                if name in (JOBSET_COMPLETED, JOBSET_FAILED) and _is_old(since, view.now):
                    return Evidence(reference_to(jobset), f"is {name}, and the job does not know", since)
        if not view.jobsets and not view.snapshots and not view.status and _is_old(view.created, view.now):
            return Evidence(view.reference, "has no status, no snapshot and no JobSet", view.created)
        return None
    if not view.status and view.pods is not None and not view.pods and _is_old(view.created, view.now):
        return Evidence(view.reference, "has no status and no pods", view.created)
    return None


def _neglected_jobset(view: JobView, jobset: JsonObject) -> Evidence | None:
    """Say what JobSet's controller should have done and has not."""
    if (jobset.get("spec") or {}).get("managedBy") not in (None, "jobset.sigs.k8s.io/jobset-controller"):
        return None
    conditions = true_conditions(jobset)
    if JOBSET_COMPLETED in conditions or JOBSET_FAILED in conditions:
        return None
    jobs = view.jobs
    created = parse_time(jobset["metadata"].get("creationTimestamp"))
    about = reference_to(jobset)
    if jobs is not None and not jobs and not jobset.get("status") and _is_old(created, view.now):
        # Whoever is refused, says so.
        if any(event.reason.endswith("Failed") for event in view.events_about("JobSet", about.name)):
            return None
        return Evidence(about, "has no status and no Jobs", created)
    for job in jobs or ():
        failed = true_conditions(job).get("Failed")
        restarts = (jobset.get("status") or {}).get("restarts") or 0
        if failed is not None and restart_attempt(job) == restarts and _is_old(condition_since(failed), view.now):
            name = job["metadata"]["name"]
            return Evidence(about, f"does not take note that its Job {name} has failed", condition_since(failed))
    return None


def is_held(lease: JsonObject, now: datetime) -> bool:
    """Return whether somebody renews a lease."""
    spec = lease.get("spec") or {}
    renewed = parse_time(spec.get("renewTime"))
    duration = timedelta(seconds=_SKEW * int(spec.get("leaseDurationSeconds") or 15))
    return bool(spec.get("holderIdentity")) and renewed is not None and now - renewed < duration


def _available(deployment: JsonObject) -> int:
    return int((deployment.get("status") or {}).get("availableReplicas") or 0)


def _deployments(deployments: Sequence[JsonObject], what: str) -> list[Evidence]:
    if not deployments:
        return [Evidence(ObjectReference("Deployment", "", ""), f"there is no {what} in any namespace")]
    return [
        Evidence(
            reference_to({"kind": "Deployment", **each}),
            f"in namespace {each['metadata'].get('namespace')} has {_available(each)} of "
            f"{(each.get('spec') or {}).get('replicas', 1)} replicas available",
        )
        for each in deployments
    ]
