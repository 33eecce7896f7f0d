"""RuntimeMissing, Refused, PluginFailed, QuotaExceeded: what the manager, the API server or a quota does not let pass.

The manager says so by the condition `Blocked`. That pods are refused the controllers of Jobs and of JobSets say by
events, and the manager of jobs of `kubeflow.org/v1` as well.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any, Final

from trainmaster.controller.conditions import (
    BLOCKED,
    BUILD_REJECTED,
    KIND_NOT_SERVED,
    PLUGIN_FAILED,
    PLUGIN_QUARANTINED,
    RUNTIME_DENIED,
    RUNTIME_NOT_FOUND,
)
from trainmaster.controller.explain.cause import Cause
from trainmaster.controller.explain.causes.webhooks import webhook_advice, webhook_evidence
from trainmaster.controller.explain.findings import Certainty, Event, Evidence, Finding, ObjectReference, reference_to
from trainmaster.controller.explain.pods import missing_pods
from trainmaster.controller.explain.view import JobView, condition_since, kubectl, trainmaster
from trainmaster.runtime.api.constants import (
    ANCESTORS,
    CLUSTER_TRAINING_RUNTIME_KIND,
    FAILED,
    NODE,
    RUNTIME_NOT_SUPPORTED_REASON,
    SNAPSHOT_KEY,
    TRAINING_RUNTIME_KIND,
)
from trainmaster.runtime.jsontree import JsonObject

_CAUSES: Final = {
    RUNTIME_NOT_FOUND: Cause.RUNTIME_MISSING,
    RUNTIME_DENIED: Cause.RUNTIME_MISSING,
    PLUGIN_FAILED: Cause.PLUGIN_FAILED,
    PLUGIN_QUARANTINED: Cause.PLUGIN_FAILED,
    "InternalError": Cause.PLUGIN_FAILED,
    "WorkloadGone": Cause.TIME_TO_LIVE_EXPIRED,
}
"""Of the reasons of `Blocked`; what is not here is refused."""

_GOES_ON: Final = "the job goes on by itself then"
_ADVICE: Final = {
    RUNTIME_DENIED: ("tell your administrator: the manager may not read the runtime", _GOES_ON),
    PLUGIN_QUARANTINED: (
        "tell your administrator: the plugin kept failing, maybe with other jobs, and is not called for a while",
        "the job goes on by itself when the plugin works again",
    ),
    BUILD_REJECTED: (
        "do what the message asks for, or wait for what it names",
        "the job is tried again by itself",
    ),
    "PolicyUnserved": (
        "tell your administrator: the manager needs a plugin that serves the policy, or has to enable it",
        _GOES_ON,
    ),
    KIND_NOT_SERVED: ("tell your administrator: what the message names is theirs to do", _GOES_ON),
}
"""What to do for some reasons of `Blocked`, in which neither the job nor a plugin has failed."""

_REFUSALS: Final = frozenset(
    {"FailedCreate", "FailedCreatePod", "FailedCreateService", "JobCreationFailed", "HeadlessServiceCreationFailed"}
)
"""Reasons of events: of the controllers of Jobs and of jobs of `kubeflow.org/v1`, and of JobSet's."""

_QUOTA: Final = re.compile(r'exceeded quota: (?P<quota>[^,\s"]+)|failed quota: (?P<failed>[^:\s"]+)')
"""What the admission plugin ResourceQuota says."""

_UNSPECIFIED: Final = re.compile(r"must specify ([\w./,-]*[\w/])")
_SERVICE_ACCOUNT: Final = re.compile(r'serviceaccount "([^"]+)" not found')
_LIMIT_RANGE: Final = re.compile(r"\b(?:maximum|minimum|max|min)\b.{0,60}\bper (?:Container|Pod)\b")
_MISSING_RIGHT: Final = re.compile(r'\bTrainmaster may not |User "system:serviceaccount:[^"]+" cannot \w+ resource')
_AMOUNT: Final = re.compile(r"\b(\S+) usage per Container is [^,\s]+, but (request|limit) is ([\w.]*\w)")
"""What a LimitRange says of a container, whose name it leaves out: resource, field and amount."""

