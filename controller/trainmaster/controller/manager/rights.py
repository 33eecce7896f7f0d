"""The rights that it takes to write what jobs consist of, to own it, and to write the statuses of jobs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Final

from trainmaster.controller.kube.rest.resources import PODS, SERVICES, Resource
from trainmaster.controller.policyrule import PolicyRule
from trainmaster.controller.resources import TRAINJOBS, watched_resource
from trainmaster.runtime.jobs.interface import JobKind
from trainmaster.runtime.listers import Watch

JOBS: Final = "jobs"
"""Who needs what the jobs of all kinds have."""

_OBJECTS: Final = "the objects of a job; find out who owns an existing one"


def trainjob_rules(watches: Iterable[Watch]) -> Iterator[PolicyRule]:
    """Return the rights that it takes to apply what the declarers of some watches build.

    A server-side apply is a patch, which needs the right to create as well where there is nothing yet.
    """
    yield from owner_rules(TRAINJOBS, needed_by="trainjob_controller")
    for watch in watches:
        if not watch.writes:
            continue
        rule = partial(PolicyRule, resource=watched_resource(watch), needed_by=watch.declared_by)
        verbs = ("create",) if watch.creates_only else ("create", "patch")
        yield rule(verbs=verbs, reason="build what a TrainJob consists of")
        yield rule(verbs=("get",), reason="find out who owns or changes an existing object")
        if watch.prunes:
            yield rule(verbs=("delete",), reason="delete what a TrainJob does not consist of any more")
        if watch.workload:
            yield rule(verbs=("delete",), reason="stop a TrainJob that has exceeded its activeDeadlineSeconds")


def job_rules(kind: JobKind, resource: Resource) -> Iterator[PolicyRule]:
    """Return the rights that it takes to do what plans of one kind say, apart from what jobs of all kinds have."""
    part = kind.controller_name
    yield from owner_rules(resource, needed_by=part)
    ledger = "write down what its resilience policy has charged, in an annotation"
    yield PolicyRule(resource=resource, verbs=("patch",), needed_by=part, reason=ledger)
    for watch in kind.watches():
        yield owned_rule(watch, needed_by=part, deletes=not kind.keeps_objects)
    for grant in kind.grants():
        granted = Watch(grant.api_version, grant.kind, grant.plural)
        yield PolicyRule(
            resource=watched_resource(granted),
            subresource=grant.subresource,
            verbs=grant.verbs,
            needed_by=part,
            reason="give it to the pods of a job: nobody gives away a right that they do not have",
        )


def owned_rule(watch: Watch, *, needed_by: str, optional: bool = False, deletes: bool = True) -> PolicyRule:
    """Return the right to write what jobs own of a kind."""
    never = {"patch"} if watch.creates_only else set[str]()
    if not deletes:
        never.add("delete")
    verbs = tuple(verb for verb in ("get", "create", "patch", "delete") if verb not in never)
    reason = f"build and delete {_OBJECTS}" if deletes else f"build {_OBJECTS}"
    return PolicyRule(
        resource=watched_resource(watch), verbs=verbs, needed_by=needed_by, reason=reason, optional=optional
    )


def pod_rules(*, has_services: bool) -> Iterator[PolicyRule]:
    """Return the rights to write the pods of jobs, and their Services if they have any."""
    for each in (PODS, SERVICES) if has_services else (PODS,):
        yield PolicyRule(
            resource=each, verbs=("get", "create", "delete"), needed_by=JOBS, reason=f"build and delete {_OBJECTS}"
        )


def owner_rules(resource: Resource, *, needed_by: str) -> Iterator[PolicyRule]:
    """Return the rights that it takes to own objects, and to write the statuses of their owners."""
    rule = partial(PolicyRule, resource=resource, needed_by=needed_by)
    yield rule(verbs=("get",), reason="build nothing for a job that is gone")
    yield rule(verbs=("delete",), reason="end what has outlived ttlSecondsAfterFinished")
    owns = "own objects with blockOwnerDeletion, where OwnerReferencesPermissionEnforcement is on (OpenShift)"
    yield rule(subresource="finalizers", verbs=("update",), reason=owns)
    yield rule(verbs=("get",), reason="find out who keeps undoing our status")
    yield rule(subresource="status", verbs=("patch",), reason="write the status")