_POD_SECURITY: Final = "violates PodSecurity"
_CONTAINERS: Final = re.compile(r'\bcontainers? ("[^"]+"(?:, "[^"]+")*) must')
_QUOTED: Final = re.compile(r'"([^"]+)"')
"""The containers that an admission plugin names."""

_JOBSETS: Final = "jobsets.jobset.x-k8s.io"
_OBJECT: Final = re.compile(r'\b[a-z]+ "[^"]+" is forbidden')
_CREATED: Final = "SuccessfulCreate"
"""With what the reasons of events begin that tell of what was created."""

_MOST: Final = 3
"""Texts of one cause that are evidence."""


def blocked(view: JobView) -> Iterator[Finding]:
    """What the manager says that stands in the way."""
    condition = view.conditions.get(BLOCKED)
    if condition is None:
        return
    reason, message = str(condition.get("reason") or ""), str(condition.get("message") or "")
    cause = _CAUSES.get(reason) or _cause_of_refusal(message)
    evidence = [Evidence(view.reference, f"{reason}: {message}", condition_since(condition))]
    evidence += [*_quota_now(view, message), *webhook_evidence(view, message)]
    advice = _ADVICE.get(reason) or (
        _runtime_advice(view) if cause is Cause.RUNTIME_MISSING else _advice(view, cause, message)
    )
    if reason == KIND_NOT_SERVED and _JOBSETS in message:
        cause, advice = Cause.JOBSET_CONTROLLER_ABSENT, ()
    yield Finding(cause, Certainty.CERTAIN, evidence, condition_since(condition), advice)


def runtime_missing(view: JobView) -> Iterator[Finding]:
    """That the runtime does not exist, for the case that no manager says so; or is of a kind that nobody serves."""
    if not view.is_trainjob or BLOCKED in view.conditions:
        return
    failed = view.conditions.get(FAILED) or {}
    if failed.get("reason") == RUNTIME_NOT_SUPPORTED_REASON:
        since = condition_since(failed)
        evidence = Evidence(view.reference, str(failed.get("message") or RUNTIME_NOT_SUPPORTED_REASON), since)
        advice = (f"name a {CLUSTER_TRAINING_RUNTIME_KIND} or a {TRAINING_RUNTIME_KIND}, and create the job again",)
        yield Finding(Cause.RUNTIME_MISSING, Certainty.CERTAIN, (evidence,), since, advice)
        return
    kind, name = _runtime_of(view)
    there = view.runtimes
    if there is None or view.snapshots or view.jobsets or view.has_ended:
        return
    if all(each["metadata"]["name"] != name for each in there):
        namespace = view.namespace if kind == TRAINING_RUNTIME_KIND else ""
        evidence = Evidence(ObjectReference(kind, namespace, name), "does not exist")
        yield Finding(Cause.RUNTIME_MISSING, Certainty.CERTAIN, (evidence,), view.created, _runtime_advice(view))


def refused(view: JobView) -> Iterator[Finding]:
    """Events that tell of pods, Jobs or Services that the API server refuses, unless they are there by now.

    Of a job that has failed what was refused to the last: its deadline may have been over before that was mended.
    """
    if view.is_deleted or (view.has_ended and FAILED not in view.conditions):
        return
    if not view.has_ended and view.pods and not missing_pods(view):
        return
    found: dict[Cause, list[Event]] = {}
    for event in view.events or ():
        if event.reason in _REFUSALS and event.is_warning:
            found.setdefault(_cause_of_refusal(event.note), []).append(event)
    for cause, events in found.items():
        last = events[-1]
        if view.has_ended and _was_created_after(view, last):
            continue
        evidence = [*_evidence_of(events), *_quota_now(view, last.note), *webhook_evidence(view, last.note)]
        certainty = Certainty.LIKELY if view.has_ended else Certainty.CERTAIN
        yield Finding(cause, certainty, evidence, _first(events), _advice(view, cause, last.note))


def names_quota(view: JobView) -> bool:
    """Tell whether a quota is in the way of something, so that how it is by now is worth a look."""
    told = [str((view.conditions.get(BLOCKED) or {}).get("message") or "")]
    told += [event.note for event in view.events or () if event.reason in _REFUSALS]
    return any(_QUOTA.search(each) for each in told)


def _was_created_after(view: JobView, refusal: Event) -> bool:
    """Tell whether what was refused to an object has been created since, as far as events tell."""
    about = refusal.about
    created = [event for event in view.events_about(about.kind, about.name) if event.reason.startswith(_CREATED)]
    return any(each.last is not None and refusal.last is not None and each.last > refusal.last for each in created)


def _evidence_of(events: Sequence[Event]) -> Iterator[Evidence]:
    """Tell refusals, the last one first; those that differ in the names of pods only, as one."""
    alike: dict[str, list[Event]] = {}
    for event in events:
        alike.setdefault(_OBJECT.sub("", event.note), []).append(event)
    for group in sorted(alike.values(), key=lambda each: events.index(each[-1]), reverse=True)[:_MOST]:
        count = sum(event.count for event in group)
        times = f" ({count} times)" if count > 1 else ""
        last = group[-1]
        yield Evidence(last.about, f"{last.reason}{times}: {last.note}", last.last)


def _quota_now(view: JobView, note: str) -> Iterator[Evidence]:
    """Tell what a quota that refuses something allows, and how much of that is used by now."""
    found = _QUOTA.search(note)
    name = (found["quota"] or found["failed"]) if found else ""
    for quota in view.quotas or ():
        if quota["metadata"]["name"] != name:
            continue
        status = quota.get("status") or {}
        hard, used = status.get("hard") or {}, status.get("used") or {}
        asked = [each for each in hard if re.search(rf"\b{re.escape(each)}=", note)] or list(hard)
        amounts = "; ".join(f"{each}: {used.get(each, 0)} of {hard[each]}" for each in asked)
        if amounts:
            yield Evidence(reference_to(quota), f"is used by now: {amounts}")


def _first(events: Iterable[Event]) -> datetime | None:
    return min((each.first for each in events if each.first is not None), default=None)


def _cause_of_refusal(text: str) -> Cause:
    return Cause.QUOTA_EXCEEDED if _QUOTA.search(text) else Cause.REFUSED


def _runtime_of(view: JobView) -> tuple[str, str]:
    reference = view.spec.get("runtimeRef") or {}
    return str(reference.get("kind") or CLUSTER_TRAINING_RUNTIME_KIND), str(reference.get("name") or "")


def _runtime_advice(view: JobView) -> tuple[str, ...]:
    kind, name = _runtime_of(view)
    names = sorted(str(each["metadata"]["name"]) for each in view.runtimes or () if each["metadata"]["name"] != name)
    near = difflib.get_close_matches(name, names, n=1)
    lines = [f"did you mean {near[0]!r}? the job has to be created again with it"] if near else []
    if view.runtimes is not None and not near:
        lines.append(f"runtimes of this kind: {', '.join(names[:10])}" if names else f"there is no {kind} at all")
    command = kubectl(view, "get", f"{kind.lower()}s", namespaced=kind == TRAINING_RUNTIME_KIND)
    return (*lines, f"see which runtimes there are: {command}", "the job goes on by itself when the runtime is created")


def _containers(tree: Any) -> Iterator[JsonObject]:
    """Yield the containers of all pod templates within a job, a JobSet, a runtime or patches of one."""
    if isinstance(tree, list):
        for each in tree:
            yield from _containers(each)
    elif isinstance(tree, dict):
        for name, value in tree.items():
            if name in ("containers", "initContainers") and isinstance(value, list):
                yield from (each for each in value if isinstance(each, dict))
            yield from _containers(value)


def _names(tree: Any) -> set[str]:
    return {str(each.get("name")) for each in _containers(tree)}


def _whose(view: JobView, message: str) -> tuple[str, bool]:
    """Say whose the containers are that are refused, and whether the job cannot change them; empty if nobody knows."""
    workload = [each.get("spec") for each in view.jobsets or ()] if view.is_trainjob else view.spec
    named = {name for names in _CONTAINERS.findall(message) for name in _QUOTED.findall(names)}
    if not named and (amount := _AMOUNT.search(message)):
        named = {str(each.get("name")) for each in _containers(workload) if _asks_for(each, *amount.groups())}
        if not named and not view.is_trainjob:
            of_manager = "the manager adds init containers to a PyTorchJob, by its initContainerTemplate"
            asks = f"no container of the job asks for {amount[3]} of {amount[1]}"
            return f"ask your administrator: {asks}; {of_manager}, or a webhook adds one", True
    names = ", ".join(sorted(named))
    if not named or not workload:
        return "", False
    if not named & _names(workload):
        of_manager = (
            "" if view.is_trainjob else "the manager adds it to a PyTorchJob, by its initContainerTemplate, or "
        )
        return f"ask your administrator: {names} is not in the job; {of_manager}a webhook does", True
    if not view.is_trainjob or named & (_names(view.spec.get("runtimePatches")) | {NODE, *ANCESTORS}):
        return "", False
    frozen = [str((each.get("data") or {}).get(SNAPSHOT_KEY)) for each in view.snapshots or ()]
    if not frozen:
        return "", False
    kind, runtime = _runtime_of(view)
    if any(json.dumps(name) in text for name in named for text in frozen):
        return f"{names} is of the {kind} {runtime}: change it there, or by spec.runtimePatches of the job", False
    return (
        f"ask your administrator: {names} is neither in the job nor in its runtime; a plugin of the manager adds it",
        True,
    )


def _asks_for(container: JsonObject, resource: str, field: str, amount: str) -> bool:
    """Tell whether a container has a request, or a limit, of this amount, as a LimitRange names it."""
    asked = ((container.get("resources") or {}).get(f"{field}s") or {}).get(resource)
    return str(asked) == amount


def _advice(view: JobView, cause: Cause, message: str) -> tuple[str, ...]:
    """Say what to do about a refusal, from its words."""
    if cause is Cause.QUOTA_EXCEEDED:
        found = _QUOTA.search(message)
        name = (found["quota"] or found["failed"]) if found else ""
        if missing := _UNSPECIFIED.search(message):
            where = "spec.trainer.resourcesPerNode, or the runtime" if view.is_trainjob else "its pod templates"
            where = "--cpus, --memory, --memory-limit and --gpus of trainmaster run" if view.is_made_by_run else where
            return (
                f"say how much it needs: the quota counts {missing[1]}, which its containers do not name ({where})",
                "or let a LimitRange of the namespace name a default",
            )
        return (
            f"see what the quota allows and who uses it: {kubectl(view, 'describe', 'resourcequota', name)}",
            "wait until others end, ask for less, or have the quota raised; what is missing is then created by itself",
        )
    if cause is not Cause.REFUSED:
        return ()
    if advice := webhook_advice(view, message):
        return advice
    whose, is_not_own = _whose(view, message)
    if is_not_own:
        return (whose,)
    own = (whose,) if whose else ()
    if _POD_SECURITY in message:
        namespace = kubectl(view, "describe", "namespace", view.namespace, namespaced=False)
        return (
            *own,
            f"see what the labels of the namespace demand: {namespace}",
            "set the securityContext that the message names "
            + ("in the runtime, or by spec.runtimePatches" if view.is_trainjob else "in the templates of its pods"),
        )
    if account := _SERVICE_ACCOUNT.search(message):
        return (
            f"create it, and the job goes on by itself: {kubectl(view, 'create', 'serviceaccount', account[1])}",
            "or name another one (serviceAccountName), and create the job again",
        )
    if _LIMIT_RANGE.search(message):
        return (
            *own,
            f"see what the namespace allows: {kubectl(view, 'describe', 'limitranges')}",
            "ask for what it allows, and create the job again",
        )
    if _MISSING_RIGHT.search(message):
        return (
            "tell your administrator: a controller lacks a right; `trainmaster rbac` prints what the manager needs",
            "the job is tried again by itself",
        )
    if not view.is_trainjob:
        return ("correct what the message names; the job is tried again by itself",)
    return (
        "correct what the message names, in the job or in its runtime",
        f"the runtime of a job is frozen: after correcting it, create the job again ({trainmaster(view, 'restart')})",
    )
